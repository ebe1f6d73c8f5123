// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// PacketDropped says that the kernel of the node discards packets of real connections, and says so itself.
const PacketDropped = "PacketDropped"

var _ = register(kind{
	code: PacketDropped, severity: mismatch, scope: onPath, by: connections, effect: fails,
	remedy: advice(
		"look for what the kernel names: a rule that the evidence cites, or the routes, neighbours and settings " +
			"of the interface",
	),
})

// The kernel's reasons for a packet to a port at which nothing listens, and for a frame with the link-layer address of
// another host. A bridge that does not know where to send a frame sends a copy out of each port, and all hosts but one
// discard theirs for the latter: it says something only of a packet of which nothing else is known.
const (
	reasonNoSocket  = "NO_SOCKET"
	reasonOtherHost = "OTHERHOST"
)

// reasons are those of the kernel that a person can do something about (enum skb_drop_reason in
// include/net/dropreason-core.h), in words.
var reasons = map[string]struct {
	words  string
	remedy remedy
}{
	reasonNoSocket: {"nothing listens at that port", remedy{}},
	"NETFILTER_DROP": {
		"a rule of netfilter dropped it", advice("find the rule that drops it (nft list ruleset, iptables-save, " +
			"iptables-legacy-save): those of another family, of a bridge or of a device are among them"),
	},
	"IP_RPFILTER": {
		"the reverse path filter: the route back to its source leaves by another interface",
		advice(
			"let requests and answers use the same interface (a route or rule on {node}: ip rule, ip route); or set the " +
				"filter to loose mode: sysctl -w net.ipv4.conf.IFACE.rp_filter=2 (the larger of all and IFACE counts)",
		),
	},
	"IP_INNOROUTES":  {"the node has no route for it", lookRoutes},
	"IP_OUTNOROUTES": {"the node has no route for it", lookRoutes},
	"IP_INADDRERRORS": {
		"its address is not one to forward to, or forwarding is off", advice("look at forwarding (sysctl " +
			"net.ipv4.ip_forward) and at the route of its address (ip route get ADDRESS)"),
	},
	"IPV6_NDISC_FAILED": {"no neighbour answers for its next hop", lookNeighbours},
	"NEIGH_FAILED":      {"no neighbour answers for its next hop", lookNeighbours},
	"NEIGH_QUEUEFULL":   {"its next hop does not answer, and too many packets wait for it", lookNeighbours},
	"NEIGH_DEAD":        {"the entry of its next hop is gone", lookNeighbours},
	"NEIGH_CREATEFAIL":  {"no entry could be made for its next hop", lookNeighbours},
	"DEV_READY":         {"the device was not up", lookDevice},
	"FULL_RING":         {"the device's queue was full", lookDevice},
	"NOMEM":             {"the kernel had no memory for it", remedy{}},
	"TC_INGRESS":        {"a tc program or filter dropped it", lookPrograms},
	"TC_EGRESS":         {"a tc program or filter dropped it", lookPrograms},
	"XDP":               {"an XDP program dropped it", lookPrograms},
	"BPF_CGROUP_EGRESS": {"a BPF program of a cgroup dropped it", lookPrograms},
	"SOCKET_FILTER":     {"the filter of the socket dropped it", remedy{}},
	"SOCKET_RCVBUFF":    {"the receive buffer of the socket is full: its process does not read", remedy{}},
	"TCP_LISTEN_OVERFLOW": {
		"the queue of connections that wait to be accepted is full: its process does not accept", remedy{},
	},
	"TCP_LISTENOVERFLOW": {
		"the queue of connections that wait to be accepted is full: its process does not accept", remedy{},
	},
	"PKT_TOO_BIG": {
		"it is larger than the MTU of its path",
		advice("compare the MTU of the pods with that of the network between the nodes"),
	},
	reasonOtherHost: {"its link-layer address is that of another host", lookNeighbours},
}

// functions are those of the kernel in which a packet without a reason of its own is discarded (NOT_SPECIFIED), and the
// reason that is meant.
var functions = map[string]string{
	"ip_error": "IP_INNOROUTES", "ip6_pkt_drop": "IP_INNOROUTES", "neigh_invalidate": "NEIGH_FAILED",
}

// reasonOf is the reason of a lost packet that a person can look up in reasons.
func reasonOf(l *report.Lost) string {
	if r := functions[l.Function]; r != "" && (l.Reason == "" || l.Reason == "NOT_SPECIFIED") {
		return r
	}
	return l.Reason
}

var (
	lookRoutes = advice("look at the routes and routing rules on {node}: ip route get ADDRESS, ip rule, ip route show " +
		"table all type blackhole")
	lookNeighbours = advice("look at the neighbours on {node}, and at what the host of that address says of itself: " +
		"ip neigh")
	lookDevice   = advice("look at the device: ip -s link")
	lookPrograms = advice("list the programs on {node}: bpftool net, tc filter show dev IFACE ingress; and find who " +
		"loaded them")
)

// The packets of a connection that can be lost.
const (
	requestPacket = "request"
	answerPacket  = "answer"
)

// losses says of the traced connections that failed where their packets were lost, as the kernel says it: by its own
// trace, the rule that dropped them or the hook that they did not get through; by its tracepoint for packets that it
// discards, the reason. What left the node by all hooks is not lost here.
func (p *pathCase) losses() []report.Lost {
	probes := p.traced()
	if probes == nil {
		return nil
	}
	var out []report.Lost
	add := func(l report.Lost) {
		l.Count = 1
		for i := range out {
			same := out[i]
			if same.Count = 1; same == l {
				out[i].Count++
				return
			}
		}
		if len(out) < maxEvidence {
			out = append(out, l)
		}
	}
	for i := range probes.Traces {
		t := &probes.Traces[i]
		if end := endOf(&t.Probe); end == snapshot.ProbeConnected || end == snapshot.ProbeAnswered ||
			end == snapshot.ProbeFailed || end == snapshot.ProbeSent && len(t.Drops) == 0 {
			continue
		}
		endpoint := ""
		if to := t.SentTo(probes.To); to.IsValid() && to != probes.To {
			endpoint = to.String()
		}
		for _, l := range lostOf(t) {
			// A refusal came back: nothing but what the kernel names has stopped a packet.
			if endOf(&t.Probe) == snapshot.ProbeRefused && l.Where == (report.RuleRef{}) &&
				(l.Reason == "" || l.Reason == reasonNoSocket) {
				continue
			}
			l.Endpoint = endpoint
			add(l)
		}
	}
	return out
}

// lostOf is what the kernel says of one connection.
func lostOf(t *snapshot.Trace) []report.Lost {
	var out []report.Lost
	for _, way := range []struct {
		packet string
		steps  []snapshot.TraceStep
		hooks  []snapshot.TraceHook
	}{{requestPacket, t.Steps, t.Hooks}, {answerPacket, t.Answer, t.AnswerHooks}} {
		var lost []report.Lost
		for _, s := range way.steps {
			if s.Verdict == "drop" {
				lost = append(lost, report.Lost{Packet: way.packet, Where: traceRef(&s)})
				break
			}
		}
		for _, d := range t.Drops {
			if d.Answer != (way.packet == answerPacket) || len(lost) > 0 && d.Reason == "NETFILTER_DROP" {
				continue
			}
			l := report.Lost{
				Packet: way.packet, Reason: d.Reason, Function: d.Function, Interface: d.Interface, InPod: d.InPod,
				To: d.To.String(),
			}
			if !slices.ContainsFunc(lost, func(o report.Lost) bool {
				return o.Reason == l.Reason && o.Function == l.Function && o.InPod == l.InPod
			}) {
				lost = append(lost, l)
			}
		}
		arrived := way.packet == requestPacket && len(t.AnswerHooks) > 0
		if arrived || slices.ContainsFunc(lost, func(l report.Lost) bool { return !ofCopy(&l) }) {
			lost = slices.DeleteFunc(lost, func(l report.Lost) bool { return ofCopy(&l) })
		}
		if len(lost) == 0 {
			if l, ok := lostBetween(way.packet, way.hooks); ok {
				lost = append(lost, l)
			}
		}
		for k := range lost {
			lost[k].Hook = lastHook(way.hooks)
		}
		out = append(out, lost...)
	}
	return out
}

// ofCopy tells whether what was lost may be a copy of the packet that was meant for nobody.
func ofCopy(l *report.Lost) bool { return l.Reason == reasonOtherHost }

// after are the hooks that a packet comes to next. Behind input and postrouting it is out of netfilter's sight.
var after = map[string]string{"prerouting": "input or forward", "forward": "postrouting", "output": "postrouting"}

// lostBetween tells from the hooks that a packet came to in which it stayed, or that it did not come to the next one.
func lostBetween(packet string, hooks []snapshot.TraceHook) (l report.Lost, lost bool) {
	if len(hooks) == 0 {
		return l, false
	}
	last := hooks[len(hooks)-1]
	l = report.Lost{Packet: packet, Next: after[last.Hook]}
	if !last.Passed {
		l.Next = last.Hook
	}
	return l, l.Next != ""
}

// lastHook is the last one that a packet came to the end of; "" for none.
func lastHook(hooks []snapshot.TraceHook) string {
	for _, hook := range slices.Backward(hooks) {
		if hook.Passed {
			return hook.Hook
		}
	}
	return ""
}

// traceRef names a rule of the kernel's trace.
func traceRef(s *snapshot.TraceStep) report.RuleRef {
	r := report.RuleRef{Table: s.Table, Backend: report.BackendNative, Chain: s.Chain, Rule: s.Rule}
	switch {
	case s.Legacy:
		r.Backend = report.BackendLegacy
	default:
		r.Table = s.Family + " " + s.Table
	}
	if s.Policy {
		r.Rule = 0
	}
	return r
}

// lostText says in words where a packet was lost.
func lostText(l *report.Lost) string {
	out := "the " + l.Packet
	if to, err := netip.ParseAddrPort(l.To); err == nil {
		out += " to " + to.String()
	}
	switch {
	case l.Where != (report.RuleRef{}):
		out += " was dropped by " + l.Where.String()
	case l.Reason != "":
		out += " was discarded: " + l.Reason
		if why, ok := reasons[reasonOf(l)]; ok {
			out += " (" + why.words + ")"
		}
	case l.Function != "":
		out += " was discarded"
	case l.Next == l.Hook || l.Hook == "":
		out += fmt.Sprintf(" came into the hook %s, and not to its end", l.Next)
	default:
		out += fmt.Sprintf(" passed the hook %s, and did not come through %s", l.Hook, l.Next)
	}
	if l.Function != "" {
		out += " in " + l.Function
	}
	switch {
	case l.InPod:
		out += ", in another network namespace of this kernel, such as a pod's"
	case l.Interface != "":
		out += ", interface " + l.Interface
	}
	return out
}
