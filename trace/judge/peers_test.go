// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// ownLinks are the files by which a node or pod with one interface tells its address.
func ownLinks(name, cidr, mac string) *snapshot.Node {
	ip, bits, _ := strings.Cut(cidr, "/")
	return snapshot.NewNode(name, map[string][]byte{
		snapshot.AddrFile: []byte(`[{"ifname":"eth0","flags":["UP"],"address":"` + mac + `","addr_info":[{"family":"inet","scope":"global","local":"` + ip +
			`","prefixlen":` + bits + `}]}]`),
		snapshot.LinkFile: []byte(`[{"ifname":"eth0","flags":["UP"],"address":"` + mac + `"}]`),
	})
}

// A Node is to be read where something speaks against an entry that the kernel has found, or somebody has set it by
// hand; no other.
func TestNodesToBeAskedForTheirInterfaces(t *testing.T) {
	const fault = "a-neighbour-entry-of-another-node-that-is-wrong-for-good"
	state := func(s string) func(string) string {
		return func(text string) string { return strings.ReplaceAll(text, `"PERMANENT"`, `"`+s+`"`) }
	}
	twin := func(text string) string {
		return instead("[", `[{"dst":"10.79.0.13","dev":"eth0","lladdr":"`+wrongMAC+`","state":["STALE"]},`)(state("STALE")(
			strings.ReplaceAll(text, `"dst":"10.79.0.13"`, `"dst":"10.79.0.113"`)))
	}
	const waits = "ipv4     2 tcp      6 100 SYN_SENT src=10.245.1.6 dst=10.97.199.129 sport=40000 dport=80 [UNREPLIED] " +
		"src=10.245.0.4 dst=10.245.1.6 sport=8080 dport=40000 mark=0 use=1\n"
	const answered = "ipv4     2 tcp      6 100 TIME_WAIT src=10.245.1.6 dst=10.97.199.129 sport=40001 dport=80 " +
		"src=10.245.0.4 dst=10.245.1.6 sport=8080 dport=40001 [ASSURED] mark=0 use=1\n"
	for _, c := range []struct {
		name        string
		edit        func(string) string
		connections string
		want        string
	}{
		{"set by hand, and needs no ARP", state("NOARP"), "", "node2"},
		{"found", state("REACHABLE"), "", ""},
		{"found some time ago", state("STALE"), "", ""},
		{"asked for, and nobody has answered", state("PROBE"), "", "node2"},
		{"connections are not answered", state("REACHABLE"), waits, "node2"},
		{"some connections are not answered", state("REACHABLE"), waits + answered, ""},
		{"another Node has the same", twin, "", "node2 node3"},
	} {
		f, err := faultdata.Read(filepath.Join(recordedFaults, "iptables-neighbours", fault+".fault"))
		if err != nil {
			t.Fatal(err)
		}
		cluster, n := openFault(t, filepath.Join(recordedFaults, "iptables-neighbours", "healthy"), f,
			map[string]func(string) string{"ip-neigh.json": c.edit})
		files := snap.Files(t, n)
		files[snapshot.ConntrackFile] = []byte(c.connections)
		r := Files(cluster, snapshot.NewNode("node1", files), Request{
			Services: []types.NamespacedName{{Namespace: faultdata.Namespace, Name: f.Service}}, From: fromFlag(t, f.From),
		})
		if got := strings.Join(r.Asks, " "); got != c.want || AsksOthers(&r) != (c.want != "") {
			t.Errorf("%s: %q are asked, want %q; %s %s", c.name, got, c.want, r.Verdict, r.Error)
		}
	}
}

// An entry that was set by hand is wrong where the next hop itself contradicts it, right where it agrees, and not known
// where it was not asked.
func TestAStaticNeighbourIsWhatTheNextHopSaysOfItself(t *testing.T) {
	const (
		away  = "a-neighbour-entry-of-another-node-that-is-wrong-for-good"
		pod   = "a-neighbour-entry-of-the-endpoint-of-the-node-that-is-wrong-for-good"
		at    = "faults-54ff54844f-gm94n" // has 10.245.1.5
		right = "02:00:00:00:00:12"
	)
	noARP := map[string]func(string) string{"ip-neigh.json": func(text string) string {
		return strings.ReplaceAll(text, `"PERMANENT"`, `"NOARP"`)
	}}
	found := map[string]func(string) string{"ip-neigh.json": func(text string) string {
		return strings.ReplaceAll(text, `"PERMANENT"`, `"REACHABLE"`)
	}}
	others := map[string]func(string) string{"ip-neigh.json": instead("[",
		`[{"dst":"10.79.0.77","dev":"eth0","lladdr":"`+wrongMAC+`","state":["STALE"]},`)}
	group := map[string]func(string) string{"ip-neigh.json": func(text string) string {
		return strings.ReplaceAll(text, wrongMAC, "03:bf:0a:4f:00:0c")
	}}
	other, moved := ownLinks("node2", "10.79.0.12/24", right), ownLinks("node2", "10.79.0.99/24", right)
	for _, c := range []struct {
		name, fault string
		edit        map[string]func(string) string
		says        *snapshot.Node // nil: it was not read
		err         error
		want        report.Verdict
		code, text  string
	}{
		{"it has another", away, nil, other, nil, report.Mismatch, WrongNeighbour, right},
		{"it has another, no ARP", away, noARP, other, nil, report.Mismatch, WrongNeighbour, "NOARP"},
		{"it has that one", away, nil, ownLinks("node2", "10.79.0.12/24", wrongMAC), nil, report.Match, "", ""},
		{"nobody read it", away, nil, nil, nil, report.Unknown, StaticNeighbour, "ip neigh"},
		{"it could not be read", away, nil, nil, errors.New("torn"), report.Unknown, StaticNeighbour, "torn"},
		{"it has another address", away, nil, moved, nil, report.Unknown, StaticNeighbour, ""},
		{"others answer with the same", away, others, other, nil, report.Unknown, StaticNeighbour, right},
		{"an address of a group", away, group, other, nil, report.Unknown, StaticNeighbour, right},
		{"it was found by asking, and it has another", away, found, other, nil, report.Unknown, OtherNeighbour, right},
		{"it was found by asking, and nobody read it", away, found, nil, nil, report.Match, "", ""},
		{"the pod has another", pod, nil, ownLinks("", "10.245.1.5/24", right), nil, report.Mismatch, WrongNeighbour, right},
		{"the pod has that one", pod, nil, ownLinks("", "10.245.1.5/24", wrongMAC), nil, report.Match, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, r := reportRecorded(t, filepath.Join(recordedFaults, "iptables-neighbours", c.fault+".fault"), c.edit,
				func(req *Request) {
					req.Others = func(of Owner) (*snapshot.Node, error) {
						if of.Pod != "" && !strings.HasSuffix(of.Pod, "/"+at) {
							return nil, nil
						}
						return c.says, c.err
					}
				})
			p := &r.Paths[0]
			i := slices.IndexFunc(p.Findings, func(f report.Finding) bool { return f.Code == c.code })
			if p.Verdict != c.want || (i < 0) != (c.code == "") || len(p.Findings) > 1 {
				t.Fatalf("%s: %+v", p.Verdict, p.Findings)
			}
			if i >= 0 && !strings.Contains(textOf(t, p.Findings), c.text) {
				t.Errorf("%q is not said: %+v", c.text, p.Findings[i])
			}
		})
	}
}
