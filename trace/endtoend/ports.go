// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// localPorts are the ports that sockets of a network namespace get which ask for none; the zero PortRange where that is
// not known.
func localPorts(h *host.Network) (r netfilter.PortRange) {
	if first, last, known := h.LocalPorts(); known {
		r = netfilter.PortRange{First: first, Last: last}
	}
	return r
}

// clientPorts are those of the client's socket.
func (c *Connection) clientPorts() (r netfilter.PortRange) {
	switch p := c.Client.Pods[c.Pod]; {
	case c.Outside:
	case c.Pod == "":
		return localPorts(c.Client.Host)
	case p != nil && p.State != nil:
		return localPorts(p.Host)
	}
	return r
}

// portsAfter are those of a packet that comes to another network namespace; the zero PortRange where a rule has
// translated its source.
func portsAfter(p *netfilter.Packet) netfilter.PortRange {
	if p.SNAT {
		return netfilter.PortRange{}
	}
	return p.Ports
}

// outerPorts are the source ports of a VXLAN's outer packets (udp_flow_src_port in include/net/udp.h). In place of a
// range of one port some kernels take the node's own.
func outerPorts(h *host.Network, v *host.VXLAN) netfilter.PortRange {
	switch {
	case v.FirstPort < v.LastPort:
		return netfilter.PortRange{First: v.FirstPort, Last: v.LastPort}
	case v.FirstPort == v.LastPort && v.LastPort != 0:
		return netfilter.PortRange{}
	}
	return localPorts(h)
}
