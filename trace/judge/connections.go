// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/conntrack"
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about the kernel's connection table.
const (
	ConntrackStale   = "ConntrackStale"
	ConntrackFull    = endtoend.ConntrackFull
	ConntrackInvalid = "ConntrackInvalid"
)

var (
	_ = register(kind{
		code: ConntrackStale, severity: mismatch, scope: onNode, by: staleConnections,
		issues: []string{"kubernetes/kubernetes#125467", "kubernetes/kubernetes#139628", "kubernetes/kubernetes#48719"},
	})
	_ = register(kind{
		code:     ConntrackFull,
		severity: mismatch,
		scope:    onNode,
		by:       tableFull,
		remedy: advice(
			"raise net.netfilter.nf_conntrack_max on {node} (kube-proxy sets it: conntrack.maxPerCore), and find "+
				"who opens so many connections",
			command{line: "conntrack -L", onNode: true},
		),
		issues: []string{"kubernetes/kubernetes#71261", "kubernetes/kubernetes#97377"},
	})
	_ = register(kind{
		code:     ConntrackInvalid,
		severity: warning,
		scope:    onNode,
		by:       lostConnections,
		remedy: advice("watch which of the counters rises; for invalid packets, find out why answers take another route, "+
			"or set "+
			"kube-proxy's conntrack.tcpBeLiberal", command{line: "conntrack -S", onNode: true}),
		issues: []string{"kubernetes/kubernetes#74839", "kubernetes/kubernetes#117924", "kubernetes/kubernetes#56903"},
	})
)

// staleConnections finds connections to the frontends asked for that rules of an earlier moment decided over, and that
// no rule can mend: their packets follow the entry. kube-proxy removes those of UDP that lead to no serving endpoint
// (pkg/proxy/conntrack/cleanup.go), and none of other protocols; TCP ends by itself when its endpoint does.
var staleConnections = &detector{stage: stageAsked, asked: func(n *node, req *Request) []issue {
	if n.Connections == nil {
		return nil
	}
	var out []issue
	seen := map[frontendKey]bool{}
	n.eachFrontend(req, func(svc *corev1.Service, f *expect.Frontend) {
		if k := keyOf(*f); !seen[k] && !f.Address.IsLoopback() {
			seen[k] = true
			out = append(out, n.staleTo(svc, f)...)
		}
	})
	return out
}}

// eachFrontend calls do with every frontend that a request asks for.
func (n *node) eachFrontend(req *Request, do func(svc *corev1.Service, f *expect.Frontend)) {
	for _, svc := range n.asked(req) {
		if reason, _ := n.exp.Ignored(svc); reason != "" {
			continue
		}
		for _, f := range n.exp.Frontends(svc) {
			if req.Select == nil || req.Select(f) {
				do(svc, &f)
			}
		}
	}
}

// staleTarget is where connections to a frontend go that should not, with who has them.
type staleTarget struct {
	to         netip.AddrPort
	translated bool
	clients    []string
	entries    []report.Evidence
}

// staleTo finds the stale connections to one frontend.
func (n *node) staleTo(svc *corev1.Service, f *expect.Frontend) []issue {
	serving := sync.OnceValue(func() map[netip.AddrPort]bool { return n.serving(svc, f) }) // most have no connection
	var targets []*staleTarget
	n.Connections.To(protocolNumber(f.Protocol), netip.AddrPortFrom(f.Address, f.Port), func(e *conntrack.Entry) {
		to := netip.AddrPortFrom(e.Reply.Src, e.Reply.SrcPort)
		if serving()[to] || !misled(f, e) || n.over(e) {
			return
		}
		i := slices.IndexFunc(targets, func(w *staleTarget) bool { return w.to == to })
		if i < 0 {
			i = len(targets)
			targets = append(targets, &staleTarget{to: to, translated: e.Translated()})
		}
		w := targets[i]
		w.clients = append(w.clients, netip.AddrPortFrom(e.Original.Src, e.Original.SrcPort).String())
		if len(w.entries) < maxEvidence {
			w.entries = append(w.entries, say("conntrack: "+strings.ToLower(string(f.Protocol))+tuple(&e.Original)+
				tuple(&e.Reply))...)
		}
	})
	slices.SortFunc(targets, func(a, b *staleTarget) int { return a.to.Compare(b.to) })
	out := make([]issue, 0, len(targets))
	for _, w := range targets {
		at := netip.AddrPortFrom(f.Address, f.Port)
		is := issue{
			code:     ConntrackStale,
			subject:  expect.NameOf(svc).String() + " " + at.String() + "/" + string(f.Protocol),
			remedy:   report.Remedy{Text: "remove the entries", Commands: []report.Command{clearing(n.Name, f, w)}},
			expected: "a serving endpoint",
			actual:   w.to.String(),
			message: fmt.Sprintf(
				"%s to %s %s in the kernel's connection table to %s, which is not a serving endpoint: as long as packets come the "+
					"entry stays, whatever the rules say",
				number(len(w.clients), string(f.Protocol)+" connection"),
				at,
				verb(len(w.clients), "leads", "lead"),
				w.to,
			),
			evidence: w.entries,
		}
		is.client.Sentence = fmt.Sprintf("%s to %s from %s %s to %s, which is not a serving endpoint",
			number(len(w.clients), string(f.Protocol)+" connection"),
			expect.NameOf(svc), cut(w.clients, 4), verb(len(w.clients), "still goes", "still go"), w.to)
		if !w.translated {
			is.actual = "not translated"
			is.message = fmt.Sprintf(
				"%s to %s %s not translated: the first packet came when no rule was there, and the entry stays as long as "+
					"packets come",
				number(len(w.clients), string(f.Protocol)+" connection"),
				at,
				verb(len(w.clients), "is", "are"),
			)
			is.client.Sentence = fmt.Sprintf("%s to %s from %s %s to the Service's own address, where nothing answers",
				number(len(w.clients), string(f.Protocol)+" connection"), expect.NameOf(svc), cut(w.clients, 4),
				verb(len(w.clients), "still goes", "still go"))
		}
		out = append(out, is)
	}
	return out
}

// tuple is one direction of a connection, as conntrack -L prints it.
func tuple(t *conntrack.Tuple) string {
	return fmt.Sprintf(" src=%s dst=%s sport=%d dport=%d", t.Src, t.Dst, t.SrcPort, t.DstPort)
}

// misled tells whether packets of a connection go where they should not, given that it leads to no serving endpoint.
func misled(f *expect.Frontend, e *conntrack.Entry) bool {
	if f.Protocol == corev1.ProtocolUDP || f.Protocol == corev1.ProtocolSCTP {
		// A NodePort's address is the node's own, where somebody else may be meant.
		return e.Translated() || f.Kind != expect.NodePort
	}
	// A TCP connection that was translated had an endpoint, and ends with it. One to a cluster IP that was not never had
	// any.
	return f.Kind == expect.ClusterIP && !e.Translated() && e.State == "SYN_SENT"
}

// attempt is how many seconds may have passed since the last packet of a TCP connection that is still being tried.
const attempt = 3

// over tells whether a TCP connection that never came to be has had no packet for some seconds. Its client has given
// up, or waits for longer and longer times and gives up in the end (tcp_retransmit_timer in net/ipv4/tcp_timer.c): the
// next connection is decided by the rules of today. What a client tries without end, from the same port, has an entry
// that is renewed with each packet (tcp_timeouts in net/netfilter/nf_conntrack_proto_tcp.c).
func (n *node) over(e *conntrack.Entry) bool {
	if e.State != "SYN_SENT" {
		return false
	}
	lasts := uint64(120) // seconds: the kernel's default
	if text, ok := n.net.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_syn_sent"); ok {
		if v, err := strconv.ParseUint(text, 10, 32); err == nil {
			lasts = v
		}
	}
	return e.Timeout > 0 && uint64(e.Timeout)+attempt < lasts
}

// serving returns the endpoints that connections may lead to: every one that serves, whatever policies make of it for
// new ones.
func (n *node) serving(svc *corev1.Service, f *expect.Frontend) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	family := corev1.IPv4Protocol
	if !f.Address.Is4() {
		family = corev1.IPv6Protocol
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.Name != f.PortName || protocolNumber(p.Protocol) != protocolNumber(f.Protocol) {
			continue
		}
		for _, e := range n.exp.Endpoints(expect.NameOf(svc), p, family) {
			if e.Serving || e.Ready {
				out[e.Address] = true
			}
		}
	}
	return out
}

// clearing is the command that removes the entries.
func clearing(node string, f *expect.Frontend, w *staleTarget) report.Command {
	family := "ipv4"
	if !f.Address.Is4() {
		family = "ipv6"
	}
	return report.Command{Node: node, Line: report.ShellLine(
		"conntrack",
		"-D",
		"-f",
		family,
		"-p",
		strings.ToLower(string(f.Protocol)),
		"--orig-dst",
		f.Address.String(),
		"--orig-port-dst",
		strconv.Itoa(int(f.Port)),
		"--reply-src",
		w.to.Addr().String(),
	)}
}

// crowded is from which share on the connection table counts as full: from 95% on the kernel drops entries that are not
// assured.
const crowded = 0.95

// tableFull finds a connection table that has no room for new ones (nf_conntrack_alloc in
// net/netfilter/nf_conntrack_core.c).
var tableFull = &detector{stage: stageConnections, node: func(n *node) []issue {
	used, most, ok := n.net.ConnectionTable()
	if !ok || used < crowded*most {
		return nil
	}
	is := issue{
		code:     ConntrackFull,
		subject:  "connection table",
		severity: warning,
		expected: fmt.Sprintf("less than %.0f entries", most),
		actual:   fmt.Sprintf("%.0f", used),
		message:  "the kernel's connection table is almost full: some new connections are dropped",
		evidence: say(
			fmt.Sprintf("net/netfilter/nf_conntrack_count=%.0f", used),
			fmt.Sprintf("net/netfilter/nf_conntrack_max=%.0f", most),
		),
	}
	if used >= most {
		is.severity, is.message = mismatch, "the kernel's connection table is full: new connections are dropped, whatever "+
			"the rules say"
	}
	return []issue{is}
}}

// lostConnections finds connections that connection tracking lost while the node was probed: their first packet was
// dropped, for want of room or for another that came at the same moment. Packets that are invalid are told, and are no
// fault by themselves: those that come late are.
var lostConnections = &detector{stage: stageConnections, node: func(n *node) []issue {
	t := n.Tracked
	if t == nil || t.InsertFailed+t.Drop+t.Invalid == 0 {
		return nil
	}
	is := issue{
		code:     ConntrackInvalid,
		subject:  "connection tracking",
		expected: "no connection lost",
		actual: fmt.Sprintf("%d for lack of room, %d that came at the same moment, %d invalid packets in %.1f s",
			t.Drop, t.InsertFailed, t.Invalid, t.Seconds),
		message: "while the node was probed, its connection tracking dropped the first packets of connections, of whatever " +
			"client: clients wait, and send them again",
	}
	if t.InsertFailed+t.Drop == 0 {
		is.severity = note
		is.message = "while the node was probed, packets came that belong to no connection; kube-proxy drops those that it " +
			"can: " +
			"a few are what is left of old connections, many mean that answers take another route"
	}
	return []issue{is}
}}

// asked returns the Services that a request is about.
func (n *node) asked(req *Request) []*corev1.Service {
	if req.Services == nil {
		return n.cluster.Services
	}
	var out []*corev1.Service
	for _, name := range req.Services {
		if svc := n.cluster.services[name]; svc != nil {
			out = append(out, svc)
		}
	}
	return out
}
