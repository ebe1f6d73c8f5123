// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// nodePort judges the state of the bridge's port that the node's end of the pair is: what comes by one that does not
// forward is discarded, too (br_handle_frame in net/bridge/br_input.c).
func (v *veth) nodePort() (s report.Segment, ok bool) {
	bridge := v.node.Host.Master(v.end)
	state := v.node.Host.PortState(bridge, v.end)
	if state == "" {
		return s, true
	}
	return with(v.cannot("the bridge %s neither takes nor sends anything by its port %s, behind which the pod is", bridge,
		v.end), fmt.Sprintf("ip -d link: %s master %s state %s", v.end, bridge, state)), false
}

// sentFrom judges whether the node's bridge takes the pod's frames, which come from a link-layer address.
func (v *veth) sentFrom(mac string) (s report.Segment, ok bool) {
	bridge := v.node.Host.Master(v.end)
	refuses, known := v.node.Host.Refuses(bridge, v.end, mac)
	switch {
	case !known:
		return unknown(v.segment, v.place, v.node.Name, "bridge fdb show br "+bridge, "the port %s of the bridge %s is "+
			"locked, and whether the bridge knows the pod's link-layer address %s was not read", v.end, bridge, mac), false
	case !refuses:
		return s, true
	}
	return with(v.cannot("the bridge %s takes nothing from the pod: its port %s is locked, and the bridge does not know "+
		"that the pod's link-layer address %s is there", bridge, v.end, mac),
		fmt.Sprintf("ip -d link: %s master %s locked on", v.end, bridge),
		fmt.Sprintf("bridge fdb: no entry for %s dev %s", mac, v.end)), false
}

// takenFrom judges whether interfaces of the pod take the node's frames, which come from a link-layer address: a port
// of a bridge of the pod's own, as of KubeVirt, and a macvlan.
func (v *veth) takenFrom(mac string) (s report.Segment, ok bool) {
	own := v.pod.Host
	bridge := own.Master(v.pair)
	if refuses, known := own.Refuses(bridge, v.pair, mac); !known {
		return unknown(v.segment, v.place, v.node.Name, enter("bridge fdb show br "+bridge), "the port %s of the pod's own "+
			"bridge %s is locked, and whether the bridge knows the node's link-layer address %s was not read", v.pair, bridge,
			mac), false
	} else if refuses {
		return with(v.cannot("the pod's own bridge %s takes nothing from the node: its port %s is locked, and the bridge "+
			"does not know that %s is there", bridge, v.pair, mac),
			fmt.Sprintf("ip -d link in the pod: %s master %s locked on", v.pair, bridge)), false
	}
	takes, list := own.TakesFrom(v.dev, mac)
	if takes || mac == "" {
		return s, true
	}
	return with(v.cannot("the pod's %s is a macvlan with mode source, and does not take frames from the node's address %s",
		v.dev, mac), fmt.Sprintf("ip -d link in the pod: %s macvlan mode source %s", v.dev, strings.Join(list, " "))), false
}

// takenFromSender is takenFrom for a packet that the node sends on: from the address of the interface that it leaves
// by. Where a bridge translates a packet from one of its ports to another one, it leaves the sender's
// (br_nf_pre_routing_finish_bridge in net/bridge/br_netfilter_hooks.c).
func (v *veth) takenFromSender(p *netfilter.Packet) (s report.Segment, ok bool) {
	own := v.node.Host.MAC(p.Out)
	s, ok = v.takenFrom(own)
	on, known := v.node.Host.BridgeCalls(p.Out, p.Dst.Is4())
	if v.came != p.Out || v.node.Host.Master(v.end) != p.Out || known && !on && p.DNAT {
		return s, ok
	}
	const nobody = "00:00:00:00:00:00" // which no interface has
	other := v.sender
	if other == "" {
		other = nobody
	}
	if _, same := v.takenFrom(other); same == ok {
		return s, ok
	}
	return unknown(v.segment, v.place, v.node.Name, "sysctl net.bridge", "the packet came in by the bridge %s, too: "+
		"whether its frame to %s has the link-layer address of the bridge, %s, or the sender's, is not known, and the pod "+
		"does not take both", p.Out, v.podPlace, own), false
}

// macvlans are the interfaces of the node on top of the bridge, or of the pair's end, that frames of the pod may come
// to, with a link-layer address of their own (macvlan_handle_frame in drivers/net/macvlan.c).
func (v *veth) macvlans() (out []string) {
	own, bridge := v.node.Host, v.bridge()
	for _, d := range own.Devs() {
		takes, _ := own.TakesFrom(d, v.pod.Host.MAC(v.dev))
		if up, known := own.Up(d); d != bridge && own.Carrier(d) == bridge && takes && (up || !known) {
			out = append(out, d)
		}
	}
	return out
}

// receivers are the node's interfaces that packets of the pod to the next hop may come in by: the one that has the
// link-layer address that the pod has for it; where it has none, all that answer for it. Those that the bridge
// translates it takes for its own (br_nf_pre_routing_finish in net/bridge/br_netfilter_hooks.c).
func (v *veth) receivers(e *host.Neighbour, there bool) (in string, others []string) {
	own, bridge := v.node.Host, v.bridge()
	all := v.macvlans()
	if len(all) == 0 {
		return bridge, nil
	}
	on, known := own.BridgeCalls(bridge, v.hop.Is4())
	if own.Master(v.end) != "" && (on || !known) && v.translated != nil && v.translated() {
		if on {
			return bridge, nil
		}
		return bridge, all
	}
	if there && e.MAC != "" && !e.Failed {
		all = slices.DeleteFunc(all, func(d string) bool { return !strings.EqualFold(own.MAC(d), e.MAC) })
		if len(all) == 0 {
			return bridge, nil
		}
		return all[0], all[1:]
	}
	all = slices.DeleteFunc(append(all, bridge), func(d string) bool {
		if v.hop.Is6() {
			return !slices.Contains(own.DevsOf(v.hop), d)
		}
		return silent(own, d, v.hop, v.from) != ""
	})
	if len(all) == 0 {
		return bridge, nil
	}
	return all[0], all[1:]
}

// eachReceiver judges a packet by each interface of the node that it may come in by.
func (v *veth) eachReceiver(in string, judge func(in string) report.Segment) report.Segment {
	s := judge(in)
	for _, other := range v.others {
		o := judge(other)
		if o.Verdict == s.Verdict && o.Code == s.Code {
			continue
		}
		if s.Verdict == report.SegmentRight {
			s = o
		}
		s.Verdict, s.Code = report.SegmentUnknown, ""
		s.Message = fmt.Sprintf("by which of its interfaces %s and %s %s takes what %s sends to %s, is not known, and by "+
			"one of them: %s", in, other, v.node.Name, v.podPlace, v.hop, s.Message)
		return s
	}
	return s
}
