// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/conntrack"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// readConnections reads the kernel's table of connections, where it was collected.
func (n *node) readConnections() error {
	data, err := n.file("conntrack.txt")
	if err != nil || data == nil {
		return err
	}
	list, err := conntrack.Parse(data)
	if err != nil {
		return fmt.Errorf("node %s: conntrack.txt: %w", n.name, err)
	}
	n.connections = conntrack.NewTable(list)
	return nil
}

// stale finds connections to the frontends asked for that rules of an earlier moment decided over, and that no rule can mend: their
// packets follow the entry. kube-proxy removes those of UDP that lead to no serving endpoint (pkg/proxy/conntrack/cleanup.go), and none
// of other protocols; TCP ends by itself when its endpoint does.
func (n *node) stale(req *Request) []report.Finding {
	if n.connections == nil {
		return nil
	}
	var out []report.Finding
	seen := map[frontendKey]bool{}
	n.eachFrontend(req, func(svc *corev1.Service, f *expect.Frontend) {
		if k := keyOf(*f); !seen[k] && !f.Address.IsLoopback() {
			seen[k] = true
			out = append(out, n.staleTo(svc, f)...)
		}
	})
	return out
}

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

// wrongWay is where connections to a frontend go that should not, with who has them.
type wrongWay struct {
	to         netip.AddrPort
	translated bool
	clients    []string
}

// staleTo finds the stale connections to one frontend.
func (n *node) staleTo(svc *corev1.Service, f *expect.Frontend) []report.Finding {
	serving := n.serving(svc, f)
	var ways []*wrongWay
	n.connections.To(protocolNumber(f.Protocol), netip.AddrPortFrom(f.Address, f.Port), func(e *conntrack.Entry) {
		to := netip.AddrPortFrom(e.Reply.Src, e.Reply.SrcPort)
		if serving[to] || !misled(f, e) {
			return
		}
		i := slices.IndexFunc(ways, func(w *wrongWay) bool { return w.to == to })
		if i < 0 {
			i = len(ways)
			ways = append(ways, &wrongWay{to: to, translated: e.Translated()})
		}
		ways[i].clients = append(ways[i].clients, netip.AddrPortFrom(e.Original.Src, e.Original.SrcPort).String())
	})
	slices.SortFunc(ways, func(a, b *wrongWay) int { return a.to.Compare(b.to) })
	out := make([]report.Finding, 0, len(ways))
	for _, w := range ways {
		at := netip.AddrPortFrom(f.Address, f.Port)
		is := issue{
			expected: "a serving endpoint", actual: w.to.String(),
			message: fmt.Sprintf("%s to %s %s in the kernel's connection table to %s, which is no serving endpoint: as long as packets come the entry stays, whatever the rules say",
				count(len(w.clients), string(f.Protocol)+" connection"), at, leads(len(w.clients)), w.to),
			evidence: w.clients[:min(len(w.clients), maxEvidence)],
		}
		if !w.translated {
			is.actual = "not translated"
			is.message = fmt.Sprintf("%s to %s %s not translated: the first packet came when no rule was there, and the entry stays as long as packets come",
				count(len(w.clients), string(f.Protocol)+" connection"), at, are(len(w.clients)))
		}
		found := n.finding(ConntrackStale, expect.NameOf(svc).String()+" "+at.String()+"/"+string(f.Protocol), is)
		found.Remedy = clearing(f, w) + "   # on " + n.name
		out = append(out, found)
	}
	return out
}

// misled tells whether packets of a connection go where they should not, given that it leads to no serving endpoint.
func misled(f *expect.Frontend, e *conntrack.Entry) bool {
	if f.Protocol == corev1.ProtocolUDP || f.Protocol == corev1.ProtocolSCTP {
		// A NodePort's address is the node's own, where somebody else may be meant.
		return e.Translated() || f.Kind != expect.NodePort
	}
	// A TCP connection that was translated had an endpoint, and ends with it. One to a cluster IP that was not never had any.
	return f.Kind == expect.ClusterIP && !e.Translated() && e.State == "SYN_SENT"
}

// serving returns the endpoints that connections may lead to: every one that serves, whatever policies make of it for new ones.
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
func clearing(f *expect.Frontend, w *wrongWay) string {
	args := []string{"conntrack -D -f", "ipv4", "-p", strings.ToLower(string(f.Protocol)), "--orig-dst", f.Address.String(), "--orig-port-dst", strconv.Itoa(int(f.Port)), "--reply-src", w.to.Addr().String()}
	if !f.Address.Is4() {
		args[1] = "ipv6"
	}
	return strings.Join(args, " ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func leads(n int) string {
	if n == 1 {
		return "leads"
	}
	return "lead"
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// crowded is from which share on the connection table counts as full: from 95% on the kernel drops entries that are not assured.
const crowded = 0.95

// tableFull finds a connection table that has no room for new ones (nf_conntrack_alloc in net/netfilter/nf_conntrack_core.c).
func (n *node) tableFull() []report.Finding {
	number := func(key string) (float64, bool) {
		text, ok := n.net.Sysctl("net/netfilter/" + key)
		v, err := strconv.ParseFloat(text, 64)
		return v, ok && err == nil
	}
	used, ok := number("nf_conntrack_count")
	room, ok2 := number("nf_conntrack_max")
	if !ok || !ok2 || room == 0 || used < crowded*room {
		return nil
	}
	is := issue{
		expected: fmt.Sprintf("less than %.0f entries", room), actual: fmt.Sprintf("%.0f", used),
		message:  "the kernel's connection table is as good as full: new connections are dropped now and then",
		evidence: []string{fmt.Sprintf("net/netfilter/nf_conntrack_count=%.0f", used), fmt.Sprintf("net/netfilter/nf_conntrack_max=%.0f", room)},
	}
	if used >= room {
		is.message = "the kernel's connection table is full: new connections are dropped, whatever the rules say"
	}
	f := n.finding(ConntrackFull, "connection table", is)
	if used < room {
		f.Severity = report.Warn
	}
	return []report.Finding{f}
}

// lostConnections finds connections that connection tracking lost while the node was probed: their first packet was dropped, for want of
// room or for another that came at the same moment. Packets that are invalid are told, and are no fault by themselves: those that come late are.
func (n *node) lostConnections() []report.Finding {
	t := n.tracked
	if t == nil || t.InsertFailed+t.Drop+t.Invalid == 0 {
		return nil
	}
	f := n.finding(ConntrackInvalid, "connection tracking", issue{
		expected: "no connection lost", actual: fmt.Sprintf("%d for want of room, %d that came at the same moment, %d invalid packets in %.1f s", t.Drop, t.InsertFailed, t.Invalid, t.Seconds),
		message: "while the node was probed, its connection tracking dropped first packets of connections, whosever they are: their senders wait, and send again",
	})
	if t.InsertFailed+t.Drop == 0 {
		f.Severity = report.Info
		f.Message = "while the node was probed, packets came that belong to no connection; kube-proxy drops those that it can: a few are what is left of old connections, many tell of answers that come another way"
	}
	return []report.Finding{f}
}

// asked returns the Services that a request is about.
func (n *node) asked(req *Request) []*corev1.Service {
	if req.Services == nil {
		return n.cluster.Services
	}
	var out []*corev1.Service
	for _, name := range req.Services {
		if svc := n.services[name]; svc != nil {
			out = append(out, svc)
		}
	}
	return out
}
