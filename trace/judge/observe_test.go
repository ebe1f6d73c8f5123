// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestTwoSided compares with values that were computed in exact fractions.
func TestTwoSided(t *testing.T) {
	for _, tt := range []struct {
		k, n int
		p    float64
		want float64
	}{
		{5, 20, 1.0 / 3, 0.48776276517476597},
		{0, 20, 1.0 / 3, 0.0004680946144911929}, // with 15 and more, which are less likely still
		{37, 100, 0.25, 0.00763992404358373},
		{160, 200, 2.0 / 3, 4.502992317701641e-05},
		{20, 20, 1, 1},
		{0, 20, 0, 1},
		{1, 20, 0, 0},
		{10, 20, 0.5, 1},
	} {
		if got := twoSided(tt.k, tt.n, tt.p); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%d of %d with probability %g: %.12f, want %.12f", tt.k, tt.n, tt.p, got, tt.want)
		}
	}
	sum := 0.0
	for k := range 201 {
		sum += binomial(k, 200, 0.3)
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the probabilities add up to %g", sum)
	}
}

// TestObserved puts beside right rules what connections may show.
func TestObserved(t *testing.T) {
	w := openCaptured(t, "iptables")
	var svc types.NamespacedName
	for _, s := range w.cluster.Services {
		if s.Name == "ep2" {
			svc = types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		}
	}
	req := Request{Services: []types.NamespacedName{svc}, Matching: true}
	plain := Files(w.cluster, snapshot.NewNode("node1", w.files), req)
	targets, left := ProbeTargets(&plain, Probing{Probes: 20}, 500)
	if left != 0 || plain.Verdict != report.Match {
		t.Fatalf("%s %+v", plain.Verdict, targets)
	}
	var frontend netip.AddrPort
	var endpoints []netip.AddrPort
	for _, x := range targets {
		switch {
		case x.From.IsValid() || x.To.Addr().Is6():
		case x.Probes == 20:
			frontend = x.To
		case x.Probes == straight:
			endpoints = append(endpoints, x.To)
		}
	}
	if !frontend.IsValid() || len(endpoints) != 2 {
		t.Fatalf("%+v", targets)
	}
	if few, left := ProbeTargets(&plain, Probing{Probes: 20}, 1); len(few) != 1 || left != len(targets)-1 {
		t.Errorf("one target of %d: %+v, %d left", len(targets), few, left)
	}
	a, b, other := endpoints[0], endpoints[1], netip.MustParseAddrPort("10.9.9.9:1")
	const ok, refused, timeout, noroute = snapshot.ProbeConnected, snapshot.ProbeRefused, snapshot.ProbeTimeout,
		snapshot.ProbeNoRoute
	list := func(pairs ...any) (out []snapshot.Probe) { // how many, how, and where
		for i := 0; i < len(pairs); i += 3 {
			for range pairs[i].(int) {
				p := snapshot.Probe{Result: pairs[i+1].(string), Micros: 300}
				if e, known := pairs[i+2].(netip.AddrPort); known {
					p.Endpoint = e
				}
				p.Unreplied = p.Result == timeout
				out = append(out, p)
			}
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		service []snapshot.Probe
		direct  map[netip.AddrPort]string
		code    string // "" for nothing
		says    string
	}{
		{"all is well", list(11, ok, a, 9, ok, b), map[netip.AddrPort]string{a: ok, b: ok}, "", ""},
		{
			"one endpoint refuses", list(11, ok, a, 9, refused, nil),
			map[netip.AddrPort]string{a: ok, b: refused},
			EndpointRefused, b.String(),
		},
		{
			"one endpoint does not answer", list(11, ok, a, 9, timeout, b),
			map[netip.AddrPort]string{a: ok, b: timeout},
			EndpointTimeout, b.String(),
		},
		{
			"a dead address that no connection came to", list(20, ok, a),
			map[netip.AddrPort]string{a: ok, b: noroute},
			EndpointUnreachable, b.String(),
		},
		{
			"only by way of the Service", list(20, timeout, a),
			map[netip.AddrPort]string{a: ok, b: ok},
			EndpointReachableDirectly, a.String(),
		},
		{
			"only by way of the Service, and sent nobody knows where", list(20, refused, nil),
			map[netip.AddrPort]string{a: ok, b: ok},
			EndpointReachableDirectly, "every endpoint accepts",
		},
		{"refused, and nobody tried directly", list(20, refused, nil), nil, EndpointRefused, "is not known"},
		{
			"refused directly, and accepted by way of the Service", list(11, ok, a, 9, ok, b),
			map[netip.AddrPort]string{a: ok, b: refused},
			"", "",
		},
		{"where no rule leads", list(19, ok, a, 1, ok, other), nil, WalkDisagrees, other.String()},
		{"chance", list(16, ok, a, 4, ok, b), nil, "", ""},
		{"no chance", list(20, ok, a), nil, ObservedSkew, "20 of 20, for a share of 50.0%"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			probes := []snapshot.Probes{
				{ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: frontend, Probes: 20}, List: tt.service},
			}
			for e, result := range tt.direct {
				probes = append(
					probes,
					snapshot.Probes{ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: e, Probes: 1}, List: list(1, result, e)},
				)
			}
			data, err := json.Marshal(snapshot.Probing{Targets: probes})
			if err != nil {
				t.Fatal(err)
			}
			r := Files(w.cluster, snapshot.NewNode("node1", w.files).With(snapshot.ProbesFile, data), req)
			judged := false
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Origin.Kind != "node" || p.Frontend.Address != frontend.Addr().String() {
					if p.Observed != nil || len(p.Findings) > 0 {
						t.Errorf("%s from %s: %+v", p.Frontend.Address, p.Origin.Kind, p.Observed)
					}
					continue
				}
				judged = true
				if p.Observed == nil || p.Observed.Probes != 20 {
					t.Fatalf("%+v", p.Observed)
				}
				if tt.code == "" && (p.Verdict != report.Match || len(p.Findings) > 0) {
					t.Errorf("%s %+v", p.Verdict, p.Findings)
				}
				if tt.code != "" &&
					(p.Verdict == report.Match || len(p.Findings) != 1 || p.Findings[0].Code != tt.code || !strings.Contains(
						p.Findings[0].Subject+p.Findings[0].Actual+p.Findings[0].Message, tt.says,
					)) {
					t.Errorf("%s %+v", p.Verdict, p.Findings)
				}
			}
			if !judged {
				t.Error("the path was not judged")
			}
		})
	}
}

// What connection tracking lost while the node was probed is told, and how much that is.
func TestConnectionsLostWhileProbing(t *testing.T) {
	for _, tt := range []struct {
		tracked snapshot.Tracked
		want    report.Severity
	}{
		{snapshot.Tracked{Seconds: 2}, ""},
		{snapshot.Tracked{Seconds: 2, Invalid: 3}, report.Info},
		{snapshot.Tracked{Seconds: 2, InsertFailed: 1}, report.Warn},
		{snapshot.Tracked{Seconds: 2, Drop: 5, Invalid: 1}, report.Warn},
	} {
		w := openCaptured(t, "iptables")
		data, err := json.Marshal(snapshot.Probing{Tracked: &tt.tracked})
		if err != nil {
			t.Fatal(err)
		}
		r := Files(w.cluster, snapshot.NewNode("node1", w.files).With(snapshot.ProbesFile, data), Request{NodeAlone: true})
		got := report.Severity("")
		for _, f := range r.Findings {
			if f.Code == ConntrackInvalid {
				got = f.Severity
			}
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.tracked, got, tt.want)
		}
	}
}

// TestWhatIPVSSentAConnectionTo: its own connection table counts where connection tracking knows of no translation, and
// stands beside it elsewhere.
func TestWhatIPVSSentAConnectionTo(t *testing.T) {
	at := netip.MustParseAddrPort
	vip, a, b := at("10.96.0.1:80"), at("10.244.1.1:8080"), at("10.244.1.2:8080")
	o := observedOf(&snapshot.Probes{ProbeTarget: snapshot.ProbeTarget{To: vip}, List: []snapshot.Probe{
		{Result: snapshot.ProbeConnected, Endpoint: a, RealServer: a},
		{Result: snapshot.ProbeConnected, RealServer: a},                // net.ipv4.vs.conntrack=0: no entry,
		{Result: snapshot.ProbeConnected, Endpoint: vip, RealServer: b}, // or one without a translation
		{Result: snapshot.ProbeConnected, Endpoint: b},                  // no virtual server
		{Result: snapshot.ProbeConnected, Endpoint: a, RealServer: b},
		{Result: snapshot.ProbeTimeout},
	}})
	got := map[string]int{}
	for _, e := range o.Endpoints {
		got[e.Address] = e.Count
	}
	if want := map[string]int{"10.244.1.1": 3, "10.244.1.2": 2}; !maps.Equal(got, want) || o.Scheduled != 4 {
		t.Errorf("%v of %d, want %v of 4", got, o.Scheduled, want)
	}
	if want := []report.Event{
		{Result: report.ResultTimedOut, Count: 1}, {Result: report.ResultOtherServer, Count: 1},
	}; !slices.Equal(o.Events, want) {
		t.Errorf("%q, want %q", o.Events, want)
	}
}
