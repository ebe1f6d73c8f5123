// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestProtocolHasThisShape fails where something that programs of different builds exchange has another form. Where a
// peer of the build before would misunderstand it, peer.Protocol is raised, too; then the form is written here.
func TestProtocolHasThisShape(t *testing.T) {
	const protocol, want = 2, "75e0233f21018dcd"
	h := sha256.New()
	seen := map[reflect.Type]bool{}
	for _, v := range []any{
		peer.Peer{},
		request{},
		progressBody{},
		fileBody{},
		fileEndBody{},
		doneBody{},
		errorBody{},
		CollectParams{},
		JudgeParams{},
		PodParams{},
		NamesParams{},
		HealthParams{},
		ProbeParams{},
		FollowParams{},
		FollowedParams{},
		ProgramParams{},
		UndoParams{},
		OrphansParams{},
		ProgramResult{},
		report.NodeReport{},
		nodereport.Object{},
	} {
		shapeOf(h, reflect.TypeOf(v), seen)
	}
	if got := hex.EncodeToString(h.Sum(nil))[:16]; got != want || peer.Protocol != protocol {
		t.Errorf("version %d of the protocol has the form %s: here stand %d and %s", peer.Protocol, got, protocol, want)
	}
}

// shapeOf writes the names and kinds of the members of a type that JSON has, of our own types' members, too.
func shapeOf(w io.Writer, of reflect.Type, seen map[reflect.Type]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		shapeOf(w, of.Elem(), seen)
	case reflect.Map:
		shapeOf(w, of.Key(), seen)
		shapeOf(w, of.Elem(), seen)
	case reflect.Struct:
		fmt.Fprintln(w, of)
		if seen[of] || !strings.HasPrefix(of.PkgPath(), "github.com/svcproxy/") { // Kubernetes' own are kept by its API
			return
		}
		seen[of] = true
		for f := range of.Fields() {
			if f.IsExported() {
				fmt.Fprintln(w, f.Name, f.Tag.Get("json"), f.Type)
				shapeOf(w, f.Type, seen)
			}
		}
	default:
		fmt.Fprintln(w, of, of.Kind())
	}
}
