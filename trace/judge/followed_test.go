// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What the kernels of two nodes saw of connections is added to the segments that the walk has judged: where they agree
// it is evidence, where they differ both are said, and what may not have been seen proves nothing.
func TestWhatTheKernelsSaw(t *testing.T) {
	const (
		right, wrong, unknown = report.SegmentRight, report.SegmentWrong, report.SegmentUnknown
		a, b                  = "a", "b" // the client's node, the endpoint's
	)
	at, frontend := netip.MustParseAddrPort("10.244.2.9:8080"), netip.MustParseAddrPort("10.96.0.10:80")
	local := netip.MustParseAddrPort("10.244.1.5:40000")
	sight := func(where, how string, answer bool, more ...string) (string, snapshot.Sight) {
		node, pod, _ := strings.Cut(where, " ")
		s := snapshot.Sight{Pod: pod, How: how, Interface: "eth0", Answer: answer, Count: 1}
		for _, m := range more {
			switch m {
			case "reset":
				s.Reset = true
			default:
				s.Reason = m
			}
		}
		return node, s
	}
	type seen struct {
		where, how string
		answer     bool
		more       string
	}
	left := seen{a, snapshot.SightOut, false, ""}
	came := seen{b, snapshot.SightIn, false, ""}
	entered := seen{b + " shop/web", snapshot.SightIn, false, ""}
	answered := seen{b + " shop/web", snapshot.SightOut, true, ""}
	for _, tt := range []struct {
		name    string
		walk    []report.SegmentVerdict // network, …; those behind a wrong one are left out
		result  string
		sights  []seen
		partial bool // of node b
		gone    bool // the pod was not found
		source  string
		data    string
		want    []report.SegmentVerdict
		code    string // of the last segment
		message string // begins so
		passed  int    // of the first segment
		found   string // codes beside the segments
	}{
		{
			name: "all pass", walk: []report.SegmentVerdict{right, right, right, right}, result: snapshot.ProbeConnected,
			want: []report.SegmentVerdict{right, right, right, right}, passed: 1,
		},
		{
			name: "the walk says that they are lost, and they pass", walk: []report.SegmentVerdict{right, wrong},
			result: snapshot.ProbeConnected, want: []report.SegmentVerdict{right, wrong}, code: endtoend.EndpointNodeDrops,
			passed: 1, found: WalkDisagrees,
		},
		{
			name: "both say that the node drops", walk: []report.SegmentVerdict{right, wrong}, result: snapshot.ProbeTimeout,
			sights: []seen{left, came, {b, snapshot.SightDropped, false, "NETFILTER_DROP"}},
			want:   []report.SegmentVerdict{right, wrong}, code: endtoend.EndpointNodeDrops, passed: 1,
		},
		{
			name: "the kernel alone: the node drops", walk: []report.SegmentVerdict{right, right, right, right},
			result: snapshot.ProbeTimeout, sights: []seen{left, came, {b, snapshot.SightDropped, false, "IP_RPFILTER"}},
			want: []report.SegmentVerdict{right, wrong}, code: PacketLost,
			message: "the request was discarded: IP_RPFILTER (the reverse path filter", passed: 1, found: WalkDisagrees,
		},
		{
			name: "the walk does not know, and the pod drops", walk: []report.SegmentVerdict{right, unknown, unknown, unknown},
			result: snapshot.ProbeTimeout, sights: []seen{left, came, entered, {
				b + " shop/web", snapshot.SightDropped, false, "NETFILTER_DROP",
			}},
			want: []report.SegmentVerdict{right, unknown, wrong}, code: PacketLost, message: "the request was discarded",
			passed: 1,
		},
		{
			name: "nothing comes to the node", walk: []report.SegmentVerdict{unknown, right, right, right},
			result: snapshot.ProbeTimeout, sights: []seen{left}, want: []report.SegmentVerdict{wrong}, code: PacketLost,
			message: "the request left a going out by eth0, and did not come to b",
		},
		{
			name: "nothing comes to the node, by reports of which some were lost",
			walk: []report.SegmentVerdict{unknown, right, right, right}, result: snapshot.ProbeTimeout, sights: []seen{left},
			partial: true, want: []report.SegmentVerdict{unknown, right, right, right},
		},
		{
			name: "nothing comes to the node, of an address that nobody looked for",
			walk: []report.SegmentVerdict{right, right, right, right}, result: snapshot.ProbeTimeout, sights: []seen{left},
			source: "192.0.2.9:40000", want: []report.SegmentVerdict{right, right, right, right},
		},
		{
			name: "nothing comes to the pod", walk: []report.SegmentVerdict{right, right, right, right},
			result: snapshot.ProbeTimeout, sights: []seen{left, came}, want: []report.SegmentVerdict{right, wrong},
			code:    PacketLost,
			message: "the request was last seen coming in by eth0, and did not come to the pod", passed: 1,
			found: WalkDisagrees,
		},
		{
			name:   "nothing comes to the pod, and a program may hand packets over",
			walk:   []report.SegmentVerdict{right, unknown, unknown, unknown},
			result: snapshot.ProbeTimeout, sights: []seen{left, came},
			want: []report.SegmentVerdict{right, unknown, unknown, unknown}, passed: 1,
		},
		{
			name: "the pod was not found", walk: []report.SegmentVerdict{right, right, unknown, unknown},
			result: snapshot.ProbeTimeout, sights: []seen{left, came}, gone: true,
			want: []report.SegmentVerdict{right, right, unknown, unknown},
		},
		{
			name: "the pod does not answer", walk: []report.SegmentVerdict{right, right, right, right},
			result: snapshot.ProbeTimeout, sights: []seen{left, came, entered},
			want: []report.SegmentVerdict{right, right, wrong}, code: PacketLost,
			message: "the request came here coming in by eth0, and no answer was sent", passed: 1, found: WalkDisagrees,
		},
		{
			name: "the pod refuses", walk: []report.SegmentVerdict{right, right, wrong}, result: snapshot.ProbeRefused,
			sights: []seen{left, came, entered, {b + " shop/web", snapshot.SightOut, true, "reset"}},
			want:   []report.SegmentVerdict{right, right, wrong}, code: endtoend.EndpointNodeDrops, passed: 1,
		},
		{
			name: "the answer is lost", walk: []report.SegmentVerdict{right, right, right, right},
			result: snapshot.ProbeTimeout, sights: []seen{left, came, entered, answered, {b, snapshot.SightOut, true, ""}},
			want: []report.SegmentVerdict{right, right, right, wrong}, code: PacketLost,
			message: "the answer was last seen going out by eth0", passed: 1, found: WalkDisagrees,
		},
		{
			name: "the walk has stopped before the segment that loses them", walk: []report.SegmentVerdict{wrong},
			result: snapshot.ProbeTimeout, sights: []seen{left, came, {b, snapshot.SightDropped, false, "NETFILTER_DROP"}},
			want: []report.SegmentVerdict{unknown, wrong}, code: PacketLost, message: "the request was discarded", passed: 1,
			found: WalkDisagrees,
		},
		{
			name: "accepted, and closed without an answer", walk: []report.SegmentVerdict{right, right, right, right},
			result: snapshot.ProbeConnected, data: snapshot.ProbeClosed,
			sights: []seen{left, came, entered, answered, {b + " shop/web", snapshot.SightDropped, false, "NO_SOCKET"}},
			want:   []report.SegmentVerdict{right, right, right, right},
		},
		{
			name: "a datagram that nobody has to answer", walk: []report.SegmentVerdict{right, right, right, right},
			result: snapshot.ProbeSent, sights: []seen{left, came, entered},
			want: []report.SegmentVerdict{right, right, right, right}, passed: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := snapshot.Probe{Result: tt.result, Local: local, Endpoint: at, Data: tt.data}
			if tt.source != "" {
				x.Source = netip.MustParseAddrPort(tt.source)
			}
			pods := map[string]string{"shop/web": ""}
			if tt.gone {
				pods["shop/web"] = "no process"
			}
			run := &Followed{
				Clients: []netip.Addr{local.Addr()},
				Nodes:   map[string]*snapshot.Followed{a: {}, b: {Partial: tt.partial, Pods: pods}},
			}
			run.Choose(&snapshot.Probing{Targets: []snapshot.Probes{{
				ProbeTarget: snapshot.ProbeTarget{Protocol: "TCP", To: frontend, From: local.Addr(), Probes: 1, Trace: true},
				List:        []snapshot.Probe{x},
			}}})
			for _, s := range tt.sights {
				node, one := sight(s.where, s.how, s.answer, strings.Fields(s.more)...)
				run.Nodes[node].Sights = append(run.Nodes[node].Sights, one)
			}
			p := &report.Path{
				Frontend: report.Frontend{Address: "10.96.0.10", Port: 80, Protocol: "TCP", Kind: "ClusterIP"},
				Origin:   report.Origin{Kind: "pod", Address: local.Addr().String(), Pod: "shop/client"},
			}
			for i, v := range tt.walk {
				s := report.Segment{Segment: behindNode[i], Endpoint: at.String(), Verdict: v, Message: "the walk", Place: "here"}
				if v == wrong {
					s.Code = endtoend.EndpointNodeDrops
				}
				p.Segments = append(p.Segments, s)
			}
			tour := &tour{ends: &Ends{Client: a, Pod: "shop/client", Followed: []*Followed{run}}}
			found := tour.observeBehind(p, []endtoend.Endpoint{{At: at, Pod: "shop/web", Node: b}})
			var verdicts []report.SegmentVerdict
			for i := range p.Segments {
				verdicts = append(verdicts, p.Segments[i].Verdict)
			}
			last := &p.Segments[len(p.Segments)-1]
			if !slices.Equal(verdicts, tt.want) || last.Code != tt.code || tt.message != "" && !strings.HasPrefix(last.Message,
				tt.message) {
				t.Errorf("%v: %+v", verdicts, last)
			}
			if last.Lost != (last.Verdict == wrong) {
				t.Errorf("lost: %+v", last)
			}
			if s := p.Segments[0].Seen; tt.passed > 0 && (s == nil || s.Passed != tt.passed || s.Connections != 1) {
				t.Errorf("%+v", s)
			}
			var codes []string
			for i := range found {
				codes = append(codes, found[i].code)
			}
			if got := strings.Join(codes, " "); got != tt.found {
				t.Errorf("found %q, want %q", got, tt.found)
			}
		})
	}
}
