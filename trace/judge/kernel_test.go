// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// withTraces judges shop/ep3 from the node, with traces that meet what the walk meets on its way to one endpoint, as
// change makes them.
func withTraces(t *testing.T, base string, change func(steps []snapshot.TraceStep) []snapshot.TraceStep) report.Path {
	t.Helper()
	return withTracesOf(t, base, openCaptured(t, base), change)
}

// withTracesOf is withTraces for a captured cluster.
func withTracesOf(
	t *testing.T, base string, w *capturedNode, change func(steps []snapshot.TraceStep) []snapshot.TraceStep,
) report.Path {
	t.Helper()
	req := Request{
		Services:       []types.NamespacedName{{Namespace: "shop", Name: "ep3"}},
		Matching:       true,
		PerPathService: true,
		Steps:          true,
		From:           &From{Kind: "node"},
	}
	first := Files(w.cluster, snapshot.NewNode("node1", w.files), req)
	if len(first.Paths) != 1 {
		t.Fatalf("%+v", first)
	}
	targets, _ := ProbeTargets(&first, Probing{Probes: 3}, 100)
	if !targets[0].Trace || targets[1].Trace {
		t.Errorf("traced should be the frontend alone: %+v", targets)
	}
	endpoint, _ := first.Paths[0].Expected.Endpoints[0].AddrPort()
	probes := snapshot.Probes{ProbeTarget: targets[0], Legacy: base == "iptables-legacy"}
	for range 3 {
		probes.List = append(probes.List, snapshot.Probe{Result: snapshot.ProbeConnected, Endpoint: endpoint, Micros: 100})
	}
	trace := snapshot.Trace{Probe: probes.List[0]}
	for _, s := range first.Paths[0].Steps {
		if s.Share == 1 && s.Rule > 0 && s.Table != "ipvs" {
			trace.Steps = append(
				trace.Steps,
				snapshot.TraceStep{
					Family:  "ip",
					Table:   s.Table,
					Chain:   s.Chain,
					Rule:    s.Rule,
					Legacy:  probes.Legacy,
					Verdict: "accept",
				},
			)
		}
	}
	trace.Steps = change(trace.Steps)
	probes.Traces = []snapshot.Trace{trace}
	data, err := json.Marshal(snapshot.Probing{Targets: []snapshot.Probes{probes}})
	if err != nil {
		t.Fatal(err)
	}
	w.files[snapshot.ProbesFile] = data
	r := Files(w.cluster, snapshot.NewNode("node1", w.files), req)
	if r.Error != "" || len(r.Paths) != 1 {
		t.Fatalf("%q %d", r.Error, len(r.Paths))
	}
	return r.Paths[0]
}

func disagreements(p *report.Path) []string {
	var out []string
	for _, f := range p.Findings {
		if f.Code == WalkDisagrees {
			for _, e := range f.Evidence {
				out = append(out, e.String())
			}
		}
	}
	return out
}

// What chance decides at each of two calls of a chain happens once in the mean, and not to every connection.
func TestKernelTraceWithoutARuleThatChanceDecidesTwice(t *testing.T) {
	const rules = ":TWICE - [0:0]\n:EMPTY - [0:0]\n-A OUTPUT -j TWICE\n-A OUTPUT -j TWICE\n" +
		"-A TWICE -m statistic --mode random --probability 0.5 -j EMPTY\n"
	w := openCaptured(t, "iptables")
	const name = "iptables-save.txt"
	save := string(w.files[name])
	at := strings.Index(save, "*filter\n")
	if at < 0 {
		t.Fatalf("no table filter in %s", name)
	}
	end := at + strings.Index(save[at:], "COMMIT\n")
	w.files[name] = []byte(save[:end] + rules + save[end:])
	p := withTracesOf(t, "iptables", w, func(steps []snapshot.TraceStep) []snapshot.TraceStep {
		return slices.DeleteFunc(steps, func(s snapshot.TraceStep) bool { return s.Chain == "TWICE" })
	})
	if d := disagreements(&p); len(d) > 0 {
		t.Errorf("the kernel passed over a rule that chance decides: %q", d)
	}
	met := false
	for _, s := range p.Steps {
		met = met || s.Chain == "TWICE"
		if s.Share > 1 {
			t.Errorf("%s %s rule %d has a share of %v", s.Table, s.Chain, s.Rule, s.Share)
		}
	}
	if !met {
		t.Error("the walk does not meet the rule")
	}
}

func TestKernelTraceAgainstTheWalk(t *testing.T) {
	for _, base := range []string{"iptables", "iptables-legacy", "nftables", "ipvs"} {
		legacy := base == "iptables-legacy"
		t.Run(base, func(t *testing.T) {
			p := withTraces(t, base, func(s []snapshot.TraceStep) []snapshot.TraceStep { return s })
			if d := disagreements(&p); len(d) > 0 {
				t.Errorf("the same rules: %q", d)
			}
			shown := 0
			for _, s := range p.Steps {
				switch {
				case s.Kernel == nil && s.Rule > 0 && s.Table != "ipvs":
					t.Errorf("nothing is said of %s %s rule %d", s.Table, s.Chain, s.Rule)
				case s.Kernel != nil && s.Table == "ipvs":
					t.Error("the kernel's trace has no virtual servers")
				case s.Kernel != nil && s.Share == 1 && *s.Kernel != 1:
					t.Errorf("%s %s rule %d: met by %d of 1", s.Table, s.Chain, s.Rule, *s.Kernel)
				case s.Kernel != nil:
					shown++
				}
			}
			if shown == 0 || p.Observed.Traced != 1 {
				t.Errorf("%d steps, %+v", shown, p.Observed)
			}
			p = withTraces(t, base, func(s []snapshot.TraceStep) []snapshot.TraceStep { return slices.Delete(s, 1, 2) })
			if d := disagreements(&p); len(d) != 1 || !strings.HasPrefix(d[0], "the walk alone: ") {
				t.Errorf("a rule that the kernel passes over: %q", d)
			}
			p = withTraces(t, base, func(s []snapshot.TraceStep) []snapshot.TraceStep {
				if legacy {
					return append(
						s,
						snapshot.TraceStep{Family: "ip", Table: "nat", Chain: "c", Rule: 4, Legacy: true},
						snapshot.TraceStep{Family: "ip", Table: "nat", Chain: "KUBE-SERVICES", Rule: 1, Legacy: true},
					)
				}
				return append(
					s,
					snapshot.TraceStep{Family: "ip", Table: "mine", Chain: "c", Rule: 4, Verdict: "accept"},
					snapshot.TraceStep{Family: "ip", Table: "mine", Chain: "c", Rule: 5, Verdict: "continue"},
				)
			})
			want := "the kernel alone: mine c rule 4: accept"
			if legacy {
				want = "the kernel alone: nat c rule 4"
			}
			if d := disagreements(&p); !slices.Equal(d, []string{want}) {
				t.Errorf("a rule that the walk passes over: %q", d)
			}
		})
	}
}
