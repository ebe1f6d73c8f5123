// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/conntrack"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about next hops of which nothing shows that they take packets.
const (
	NextHopUnknown  = "NextHopUnknown"
	OtherNeighbour  = "OtherNeighbour"
	StaticNeighbour = "StaticNeighbour"
	RoutedByNode    = "RoutedByNode"
	RoutedByPod     = "RoutedByPod"
	BridgeVLANs     = "BridgeVLANs"
)

var (
	_ = register(kind{
		code: NextHopUnknown, severity: note, scope: onPath,
		by: unsureHop(stageOnward, NextHopUnknown, (*pathCase).unknownHop,
			"the next hop is not a Node's address, nor a default gateway, and the kernel has not found it so far: whether "+
				"any host accepts the packets is not known"),
	})
	_ = register(kind{
		code: StaticNeighbour, severity: note, scope: onPath,
		by: unsureHop(stageOnward, StaticNeighbour, (*pathCase).staticNeighbour,
			"a person or a program has set the next hop's link-layer address, and nothing confirms it: whether the next hop "+
				"has it is not known"),
	})
	_ = register(kind{
		code: OtherNeighbour, severity: note, scope: onPath,
		by: unsureHop(stageOnward, OtherNeighbour, (*pathCase).otherNeighbour,
			"the link-layer address that the kernel has found for the next hop seems to belong to another host: whether "+
				"that host accepts the packets is not known"),
	})
	_ = register(kind{
		code: RoutedByPod, severity: note, scope: onPath,
		by: unsureHop(stageOnward, RoutedByPod, (*pathCase).byPod,
			"the next hop is a pod: whether it passes on packets that are not its own is not known"),
	})
	_ = register(kind{
		code: BridgeVLANs, severity: note, scope: onPath,
		by: unsureHop(stageOnward, BridgeVLANs, (*pathCase).filteredByVLAN,
			"the bridge passes frames only between ports of the same VLAN, and which VLANs its ports are in was not read: "+
				"whether the packets pass it is not known"),
	})
	_ = register(kind{
		code: RoutedByNode, severity: note, scope: onPath,
		by: unsureHop(stageOnward, RoutedByNode, (*pathCase).byAnotherNode,
			"the route to the endpoint leads by a Node that it is not on: whether that node forwards the packets is not "+
				"known. If answers do not come back by it, its connection tracking takes packets behind the first for "+
				"invalid, and kube-proxy's rules there drop these: the client connects, and gets no answer"),
	})
)

// doubt is why a next hop is in doubt, and the commands that tell more.
type doubt struct {
	evidence string
	look     []report.Command
	sending  bool // it shows on connections over which data is sent
}

// unsureHop makes the detector of what puts a next hop in doubt: at stageOnward the path is Unknown for it.
func unsureHop(
	st stage, code string, in func(p *pathCase, h hop, end *netfilter.Outcome) *doubt, message string,
) *detector {
	return &detector{stage: st, path: func(p *pathCase) []issue {
		if p.want.Action != expect.DNAT {
			return nil
		}
		var is issue
		sending := false
		for i, hops := range p.everyHop(code == NeighbourFailed || code == RoutedByPod) {
			for _, h := range hops {
				end := &p.res.Outcomes[i]
				d := in(p, h, end)
				if d == nil {
					continue
				}
				if to := addressText(netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort)); !slices.Contains(is.endpoints, to) {
					is.endpoints = append(is.endpoints, to)
				}
				if e := (report.Evidence{Text: d.evidence}); !slices.Contains(is.evidence, e) && len(is.evidence) < maxEvidence {
					is.evidence = append(is.evidence, e)
					is.remedy.Commands = append(is.remedy.Commands, d.look...)
					if p.decisionBy(h).Redirected().IsValid() {
						is.remedy.Commands = append(is.remedy.Commands, p.onNode("where the redirect is wrong: the routes hold again",
							"ip", familyFlag(h.ip.Is4()), "route", "flush", "cache"))
					}
				}
				sending = sending || d.sending && p.want.Frontend.Protocol == corev1.ProtocolTCP
			}
		}
		if is.endpoints == nil {
			return nil
		}
		is.code, is.message, is.expected, is.actual = code, message, describe(p.want), mayNotArrive
		is.subject = cut(is.endpoints, 4)
		is.remedy.Text = "see whether the next hop takes packets; real connections (trace --live) show what happens to them"
		live := p.askLive().Commands
		if sending && !p.sentPayload() {
			live = p.live("--payload", "http")
		}
		is.remedy.Commands = append(is.remedy.Commands, live...)
		if st == stageOnward && p.verdict != report.Mismatch {
			p.verdict = report.Unknown
		}
		return []issue{is}
	}}
}

// everyHop are [pathCase.possibleHops] of each end of the walk at which connections are sent on. It is nil where there
// are none at all. A dozen checks ask for them.
func (p *pathCase) everyHop(answers bool) [][]hop {
	found := &p.ways.toPods
	if answers {
		found = &p.ways.toAll
	}
	if found.asked {
		return found.hops
	}
	found.asked = true
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		if end.End != netfilter.Sent || !end.Packet.DNAT {
			continue
		}
		if hops := p.possibleHops(end, answers); len(hops) > 0 {
			if found.hops == nil {
				found.hops = make([][]hop, len(p.res.Outcomes))
			}
			found.hops[i] = hops
		}
	}
	return found.hops
}

// possibleHops are the next hops that a packet may leave by, and that of the answer to a pod of the node; answers: and
// to a client outside.
func (p *pathCase) possibleHops(end *netfilter.Outcome, answers bool) []hop {
	hops := p.hops(&p.want.Origin, end)
	if answers {
		hops = p.hopsOut(&p.want.Origin, end)
	}
	for _, h := range p.anyHops(end.Packet.Dst) {
		next := hop{h.Dev, h.Gateway}
		if !next.ip.IsValid() {
			next.ip = end.Packet.Dst
		}
		if h.Dev != "" && !slices.Contains(hops, next) {
			hops = append(hops, next)
		}
	}
	return hops
}

// anyHops are the next hops that packets to an address may have, whatever their mark and sender; none where there is
// one, or the route is not known.
func (w *worker) anyHops(dst netip.Addr) []host.Hop {
	return w.hopsTo.once(dst, func() []host.Hop {
		if l := w.net.Lookup(host.Query{Dst: dst, AnyMark: true, AnyUID: true}); l.Known {
			return l.Hops
		}
		return nil
	})
}

// onNode makes a command of the node.
func (n *node) onNode(when string, words ...string) report.Command {
	return report.Command{Line: report.ShellLine(words...), Node: n.Name, When: when}
}

// silentNeighbour: an entry in one of the states of [host.Neighbour].Failed.
func (p *pathCase) silentNeighbour(h hop, end *netfilter.Outcome) *doubt {
	e, ok := p.net.Neighbour(h.dev, h.ip)
	if !ok || !e.Failed {
		return nil
	}
	if b := p.blockedAt(h, end); b != nil && b.certain {
		return nil // NeighbourBlocked says why
	}
	return &doubt{
		evidence: p.routeBy(h) + fmt.Sprintf("ip neigh: %s dev %s %s", h.ip, h.dev, e.State),
		look: []report.Command{
			p.onNode("to see it again, after a packet", "ip", "neigh", "show", "to", h.ip.String(), "dev", h.dev),
		},
	}
}

// routeBy names the routes by which a next hop is one; "" where it is the destination.
func (p *pathCase) routeBy(h hop) string {
	if by := p.decisionBy(h); by != (host.Decision{}) {
		return by.String() + "; "
	}
	return ""
}

// decisionBy returns what has packets, or answers to the client, sent by a next hop; the zero Decision for nothing.
func (p *pathCase) decisionBy(h hop) (by host.Decision) {
	for i := range p.res.Outcomes {
		dst := p.res.Outcomes[i].Packet.Dst
		l := p.net.Lookup(host.Query{Dst: dst, AnyMark: true, AnyUID: true})
		if h.ip != dst && h.of(&l) {
			return l.By
		}
	}
	if o := &p.want.Origin; o.Kind == expect.FromPod && h.dev == o.Iface && h.ip != o.Address ||
		o.Kind == expect.FromExternal && o.Address.IsValid() {
		for i := range p.res.Outcomes {
			l := p.backRoute(o, &p.res.Outcomes[i])
			if h.of(&l) || o.Kind == expect.FromExternal && h.ip == o.Address && l.Known && l.Dev == h.dev {
				return l.By
			}
		}
	}
	return by
}

// of tells whether a next hop is one of a route's.
func (h hop) of(l *host.Lookup) bool {
	return l.Known && slices.ContainsFunc(l.NextHops(), func(x host.Hop) bool {
		return x.Dev == h.dev && x.Gateway == h.ip
	})
}

// byPod: a gateway that is a pod's address.
func (p *pathCase) byPod(h hop, end *netfilter.Outcome) *doubt {
	pod := p.cluster.podNames[h.ip]
	if pod == "" || h.ip == end.Packet.Dst || h.ip == p.want.Origin.Address {
		return nil
	}
	return &doubt{
		evidence: p.routeBy(h) + fmt.Sprintf("%s is the pod %s", h.ip, pod),
		look: []report.Command{
			p.onNode("to see the routes", "ip", familyFlag(h.ip.Is4()), "route", "show", "table", "all"),
		},
	}
}

// unknownHop: a gateway that no Node has, by an interface on which the kernel asks for link-layer addresses, and of
// which the neighbour table has no entry, as if no packet had been sent to it so far. A default gateway is another
// matter: it may be a router that this node has not needed yet.
func (p *pathCase) unknownHop(h hop, end *netfilter.Outcome) *doubt {
	if h.ip == end.Packet.Dst || h.ip == p.want.Origin.Address || h.ip.IsLinkLocalUnicast() ||
		!p.net.HasNeighbours() || !p.net.Resolves(h.dev) || p.net.DefaultGateway(h.ip) ||
		len(p.cluster.Nodes) == 0 || p.cluster.ofNode(h.ip) != "" {
		return nil
	}
	if _, ok := p.net.Neighbour(h.dev, h.ip); ok {
		return nil
	}
	return &doubt{
		evidence: p.routeBy(h) + fmt.Sprintf("ip neigh has no entry of %s dev %s", h.ip, h.dev),
		look: []report.Command{
			p.onNode("to ask for it", "ping", "-c", "1", "-I", h.dev, h.ip.String()),
			p.onNode("to see the answer", "ip", "neigh", "show", "to", h.ip.String(), "dev", h.dev),
		},
	}
}

// filteredByVLAN: a bridge that filters VLANs, unless the next hop has just answered the node through it.
func (p *pathCase) filteredByVLAN(h hop, _ *netfilter.Outcome) *doubt {
	bridge := p.net.VLANBridge(h.dev)
	if e, ok := p.net.Neighbour(h.dev, h.ip); bridge == "" || ok && e.State == "REACHABLE" {
		return nil
	}
	return &doubt{
		evidence: "ip -d link: " + bridge + " vlan_filtering 1",
		look:     []report.Command{p.onNode("to see the VLANs of its ports", "bridge", "vlan", "show")},
	}
}

// staticNeighbour: an entry that the kernel never asks for, on an interface of an ordinary link, unless the MAC is
// known to be the next hop's: it says so itself, the forwarding table of the bridge has it behind a port, or another
// address of the same Node or pod was found to have it. The interface of a single pod is left out: a CNI sets the entry
// there.
func (p *pathCase) staticNeighbour(h hop, end *netfilter.Outcome) *doubt {
	e, ok := p.net.Neighbour(h.dev, h.ip)
	if !ok || !p.setByHand(h.dev, &e) || !p.net.Resolves(h.dev) || p.manyHosts(h, end.Packet.Dst, end.Packet.Proto) {
		return nil
	}
	bridge := p.net.Bridge(h.dev)
	if bridge && p.net.BehindPort(h.dev, e.MAC) || !bridge && p.net.PodsOnly(h.dev, h.ip.Is4()) ||
		p.sameOwner(h, e.MAC) {
		return nil
	}
	o, held := p.holderOf(h.ip)
	if held {
		p.askFor(o)
	}
	c, text := p.claimed(h, e.MAC)
	if c == agreed || c == denied && end.Certain && slices.Contains(p.hops(&p.want.Origin, end), h) {
		return nil // it is right, or WrongNeighbour says that it is wrong
	}
	d := &doubt{evidence: fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", h.ip, h.dev, e.MAC, e.State)}
	if text != "" {
		d.evidence += "; " + text
	}
	if held && o.Pod == "" {
		d.look = append(d.look, report.Command{
			Line: report.ShellLine("ip", "-br", "link"), Node: o.Node, When: "to see the addresses of its interfaces",
		})
	}
	d.look = append(d.look,
		p.onNode("to have the kernel ask for it", "ip", "neigh", "del", h.ip.String(), "dev", h.dev))
	return d
}

// otherNeighbour: an entry that the kernel has found by asking, with an address that the next hop's Node says it does
// not have, so that another has answered for it; one that is another Node's, as that one says; or one that another pod
// on the same bridge has, too. A Node is to be read for this only where something speaks against the entry.
func (p *pathCase) otherNeighbour(h hop, end *netfilter.Outcome) *doubt {
	e, ok := p.net.Neighbour(h.dev, h.ip)
	if !ok || e.MAC == "" || e.Failed || p.setByHand(h.dev, &e) || !p.net.Resolves(h.dev) {
		return nil
	}
	because := func(text string) *doubt {
		return &doubt{
			evidence: fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s; %s", h.ip, h.dev, e.MAC, e.State, text),
			look: []report.Command{
				p.onNode("to have the kernel ask for it", "ip", "neigh", "del", h.ip.String(), "dev", h.dev),
			},
		}
	}
	only := p.net.PodsOnly(h.dev, h.ip.Is4())
	twin := p.twin(h, e.MAC)
	if o, ok := p.holderOf(h.ip); ok && (twin.ip.IsValid() || e.State == "PROBE" || p.unansweredBy(end)) {
		p.askFor(o)
	}
	if c, text := p.claimed(h, e.MAC); c == denied && !only {
		return because(text)
	}
	if twin.ip.IsValid() {
		o, _ := p.holderOf(twin.ip)
		p.askFor(o)
		if c, text := p.claimed(twin, e.MAC); c == agreed {
			return because(text)
		}
	}
	pod := p.cluster.podNames[h.ip]
	for _, a := range p.net.Neighbours(h.dev, e.MAC) {
		if other := p.cluster.podNames[a]; only && pod != "" && other != "" && other != pod {
			return because("the pod " + other + " has the same: " + a.String())
		}
	}
	return nil
}

// twin is the address of another Node that the kernel has found to have the MAC of a next hop, too; the zero hop for
// none, and where the default gateway has it, as one that answers for all.
func (p *pathCase) twin(h hop, mac string) hop {
	owner := p.cluster.ofNode(h.ip)
	var out hop
	for _, a := range p.net.Neighbours(h.dev, mac) {
		switch o := p.cluster.ofNode(a); {
		case p.net.DefaultGateway(a):
			return hop{}
		case owner != "" && o != "" && o != owner && (!out.ip.IsValid() || a.Less(out.ip)):
			out = hop{h.dev, a}
		}
	}
	return out
}

// unansweredBy tells whether connection tracking has connections of the path that an endpoint has not answered, and
// none that it has.
func (p *pathCase) unansweredBy(end *netfilter.Outcome) bool {
	if p.Connections == nil {
		return false
	}
	f := &p.want.Frontend
	waits, answered := false, false
	p.Connections.To(protocolNumber(f.Protocol), netip.AddrPortFrom(f.Address, f.Port), func(e *conntrack.Entry) {
		if e.Reply.Src == end.Packet.Dst && e.Reply.SrcPort == end.Packet.DstPort {
			waits, answered = waits || e.Unreplied && e.State == "SYN_SENT", answered || !e.Unreplied
		}
	})
	return waits && !answered
}

// sameOwner tells whether the kernel has found a MAC by asking for another address of the Node or pod that has a next
// hop.
func (p *pathCase) sameOwner(h hop, mac string) bool {
	owner := p.cluster.ofNode(h.ip)
	pod := p.cluster.podNames[h.ip]
	for _, ip := range p.net.Neighbours(h.dev, mac) {
		if o := p.cluster.ofNode(ip); ip != h.ip && (o != "" && o == owner ||
			pod != "" && p.cluster.podNames[ip] == pod) {
			return true
		}
	}
	return false
}

// sentPayload tells whether real connections were made over which something was sent.
func (p *pathCase) sentPayload() bool {
	for _, x := range p.Probes {
		if x.Payload != "" {
			return true
		}
	}
	return false
}

// byAnotherNode: a gateway that is a Node which the endpoint is not on, though it is no router of all packets. Its
// kube-proxy drops what is INVALID (syncProxyRules in pkg/proxy/iptables/proxier.go; setupNFTables in
// pkg/proxy/nftables/proxier.go), as the second packet of a connection is whose answer it has not seen (tcp_conntracks
// in net/netfilter/nf_conntrack_proto_tcp.c).
func (p *pathCase) byAnotherNode(h hop, end *netfilter.Outcome) *doubt {
	at, by := p.placeOf(end.Packet.Dst), p.cluster.ofNode(h.ip)
	// Several Nodes may have an address: one that was renamed, and its object left behind.
	has := func(node string) bool { return slices.Contains(p.cluster.nodesAt[h.ip], node) }
	if at.node == "" || by == "" || h.ip == end.Packet.Dst || has(at.node) || has(p.Name) ||
		p.net.MainGateway(h.ip) {
		return nil
	}
	return &doubt{
		sending:  true,
		evidence: p.routeBy(h) + fmt.Sprintf("%s is on %s, and %s is of %s", end.Packet.Dst, at.node, h.ip, by),
		look: []report.Command{
			p.onNode("to see the routes", "ip", familyFlag(h.ip.Is4()), "route", "show", "table", "all"),
		},
	}
}
