// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Real connections to an endpoint of the node failed, and the finding about them named neither its interface, which was
// down, nor a command for it: that stood with the information, as the rest of the path's Unknown.
func TestWhatMadeAPathUnknownIsNamedBesideItsFailures(t *testing.T) {
	frontend := netip.MustParseAddrPort("10.97.199.129:80")
	from := netip.MustParseAddr(client)
	dir := filepath.Join(recordedFaults, "iptables-neighbours")
	fault, err := faultdata.Read(filepath.Join(dir, "the-interface-of-an-endpoint-is-down.fault"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		endpoint string
		named    bool
	}{{"10.245.1.5:8080", true}, {awayEndpoint + ":8080", false}} {
		e := netip.MustParseAddrPort(c.endpoint)
		lost := snapshot.Probe{Result: snapshot.ProbeTimeout, Unreplied: true, Endpoint: e}
		data, err := json.Marshal(snapshot.Probing{Targets: []snapshot.Probes{
			{
				ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: frontend, From: from, Probes: 3},
				List:        []snapshot.Probe{lost, lost, lost},
			},
			{
				ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: e, From: from, Probes: 1},
				List:        []snapshot.Probe{lost},
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		cl, n := openFault(t, filepath.Join(dir, "healthy"), fault, nil)
		r := judgeOpened(t, fault, cl, n.With(snapshot.ProbesFile, data))
		if len(r.Paths) != 1 {
			t.Fatalf("%d paths; %s", len(r.Paths), r.Error)
		}
		path := &r.Paths[0]
		at := slices.IndexFunc(path.Findings, func(f report.Finding) bool { return f.Code == EndpointTimeout })
		if path.Verdict != report.Mismatch || at < 0 {
			t.Fatalf("%s: %s, %+v", c.endpoint, path.Verdict, path.Findings)
		}
		f := &path.Findings[at]
		const evidence, command = "veth8f46cb60 is a port of cni0, and is down", "ip link set dev veth8f46cb60 up"
		var said []string
		for _, x := range f.Evidence {
			said = append(said, x.Text)
		}
		for _, x := range f.Commands {
			said = append(said, x.Line)
		}
		text := strings.Join(said, "\n")
		if strings.Contains(text, evidence) != c.named || strings.Contains(text, command) != c.named || f.Remedy == "" {
			t.Errorf("%s: %+v", c.endpoint, f)
		}
	}
}
