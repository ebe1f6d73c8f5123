// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// dnsServices are the Services with a ClusterIP that serve DNS, by their names.
func (n *naming) dnsServices() (out []string) {
	for name, svc := range n.cluster.services {
		if ServesNames(svc) {
			out = append(out, name.String()+" "+svc.Spec.ClusterIP)
		}
	}
	slices.Sort(out)
	return out
}

// ServesNames tells whether a Service has a ClusterIP at which it serves DNS.
func ServesNames(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone &&
		slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Port == dnsPort && p.Protocol == corev1.ProtocolUDP
		})
}

// serviceAt returns the Service that has an address.
func (n *naming) serviceAt(a netip.Addr) (types.NamespacedName, bool) {
	for _, svc := range n.cluster.Services {
		list := slices.Concat(clusterIPs(svc), svc.Spec.ExternalIPs)
		for i := range svc.Status.LoadBalancer.Ingress {
			list = append(list, svc.Status.LoadBalancer.Ingress[i].IP)
		}
		if slices.ContainsFunc(list, isAddress(a)) {
			return expect.NameOf(svc), true
		}
	}
	return types.NamespacedName{}, false
}

// server judges how packets of the pod come to a name server, over UDP and over TCP.
func (n *naming) server(a netip.Addr) report.Segment {
	if own, _ := n.state.Host.Local(a); own {
		return n.inPod(a)
	}
	svc, isService := n.serviceAt(a)
	var out report.Segment
	for _, proto := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		s := n.over(a, proto, svc, isService)
		if proto == corev1.ProtocolUDP {
			out = s
			if s.Verdict != report.SegmentRight {
				break
			}
			continue
		}
		if s.Verdict == report.SegmentWrong {
			s.Verdict, s.Code = report.SegmentUnknown, DNSOverTCPUnreachable
			s.Message = "UDP reaches the name server, TCP does not: " + s.Message
		}
		if s.Verdict != report.SegmentRight {
			out = s
		}
	}
	return out
}

// inPod judges a name server within the pod itself.
func (n *naming) inPod(a netip.Addr) report.Segment {
	s := report.Segment{Verdict: report.SegmentUnknown}
	who, known := listener(n.state, "udp", netip.AddrPortFrom(a, dnsPort))
	switch {
	case !known:
		s.Message = "the name server " + a.String() + " is in the pod itself; who listens there was not read"
	case who == nil:
		s.Verdict, s.Code, s.Owner = report.SegmentWrong, DNSServerUnreachable, "the pod's DNS settings"
		s.Message = "the name server " + a.String() + " is in the pod itself, and nothing listens there"
		if n.conf.NoServer {
			s.Message = "resolv.conf names no server, so that the pod itself is asked, and nothing listens there"
		}
	default:
		process := "process " + strings.Clone(who.Process)
		if who.Process == "" {
			process = "a process of its own" // which was not told
		}
		s.Message = fmt.Sprintf("the pod asks %s, in the pod itself, at %s: what that answers is not known", process, a)
	}
	return s
}

// listener returns the socket that takes packets to an address and port; known is false where that cannot be told.
func listener(s *nodestate.State, proto string, at netip.AddrPort) (x *host.Socket, known bool) {
	if !s.SocketsRead || s.Reading(snapshot.ListenFile).State != nodestate.Whole {
		return nil, false
	}
	if x := s.SocketAt(proto, at); x != nil {
		return x, true
	}
	// A listing that is not of sock_diag does not tell whether such a socket takes IPv4, too.
	return nil, !slices.ContainsFunc(s.Sockets, func(x host.Socket) bool {
		return x.Protocol == proto && x.Port == at.Port() && at.Addr().Is4() && x.Address == netip.IPv6Unspecified()
	})
}

// over judges the packets of one protocol to a name server that is not in the pod.
func (n *naming) over(a netip.Addr, proto corev1.Protocol, svc types.NamespacedName, isService bool) report.Segment {
	at := netip.AddrPortFrom(a, dnsPort)
	src := netfilter.SourceFor(n.state.Host, protocolNumber(proto), at)
	f := expect.Frontend{Address: a, Port: dnsPort, Protocol: proto}
	conn := n.connection(start(f, expect.Origin{Kind: expect.FromPod, Address: src, Iface: n.ifaceOf(src)}))
	unreachable := func(s report.Segment) report.Segment {
		if s.Verdict == report.SegmentWrong {
			s.Code = DNSServerUnreachable
		}
		s.Message = fmt.Sprintf("%s to %s: %s: %s", proto, at, s.Place, s.Message)
		return s
	}
	if isService {
		if s := conn.LeavesPod(); s.Verdict != report.SegmentRight {
			return unreachable(s)
		}
		return n.ofService(at, proto, svc, conn)
	}
	s, end := conn.ComesTo()
	if s.Verdict != report.SegmentRight {
		return unreachable(s)
	}
	if end.End == netfilter.Delivered {
		return n.onNode(at, proto, conn)
	}
	return n.elsewhere(a, proto)
}

// ofService judges a name server that is a Service: on the client's node as the Service itself would be, and beyond
// that to those of its endpoints whose pods were read.
func (n *naming) ofService(
	at netip.AddrPort, proto corev1.Protocol, svc types.NamespacedName, conn *endtoend.Connection,
) report.Segment {
	s := report.Segment{
		Verdict: report.SegmentWrong, Code: DNSServerUnreachable,
		Message: fmt.Sprintf("Service %s has %s, and no port %d of %s", svc, at.Addr(), dnsPort, proto),
	}
	paths := n.paths(&Request{
		Services: []types.NamespacedName{svc}, Matching: true,
		From: &From{Kind: expect.FromPod, Address: conn.Start.Packet.Src},
		Select: func(f expect.Frontend) bool {
			return f.Address == at.Addr() && f.Port == dnsPort && f.Protocol == proto
		},
	}).list
	for i := range paths {
		p := &paths[i].Path
		if paths[i].quiet {
			continue
		}
		s.Message = fmt.Sprintf("%s to %s (Service %s) on node %s: %s", proto, at, svc, n.Name, whyNot(p))
		switch {
		case p.Verdict == report.Match || p.Verdict == report.Warning:
			return n.beyond(at, proto, svc, conn, p)
		case slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == NodeLocalDNS }):
			return n.onNode(at, proto, conn)
		case p.Verdict == report.Unknown:
			s.Verdict, s.Code = report.SegmentUnknown, ""
		}
		for k := range p.Findings {
			s.Evidence = append(s.Evidence, p.Findings[k].Evidence...)
		}
		break
	}
	return s
}

// beyond follows queries to the endpoints of a name server's Service whose pods were read, and their answers back.
func (n *naming) beyond(
	at netip.AddrPort, proto corev1.Protocol, svc types.NamespacedName, conn *endtoend.Connection, p *report.Path,
) report.Segment {
	for i := range p.Expected.Endpoints {
		e := &p.Expected.Endpoints[i]
		to, ok := e.AddrPort()
		x := endtoend.Endpoint{
			At: to, Pod: e.Pod, Node: e.Node, HostNetwork: n.cluster.onHostNetwork(e.Pod, e.Node, to.Addr()),
		}
		if ok && n.wasRead(&x) {
			conn.Endpoints = append(conn.Endpoints, x)
		}
	}
	all, followed := len(p.Expected.Endpoints), len(conn.Endpoints)
	far := "as far as node " + n.Name
	switch followed {
	case 0:
	case all:
		far = "into the pods of all its endpoints, and back"
	default:
		far = fmt.Sprintf("into the pods of %d of its %d endpoints, and back", followed, all)
	}
	out := report.Segment{
		Verdict: report.SegmentRight,
		Message: fmt.Sprintf("%s (Service %s): UDP and TCP get %s", at.Addr(), svc, far),
	}
	if followed == 0 {
		return out
	}
	lost := map[string]bool{}
	segments := conn.Segments(&report.Segment{Segment: report.SegmentClientNode, Verdict: report.SegmentRight})
	for i := range segments {
		s := &segments[i]
		worse := s.Verdict == report.SegmentWrong && out.Verdict != report.SegmentWrong ||
			s.Verdict == report.SegmentUnknown && out.Verdict == report.SegmentRight
		if s.Verdict == report.SegmentWrong {
			lost[s.Endpoint] = true
		}
		if worse {
			out = report.Segment{
				Verdict: s.Verdict, Owner: s.Owner, Evidence: s.Evidence,
				Message: fmt.Sprintf("%s to %s (Service %s), endpoint %s: %s", proto, at, svc, s.Endpoint, segmentText(s)),
			}
		}
	}
	if len(lost) > 0 {
		out.Code = DNSServerUnreachable
		out.Message += fmt.Sprintf(" (%d of %d endpoints cannot be asked)", len(lost), all)
	}
	return out
}

// wasRead tells whether an endpoint's node was read, and its pod where that has a network namespace of its own.
func (n *naming) wasRead(e *endtoend.Endpoint) bool {
	node := n.nodes[e.Node]
	if node == nil {
		return false
	}
	pod := node.Pods[e.Pod]
	return e.HostNetwork || pod != nil && pod.State != nil
}

// whyNot says what is wrong with a path, or why connections are refused: the first finding that says so.
func whyNot(p *report.Path) string {
	rank := []report.Severity{report.Error, report.Warn, report.Info}
	list := slices.Clone(p.Findings)
	slices.SortStableFunc(list, func(a, b report.Finding) int {
		return slices.Index(rank, a.Severity) - slices.Index(rank, b.Severity)
	})
	if len(list) == 0 {
		return "the path is not known"
	}
	if f := &list[0]; f.Message != "" {
		return f.Code + ": " + f.Message
	}
	return list[0].Code
}

// onNode judges a name server whose address the client's node has: a DNS cache on the node, to which packets come, and
// whose answers have to come back.
func (n *naming) onNode(at netip.AddrPort, proto corev1.Protocol, conn *endtoend.Connection) report.Segment {
	who, known := listener(n.State, strings.ToLower(string(proto)), at)
	switch {
	case !known:
		return report.Segment{
			Verdict: report.SegmentUnknown,
			Message: fmt.Sprintf("node %s has %s itself; who listens there was not read", n.Name, at.Addr()),
		}
	case who == nil:
		return report.Segment{
			Verdict: report.SegmentWrong, Code: DNSServerUnreachable, Owner: "the node's DNS cache",
			Message: fmt.Sprintf("node %s has %s itself, and nothing listens there at port %d of %s", n.Name, at.Addr(),
				dnsPort, proto),
		}
	}
	cache := "a DNS cache"
	if who.Process != "" {
		cache += ", process " + strings.Clone(who.Process)
	}
	cache = fmt.Sprintf("%s on node %s itself (%s)", at.Addr(), n.Name, cache)
	conn.Endpoints = []endtoend.Endpoint{{At: at, Node: n.Name, HostNetwork: true}}
	segments := conn.Segments(&report.Segment{Segment: report.SegmentClientNode, Verdict: report.SegmentRight})
	for _, verdict := range []report.SegmentVerdict{report.SegmentWrong, report.SegmentUnknown} {
		for i := range segments {
			s := &segments[i]
			if s.Verdict != verdict {
				continue
			}
			out := report.Segment{
				Verdict: s.Verdict, Owner: s.Owner, Evidence: s.Evidence,
				Message: fmt.Sprintf("%s to %s: %s", proto, cache, segmentText(s)),
			}
			if s.Verdict == report.SegmentWrong {
				out.Code = DNSServerUnreachable
			}
			return out
		}
	}
	return report.Segment{Verdict: report.SegmentRight, Message: cache}
}

// elsewhere is a name server that is no Service, and to which packets leave the node: what it knows is not known. Where
// the kubelet has written it into the pod as the cluster's, nothing has the address, and the cluster's DNS is at
// another one, that is said.
func (n *naming) elsewhere(a netip.Addr, proto corev1.Protocol) report.Segment {
	s := report.Segment{
		Verdict: report.SegmentUnknown,
		Message: fmt.Sprintf("the name server %s is not a Service of the cluster, and packets to it leave node %s (%s): "+
			"whether it knows Services is not known", a, n.Name, proto),
	}
	var policy corev1.DNSPolicy
	if p := n.cluster.podObject(n.ends.Pod); p != nil {
		policy = p.Spec.DNSPolicy
	}
	list := n.dnsServices()
	switch {
	case policy == corev1.DNSDefault || policy == corev1.DNSNone:
		s.Message += " (dnsPolicy " + string(policy) + ")"
	case n.conf.ClusterDomain(n.namespace()) != "" && len(list) > 0 && n.cluster.podNames[a] == "" &&
		n.cluster.nodeAt(a) == "" && !n.cluster.hasEndpoint(a):
		s.Code = NameServerUnknown
		s.Message = fmt.Sprintf("the name server %s is the address of no Service, pod or node; the cluster's DNS is at %s",
			a, cut(list, 4))
	}
	return s
}

// connection is one of the client's pod, without endpoints.
func (t *tour) connection(s netfilter.Start) *endtoend.Connection {
	return &endtoend.Connection{
		Start: s, Client: t.nodes[t.ends.Client], Pod: t.ends.Pod, Nodes: t.nodes, Unread: t.unread,
		Walker: func(s *nodestate.State) *netfilter.Walker {
			if s == t.State {
				return NewWalker(s, t.net)
			}
			return NewWalker(s, s.Host)
		},
		NodeAt: t.cluster.nodeAt, Cite: cite,
	}
}
