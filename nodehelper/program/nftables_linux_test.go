// SPDX-License-Identifier: Apache-2.0

package program

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// A client keeps its endpoint while other endpoints are added and removed.
func TestUpdateKeepsClients(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	req := params(web(600, "10.244.1.1:8080", "10.244.2.2:8080"), wire.NFTables, "", "a")
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	l := layoutOf(req.Plan, false)
	set := "a-" + l.endpoints[1].name
	testutil.Run(t, "", "nft", "add", "element", "ip", nftTable(req.Plan.Name), set, "{ 10.244.7.7 }")
	req.Plan = web(600, "10.244.0.1:8080", "10.244.2.2:8080", "10.244.3.3:8080")
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	got := testutil.Run(t, "", "nft", "list", "set", "ip", nftTable(req.Plan.Name), set)
	if !strings.Contains(got, "10.244.7.7") {
		t.Errorf("the client of %s is forgotten: %s", l.endpoints[1].address, got)
	}
	got = testutil.Listing(t, testutil.Rules...)
	if strings.Contains(got, "a-"+l.endpoints[0].name) || strings.Contains(got, "e-"+l.endpoints[0].name) {
		t.Errorf("something of %s is left: %s", l.endpoints[0].address, got)
	}
}
