// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// sentBySomebody: of a packet that the node sends the snapshot does not tell by which of its processes.
func unknownProcess(c *netfilter.Context) truth {
	if c.Packet.Local {
		return maybe
	}
	return no
}

// mayHaveSocket: ahead of routing the kernel may have found the socket already (net/netfilter/xt_cgroup.c, early
// demux).
func mayHaveSocket(c *netfilter.Context) truth {
	return op.Is(c.Packet.Local || c.Hook == netfilter.Input || c.Hook == netfilter.Prerouting)
}

// bridged tells whether a packet has come by a port of a bridge with br_netfilter: no where it surely has not; then
// every option of physdev fails (net/netfilter/xt_physdev.c, nf_bridge_info_exists). Of one that has, the port is
// not known.
func bridged(c *netfilter.Context) truth {
	in := c.Packet.In
	switch {
	case c.Packet.Local, in == "lo":
		return no
	case in == "" || in == netfilter.UnknownIface || !c.Host.HasLinks():
		return maybe
	}
	// a VLAN may lie on a bridge
	if has, ok := c.Host.HasLink(in); !ok || !has || c.Host.Master(in) != "" || strings.Contains(in, ".") {
		return maybe
	}
	for _, d := range c.Host.Devs() {
		if c.Host.Master(d) == in {
			return maybe
		}
	}
	return no
}

// packetType: a Service's packet is for one host (net/netfilter/xt_pkttype.c).
func packetType(_ *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	unicast := op.Is(arg == "unicast")
	return func(c *netfilter.Context) truth {
		if c.Packet.Dst.IsMulticast() {
			return maybe
		}
		return unicast
	}, ok && (arg == "unicast" || arg == "broadcast" || arg == "multicast")
}
