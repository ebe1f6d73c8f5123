// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// unknownProcess is the match of a packet's process: not known for packets of the node, because the snapshot does not
// have the process.
func unknownProcess(c *netfilter.Context) truth {
	if c.Packet.Local {
		return maybe
	}
	return no
}

// mayHaveSocket: the kernel may have found the socket before routing (net/netfilter/xt_cgroup.c, early demux).
func mayHaveSocket(c *netfilter.Context) truth {
	return op.Is(c.Packet.Local || c.Hook == netfilter.Input || c.Hook == netfilter.Prerouting)
}

// bridged tells whether a packet came in by a port of a bridge with br_netfilter: no where it certainly did not; then
// every option of physdev fails (net/netfilter/xt_physdev.c, nf_bridge_info_exists). Otherwise the port is not known.
func bridged(c *netfilter.Context) truth {
	in := c.Packet.In
	switch {
	case c.Packet.Local, in == "lo":
		return no
	case in == "" || in == netfilter.UnknownIface || !c.Host.HasLinks():
		return maybe
	}
	// A VLAN or macvlan may be on a bridge: what the bridge has noted stays with the packet (br_pass_frame_up in
	// net/bridge/br_input.c, macvlan_handle_frame in drivers/net/macvlan.c).
	has, ok := c.Host.HasLink(in)
	if !ok || !has || c.Host.Master(in) != "" || strings.Contains(in, ".") || c.Host.MayBridge(in) {
		return maybe
	}
	for _, d := range c.Host.Devs() {
		if c.Host.Master(d) == in {
			return maybe
		}
	}
	return no
}

// bridgePort is bridged for a port by its name: no packet comes in or leaves by an interface that is no port of the
// bridge that this one came in by.
func bridgePort(arg string) (cond, bool) {
	return func(c *netfilter.Context) truth {
		t := bridged(c)
		if t == no || strings.HasSuffix(arg, "+") || strings.Contains(c.Packet.In, ".") {
			return t
		}
		if has, known := c.Host.HasLink(c.Packet.In); !has || !known {
			return t
		}
		bridge := c.Host.Master(c.Packet.In)
		if c.Host.Bridge(c.Packet.In) {
			bridge = c.Packet.In
		}
		if at := c.Host.Master(arg); at == "" || bridge != "" && at != bridge {
			return no
		}
		return t
	}, arg != ""
}

// packetType: packets to Services are for one host (net/netfilter/xt_pkttype.c).
func packetType(_ *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	unicast := op.Is(arg == "unicast")
	return func(c *netfilter.Context) truth {
		switch {
		case c.Packet.Resolves() && c.Packet.Dst.IsMulticast() && !c.Packet.Local:
			return op.Is(arg == "multicast") // it goes to a group's link-layer address (eth_type_trans)
		case c.Packet.Dst.IsMulticast():
			return maybe
		}
		return unicast
	}, ok && (arg == "unicast" || arg == "broadcast" || arg == "multicast")
}
