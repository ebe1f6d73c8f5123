// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// fromOutside judges the load balancer of a captured node from end to end, from outside; answer is what the
// health-check port answered, nil where it was not asked.
func (w *capturedNode) fromOutside(answer func(*snapshot.HealthAnswer)) report.NodeReport {
	w.t.Helper()
	node := w.node()
	ends := &Ends{
		Client: "node1", Service: types.NamespacedName{Namespace: "shop", Name: "lb-etp-local"},
		Visited: map[string]*Visited{"node1": {State: loadCaptured(w.t, node), Files: node}},
	}
	index := NewCluster(w.cluster)
	if answer != nil {
		ends.Health = &snapshot.HealthAnswers{}
		for _, at := range HealthQuestions(index, ends) {
			a := snapshot.HealthAnswer{At: at, KubeProxy: true, Service: "shop/lb-etp-local"}
			answer(&a)
			ends.Health.List = append(ends.Health.List, a)
		}
	}
	r := Node(index, ends.Visited["node1"].State, Request{
		Services: []types.NamespacedName{ends.Service}, Matching: true,
		From: &From{Kind: expect.FromExternal, Address: netip.MustParseAddr("203.0.113.9")},
	})
	EndToEnd(index, ends, &r)
	return r
}

// What a load balancer is answered at the health-check port is a segment of the paths to its address: who listens, what
// drops the packets, and the code against the endpoints that the API has on the node.
func TestHealthCheckSegments(t *testing.T) {
	wrong, right, unknown := report.SegmentWrong, report.SegmentRight, report.SegmentUnknown
	no := false
	for _, c := range []struct {
		name    string
		do      func(w *capturedNode)
		answer  func(a *snapshot.HealthAnswer)
		verdict report.SegmentVerdict
		code    string
		finding report.Severity // of the path; "": none
		has     string
	}{
		{
			name: "not asked", verdict: right,
			has: "kube-proxy listens at 10.77.0.11:31000; expected: 200, as 2 ready endpoints are on this node; the answer",
		},
		{
			name: "as it should be", verdict: right, has: "10.77.0.11:31000 answers 200 (shop/lb-etp-local, 1 local endpoint)",
			answer: func(a *snapshot.HealthAnswer) { a.Code, a.Local = 200, 1 },
		},
		{
			name: "no endpoint, where there is one", verdict: wrong, code: HealthCheckAnswer, finding: report.Warn,
			has: "the load balancer sends nothing to this node", answer: func(a *snapshot.HealthAnswer) { a.Code = 503 },
		},
		{
			name: "kube-proxy calls itself unhealthy", verdict: wrong, code: HealthCheckAnswer, finding: report.Warn,
			has:    "kube-proxy calls itself unhealthy",
			answer: func(a *snapshot.HealthAnswer) { a.Code, a.Local, a.Healthy = 503, 1, &no },
		},
		{
			name: "an endpoint, where there is none", verdict: wrong, code: HealthCheckAnswer, finding: report.Error,
			has: "the load balancer sends here what this node drops", do: withoutLocal,
			answer: func(a *snapshot.HealthAnswer) { a.Code, a.Local = 200, 1 },
		},
		{
			name: "trap: no endpoint, and it says so", verdict: right, has: "503, as no ready endpoint is on this node",
			do: withoutLocal, answer: func(a *snapshot.HealthAnswer) { a.Code = 503 },
		},
		{
			name: "another Service", verdict: wrong, code: HealthCheckAnswer, finding: report.Error,
			has:    "it answers for another Service than shop/lb-etp-local",
			answer: func(a *snapshot.HealthAnswer) { a.Code, a.Local, a.Service = 200, 1, "shop/other" },
		},
		{
			name: "another program answers", verdict: unknown, has: "and not in the form of kube-proxy",
			answer: func(a *snapshot.HealthAnswer) { a.Code, a.KubeProxy = 200, false },
		},
		{
			name: "no answer", verdict: unknown, has: "does not answer the node itself (no answer in time)",
			answer: func(a *snapshot.HealthAnswer) { a.KubeProxy, a.Error = false, "no answer in time" },
		},
		{
			name: "nothing listens", verdict: wrong, code: HealthCheckNotServed, has: "nothing listens at port 31000",
			do: func(w *capturedNode) { w.drop("listen.txt", ":31000") },
		},
		{
			name: "a firewall drops", verdict: wrong, code: HealthCheckBlocked, has: "does not get to kube-proxy",
			do: func(w *capturedNode) { w.first(v4, "filter", "INPUT", "-p tcp -m tcp --dport 31000 -j DROP") },
		},
		{
			name: "answers are dropped", verdict: wrong, code: HealthCheckBlocked, has: "does not leave the node",
			do: func(w *capturedNode) { w.first(v4, "filter", "OUTPUT", "-p tcp -m tcp --sport 31000 -j DROP") },
		},
		{
			name: "it listens at loopback", verdict: wrong, code: HealthCheckNotServed,
			has: "kube-proxy listens at 127.0.0.1:31000 alone, and load balancers ask 10.77.0.11:31000",
			do:  func(w *capturedNode) { w.replace("listen.txt", "0.0.0.0:31000", "127.0.0.1:31000", ":31000") },
		},
		{
			name: "answers behind the first one are dropped", verdict: wrong, code: HealthCheckBlocked,
			has: "does not leave the node",
			do: func(w *capturedNode) {
				w.first(v4, "filter", "OUTPUT", "-p tcp -m tcp --sport 31000 ! --tcp-flags SYN SYN -j DROP")
			},
		},
		{
			name: "only what begins a connection is let in", verdict: wrong, code: HealthCheckBlocked,
			has: "does not get to kube-proxy",
			do: func(w *capturedNode) {
				w.first(v4, "filter", "INPUT", "-p tcp -m tcp --dport 31000 -m conntrack ! --ctstate NEW -j DROP")
			},
		},
		{
			name: "kube-proxy is stopped", verdict: wrong, code: HealthCheckNotServed,
			has: "which listens at port 31000, is stopped",
			do: func(w *capturedNode) {
				pid := regexp.MustCompile(`:31000 .*pid=(\d+)`).FindSubmatch(w.files["listen.txt"])
				w.files[snapshot.StoppedFile] = []byte(string(pid[1]) + " T kube-proxy\n")
			},
		},
		{
			name: "a rule drops some packets", verdict: unknown, has: "it is not known whether packets arrive: it depends on",
			do: func(w *capturedNode) {
				w.first(v4, "filter", "INPUT", "-p tcp -m tcp --dport 31000 -m limit --limit 1/sec -j DROP")
			},
		},
		{
			name: "no route to outsiders", verdict: unknown, has: "the node has no route to",
			do: func(w *capturedNode) {
				w.files["ip-route.json"] = bytes.Replace(w.files["ip-route.json"], []byte(`"default"`), []byte(`"10.244.0.0/16"`), 1)
			},
		},
		{
			name: "trap: sockets were not collected", verdict: unknown, has: "who listens there was not read",
			do: func(w *capturedNode) { delete(w.files, "listen.txt") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			if c.do != nil {
				c.do(w)
			}
			r := w.fromOutside(c.answer)
			found := 0
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Frontend.Kind != string(expect.LoadBalancerIP) {
					if len(p.Segments) > 0 && p.Segments[0].Segment == report.SegmentHealthCheck {
						t.Errorf("%+v has a health check", p.Frontend)
					}
					continue
				}
				found++
				s := p.Segments[0]
				if s.Segment != report.SegmentHealthCheck || s.Verdict != c.verdict || s.Code != c.code || s.Lost ||
					!strings.Contains(s.Message, c.has) {
					t.Errorf("%+v", s)
				}
				var of report.Severity
				for _, f := range p.Findings {
					if f.Code == HealthCheckAnswer {
						of = f.Severity
					}
					if f.Code == HealthCheckNotServed || f.Code == HealthCheckBlocked {
						t.Errorf("the node's finding is said once more: %+v", f)
					}
				}
				if of != c.finding {
					t.Errorf("found %q, want %q", of, c.finding)
				}
				if p.Segments[1].Segment != report.SegmentEntryNode {
					t.Errorf("%+v", p.Segments[1])
				}
			}
			if found == 0 {
				t.Error("the Service has no load balancer's address")
			}
		})
	}
}

// withoutLocal takes the Service's endpoints on the node away, in the API.
func withoutLocal(w *capturedNode) {
	other := "node2"
	for _, s := range w.cluster.EndpointSlices {
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; s.Labels["kubernetes.io/service-name"] == "lb-etp-local" && *e.NodeName == "node1" {
				e.NodeName = &other
			}
		}
	}
}
