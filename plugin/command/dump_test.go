// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A node that cannot be read, or that no snapshot may hold, costs the others nothing.
func TestDumpWithoutABadNode(t *testing.T) {
	s, err := run.Open(run.Config{Snapshot: broken, Progress: run.NewProgress(terminal.NewStream(io.Discard, os.Getenv))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ReadObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	d := &dumping{session: s, env: newEnvironment(streams, System{})}
	defer d.remove()
	node := func(name, text string) *snapshot.Node {
		return snapshot.NewNode(name, map[string][]byte{snapshot.IPSetFile: []byte(text)})
	}
	for _, n := range []struct {
		name  string
		files *snapshot.Node
		err   error
	}{
		{name: "lost", err: errors.New("no\nroute")},
		{name: "good", files: node("good", "create A hash:ip\n")},
		{name: "hostile", files: node("hostile", strings.Repeat("\n", bounds.Lines+1))},
		{name: "other", files: node("other", "")},
	} {
		if err := d.node(n.name, n.files, n.err); err != nil {
			t.Fatal(err)
		}
	}
	const want = "error: node lost was not read: no route\n" +
		"error: node hostile was not read: ipset-save.txt has more than 500000 lines: at most 500000 were expected\n"
	if errOut.String() != want {
		t.Errorf("got\n%swant\n%s", errOut, want)
	}
	path := filepath.Join(t.TempDir(), "dump.tar.gz")
	var out bytes.Buffer
	size, err := d.finish(path, terminal.NewStream(&out, os.Getenv))
	if err != nil || size < 1000 || out.Len() != 0 {
		t.Errorf("%d bytes, %v", size, err)
	}
	back, err := snapshot.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.NodeNames(); !slices.Equal(got, []string{"good", "other"}) {
		t.Errorf("nodes %v", got)
	}
}
