// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestWhatOnlyASecondSampleMeetsIsUnknown: a rule that cannot be read, on the way of a pod to itself, of a client that
// comes back, of the edge of a source range or of the pods' short circuit alone, makes a path Unknown. It was a match.
func TestWhatOnlyASecondSampleMeetsIsUnknown(t *testing.T) {
	const self = "-s 10.244.1.121/32 -d 10.244.1.121/32" // an endpoint of infra/ep2, on its way to itself
	for _, c := range []struct {
		name, fixture string
		put           func(w *capturedNode, does string)
		path          string // that is Unknown
	}{
		{"a pod that reaches itself", "iptables", func(w *capturedNode, does string) {
			w.first(v4, "filter", "FORWARD", self+" "+does)
		}, "infra/ep2 ClusterIP from pod"},
		{"another endpoint that reaches itself", "v1.28-iptables", func(w *capturedNode, does string) {
			w.first(v4, "nat", "POSTROUTING", "-s 10.245.1.2/32 -d 10.245.1.2/32 "+does)
		}, "shop/sticky ClusterIP from pod"},
		{"the pods' short circuit", "iptables", func(w *capturedNode, does string) {
			w.first(v4, "nat", "KUBE-EXT-23S4WBCF4Z3V72N5", "-s 10.244.0.0/16 "+does)
		}, "shop/kitchen-sink LoadBalancerIP from pod"},
		{"the edge of a source range", "iptables", func(w *capturedNode, does string) {
			w.first(v4, "nat", "KUBE-FW-DQMF54LKPAANC7RZ", "-s 192.0.2.255/32 "+does)
		}, "shop/lb-ranges LoadBalancerIP from external"},
		{"a client that comes back", "iptables", func(w *capturedNode, does string) {
			w.first(v4, "nat", "KUBE-SVC-2P5UX4GDSMXEBYXA", "-m recent --rcheck --seconds 600 --reap "+
				"--name KUBE-SEP-7AFPUWGPVHEYFVOP --mask 255.255.255.255 --rsource "+does)
		}, "shop/affinity ClusterIP from node"},
	} {
		for _, does := range []string{
			"-m set --match-set blocked src -j DROP", "-j NFQUEUE", "-j NOSUCHCHAIN", "-m invented -j DROP",
		} {
			t.Run(c.name+", "+does, func(t *testing.T) {
				w := openCaptured(t, c.fixture)
				if w.files[v4] == nil {
					_, n := openSnapshot(t, "testdata/snapshots/"+c.fixture, "node1")
					data, _, err := n.File("iptables-nft-save.txt")
					if err != nil {
						t.Fatal(err)
					}
					w.files[v4] = data
				}
				c.put(w, does)
				r := w.run()
				if verdict, text := verdictAt(&r, c.path); verdict != report.Unknown || !strings.Contains(text, does[3:]) {
					t.Errorf("%s: Unknown, naming the rule, was expected, and it is %s: %s", c.path, verdict, text)
				}
			})
		}
	}
	for _, statements := range []string{`{"xt":{"type":"match","name":"string"}},{"drop":null}`, `{"queue":{"num":0}}`} {
		t.Run("nftables, "+statements, func(t *testing.T) {
			w := openCaptured(t, "nftables")
			w.foreign("ip", "filter", "forward", "0",
				`{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":"10.244.1.121"}},`+
					`{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"daddr"}},"right":"10.244.1.121"}},`+statements)
			r := w.run()
			if verdict, text := verdictAt(&r, "infra/ep2 ClusterIP from pod"); verdict != report.Unknown {
				t.Errorf("Unknown was expected, and it is %s: %s", verdict, text)
			}
		})
	}
}

// verdictAt is the worst verdict of the paths of a Service from an origin, and what was found of them.
func verdictAt(r *report.NodeReport, path string) (report.Verdict, string) {
	worst, found := report.ByDesign, []report.Finding{}
	for i := range r.Paths {
		p := &r.Paths[i]
		if path == p.Service.Namespace+"/"+p.Service.Name+" "+p.Frontend.Kind+" from "+p.Origin.Kind {
			worst, found = report.Worse(worst, p.Verdict), append(found, p.Findings...)
		}
	}
	text, err := json.Marshal(found)
	if err != nil {
		return worst, err.Error()
	}
	return worst, string(text)
}
