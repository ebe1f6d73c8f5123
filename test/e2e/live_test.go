// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// observed returns what connections from an origin to the cluster IPs showed on a node, of each path.
func observed(r *report.Report, origin string) (out []*report.Path) {
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			if p := &r.Nodes[i].Paths[k]; p.Frontend.Kind == "ClusterIP" && p.Origin.Kind == origin {
				out = append(out, p)
			}
		}
	}
	return out
}

// confirmed says what the kernel's own trace does not confirm of a path's walk: it meets each rule that every packet
// has to meet.
func confirmed(p *report.Path) string {
	o := p.Observed
	if o.Traced < replicas || o.TraceError+o.LegacyError != "" {
		return fmt.Sprintf("%d connections were traced: %s", o.Traced, o.TraceError+o.LegacyError)
	}
	certain, ends := 0, 0
	for _, s := range p.Steps {
		switch {
		case s.Kernel == nil:
			if s.Rule > 0 {
				return fmt.Sprintf("nothing is said of %s %s rule %d", s.Table, s.Chain, s.Rule)
			}
		case s.Share == 1 && *s.Kernel != o.Traced:
			return fmt.Sprintf("%d of %d met %s %s rule %d: %s", *s.Kernel, o.Traced, s.Table, s.Chain, s.Rule, s.Text)
		case s.Share == 1:
			certain++
		case strings.HasPrefix(s.Verdict, "DNAT to "):
			ends += *s.Kernel
		}
	}
	if certain < 3 || ends != o.Traced {
		return fmt.Sprintf("%d rules are confirmed, and %d of %d ends", certain, ends, o.Traced)
	}
	return ""
}

// Real connections reach the endpoints that the rules name, from nodes of every mode and from a pod.
func TestLive(t *testing.T) {
	const probes = 30
	type origin struct {
		service, kind string
		paths         int // TCP and UDP, IPv4 and IPv6
		args          []string
	}
	fromPod := []string{"--from", "pod/client"}
	origins := []origin{{app, "pod", 1, fromPod}, {app + "-udp", "pod", 1, fromPod}, {app + "-dual", "pod", 4, fromPod}}
	for _, n := range nodes {
		fromNode := []string{"--node", n, "--from", "node"}
		origins = append(origins, origin{app, "node", 1, fromNode}, origin{app + "-udp", "node", 1, fromNode},
			origin{app + "-dual", "node", 4, fromNode})
	}
	for _, o := range origins {
		wait(t, "all is right", func() (bool, error) {
			r := svcproxy(t, append([]string{"trace", o.service}, o.args...)...)
			return r.code == 0, fmt.Errorf("%s", r)
		})
		r := svcproxy(t, append([]string{"trace", o.service, "--live", "--probes", fmt.Sprint(probes), "-o", "json"},
			o.args...)...)
		paths := observed(&r.report, o.kind)
		if r.code != 0 || len(paths) != o.paths {
			t.Fatalf("%s %v: %d paths\n%s", o.service, o.args, len(paths), r)
		}
		for _, p := range paths {
			got, name := p.Observed, fmt.Sprintf("%s %v: %s/%s", o.service, o.args, p.Frontend.Address, p.Frontend.Protocol)
			if got == nil || got.Probes != probes || got.Connected != probes || got.RTT <= 0 || got.Error != "" {
				t.Fatalf("%s: %+v", name, got)
			}
			sum := 0
			for _, e := range got.Endpoints {
				sum += e.Count
			}
			if sum != probes || len(got.Endpoints) != replicas {
				t.Errorf("%s: %+v", name, got.Endpoints)
			}
			if problem := confirmed(p); problem != "" {
				t.Errorf("%s: %s", name, problem)
			}
		}
	}
	noHelperPods(t)
}

// Where the path breaks behind the rules, connections show it.
func TestLiveFaults(t *testing.T) {
	node := nodes[0]
	const drops = "the other node drops it"
	elsewhere := judge.EndpointTimeout
	if os.Getenv("E2E_CLUSTER") != "" { // its nodes have one kernel, which says what it discards in any of them
		elsewhere = judge.PacketDropped
	}
	for _, tt := range []struct{ name, service, code string }{
		{"nothing listens", app + "-deaf", judge.EndpointRefused},
		{drops, app, elsewhere},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wait(t, "the rules are right", func() (bool, error) {
				r := svcproxy(t, "trace", tt.service, "--node", node)
				return r.code == 0, fmt.Errorf("%s", r)
			})
			if tt.name == drops {
				at := siteOf(t, nodes[1])
				rule := []string{"FORWARD", "-p", "tcp", "-d", endpointOf(t) + "/32", "-j", "DROP"}
				at.run(append([]string{at.program, "-t", "filter", "-I"}, rule...)...)
				defer at.run(append([]string{at.program, "-t", "filter", "-D"}, rule...)...)
			}
			r := svcproxy(t, "trace", tt.service, "--node", node, "--from", "node", "--live", "-o", "json")
			if r.code != 1 || !slices.Equal(codes(&r.report), []string{tt.code}) {
				t.Errorf("%v, want %s\n%s", codes(&r.report), tt.code, r)
			}
		})
	}
}
