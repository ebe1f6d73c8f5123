// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// PodAtOtherBridge says that a bridge does not send packets for a pod of the node to the pod's port: the port is at
// another bridge, or somebody has set another port for it.
const PodAtOtherBridge = "PodAtOtherBridge"

var _ = register(kind{
	code: PodAtOtherBridge, severity: mismatch, scope: onPath, by: &detector{stage: stageSettings, path: otherBridge},
})

// misport is why frames do not come to a pod's port, with the commands that mend it.
type misport struct {
	why      string // of the pod or endpoint
	evidence []string
	fix      report.Command
}

// otherBridge judges the client and the endpoints that are pods of the node: a bridge sends frames to its own ports
// alone, and where it has an entry for the address to that one (br_flood and br_forward in net/bridge/br_forward.c).
func otherBridge(p *pathCase) []issue {
	if p.want.Action != expect.DNAT {
		return nil
	}
	o := &p.want.Origin
	client := o.Kind == expect.FromPod && p.cluster.podNames[o.Address] != "" && p.local(o.Address)
	if client {
		if m := p.apart(hop{o.Iface, o.Address}); m != nil {
			return []issue{p.atOtherBridge(p.cluster.podNames[o.Address], nil, m)}
		}
	}
	at := map[netip.AddrPort]*misport{}
	sure, may := p.stoppedEnds(func(end *netfilter.Outcome) *obstacle {
		if end.End != netfilter.Sent || !end.Packet.DNAT || end.Packet.NextHop.IsValid() ||
			!p.net.Bridge(end.Packet.Out) || !p.local(end.Packet.Dst) {
			return nil
		}
		m := p.apart(hop{end.Packet.Out, end.Packet.Dst})
		if m == nil && client && !end.Packet.SNAT {
			m = p.strangers(o, end)
		}
		if m == nil {
			return nil
		}
		at[netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort)] = m
		return stoppedBy(m.evidence...)
	})
	var out []issue
	for i := range sure {
		to := sure[i].to()
		if !slices.ContainsFunc(out, func(x issue) bool { return x.subject == to.String() }) {
			out = append(out, p.atOtherBridge(to.String(), []string{to.String()}, at[to]))
		}
	}
	if len(sure) == 0 && len(may) > 0 {
		return p.doubted(p.atOtherBridge("", nil, at[may[0].to()]), may)
	}
	return out
}

func (p *pathCase) atOtherBridge(subject string, endpoints []string, m *misport) issue {
	return issue{
		code: PodAtOtherBridge, subject: subject, endpoints: endpoints, expected: describe(p.want),
		actual: "does not arrive", predicate: true, message: m.why, evidence: say(m.evidence...),
		remedy: report.Remedy{
			Text: "find out what has done it (a CNI whose bridge has another name now, a script, a person), or restart the " +
				"pod: the CNI creates its port again; at once:",
			Commands: []report.Command{m.fix},
		},
	}
}

// apart tells why packets for a pod of the node that leave by a bridge for pods do not come to the pod's port: the
// pod's own listing has the port's number, or another bridge has learned the pod's link-layer address.
func (p *pathCase) apart(h hop) *misport {
	if !p.net.Bridge(h.dev) || !p.net.PodsOnly(h.dev, h.ip.Is4()) {
		return nil
	}
	at := p.podPorts.once(h, func() podPort { return p.portOfPod(h) })
	switch {
	case at.dev == "":
		return nil
	case p.net.Master(at.dev) == h.dev:
		return p.setElsewhere(h, at)
	}
	where := "in no bridge"
	if m := p.net.Master(at.dev); m != "" {
		where = "a port of " + m
	}
	return &misport{
		why: "is a pod of this node: packets for it leave by " + h.dev + ", and its port " + at.dev + " is " + where,
		evidence: []string{
			fmt.Sprintf("ip -d link: %s is %s", at.dev, where),
			fmt.Sprintf("%s is the port of %s: %s", at.dev, h.ip, at.how),
		},
		fix: p.onNode("", "ip", "link", "set", "dev", at.dev, "master", h.dev),
	}
}

// setElsewhere tells that somebody has set another port for the link-layer address of a pod than the one that it is at.
// Such an entry moves when a frame of the pod comes in (br_fdb_update in net/bridge/br_fdb.c); until then frames to the
// pod are lost.
func (p *pathCase) setElsewhere(h hop, at podPort) *misport {
	port := p.net.SetAt(h.dev, at.mac)
	if at.mac == "" || port == "" || port == at.dev {
		return nil
	}
	return &misport{
		why: "is a pod of this node: " + h.dev + " sends frames for it to the port " + port + ", not to its own, " +
			at.dev,
		evidence: []string{
			fmt.Sprintf("bridge fdb: %s (%s) dev %s master %s static", at.mac, h.ip, port, h.dev),
			fmt.Sprintf("%s is the port of %s: %s", at.dev, h.ip, at.how),
		},
		fix: p.onNode("", "bridge", "fdb", "del", at.mac, "dev", port, "master"),
	}
}

// podPort is the node's end of the veth pair of a pod, what tells it, and the pod's link-layer address, where the pod
// has told both; "" where that is not known.
type podPort struct{ dev, how, mac string }

// portOfPod finds the podPort of a pod that packets leave for by a bridge.
func (p *pathCase) portOfPod(h hop) podPort {
	o := Owner{Node: p.Name, Pod: p.cluster.podNames[h.ip]}
	if x := p.peers.ask(o); x.net != nil {
		if own, _ := x.net.HasAddress(h.ip); own != "" {
			if end := x.net.PeerIn(p.net, own); end != "" {
				return podPort{end, "ip -d link: it is the other end of " + own + " of " + o.String(), x.net.MAC(own)}
			}
		}
	}
	e, ok := p.net.Neighbour(h.dev, h.ip)
	if !ok || e.MAC == "" || e.Static || p.net.BehindPort(h.dev, e.MAC) {
		return podPort{}
	}
	for _, other := range p.net.Devs() {
		if port := p.net.LearnedAt(other, e.MAC); other != h.dev && port != "" {
			return podPort{dev: port, how: "bridge fdb: " + e.MAC + " dev " + port + " master " + other}
		}
	}
	return podPort{}
}

// strangers tells that an endpoint asks for the client's link-layer address on its own bridge, as the client is in the
// subnet of its interface, and gets no answer: the client is behind another interface of the node, which does not
// answer for it (arp_process in net/ipv4/arp.c). Of IPv6 the entries by which a node answers are not read.
func (p *pathCase) strangers(o *expect.Origin, end *netfilter.Outcome) *misport {
	pkt := &end.Packet
	own := "net/ipv4/conf/" + pkt.Out + "/proxy_arp"
	if pkt.Out == o.Iface || netfilter.IsUnknown(o.Iface) || !pkt.Dst.Is4() || !p.net.PodsOnly(pkt.Out, true) ||
		!p.isOff(own) || !p.isOff("net/ipv4/conf/all/proxy_arp") || p.mayAnswerFor(pkt.Out, o.Address) {
		return nil
	}
	who := Owner{Node: p.Name, Pod: p.cluster.podNames[pkt.Dst]}
	x := p.peers.ask(who)
	if x.net == nil {
		return nil
	}
	dev, prefix := x.net.HasAddress(pkt.Dst)
	port := x.net.PeerIn(p.net, dev)
	if dev == "" || port == "" || !p.net.Bridge(o.Iface) || !prefix.Masked().Contains(o.Address) {
		return nil
	}
	return &misport{
		why: "is a pod of this node at " + pkt.Out + ", and takes the client, which is at " + o.Iface +
			", for its neighbour: its answers do not leave the bridge",
		evidence: []string{
			fmt.Sprintf("ip addr of %s: %s dev %s, a network that %s is of", who, prefix, dev, o.Address),
			fmt.Sprintf("ip -d link: %s is a port of %s; %s=0", port, p.net.Master(port), own),
		},
		fix: p.onNode("where both belong to the same bridge", "ip", "link", "set", "dev", port, "master", o.Iface),
	}
}
