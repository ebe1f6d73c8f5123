// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
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

// portless is the segment of a client in a network namespace that has no port for its socket: connect fails
// (__inet_hash_connect in net/ipv4/inet_hashtables.c, udp_lib_get_port in net/ipv4/udp.c).
func portless(h *host.Network, place string) (s report.Segment, none bool) {
	if count, known := h.EphemeralPorts(); !known || count > 0 {
		return s, false
	}
	given, _ := h.Sysctl(host.LocalPortRange)
	reserved, _ := h.Sysctl(host.LocalReservedPorts)
	return with(wrong(PodDrops, report.SegmentClientPod, place, "a setting of the kernel",
		"the kernel has no port for the client's socket: all of ip_local_port_range are reserved"),
		host.LocalPortRange+"="+given, host.LocalReservedPorts+"="+reserved), true
}

// crowded is the segment of a client whose pod may have no port left for its socket: there are as many sockets as
// ports. A socket of TCP needs one that no other of the same destination has, also while that one waits for late
// packets (TIME_WAIT); one of UDP needs one of its own.
func (c *Connection) crowded(p *Pod, place string) (s report.Segment, may bool) {
	ports, known := p.Host.EphemeralPorts()
	used, proto, unless := 0, "", ""
	switch {
	case !known || p.InUse == nil:
		return s, false
	case c.Start.Packet.Proto == netfilter.TCP:
		used, proto, unless = p.InUse.TCP+p.InUse.TimeWait, "TCP", ", unless they are connections of others or to others"
	case c.Start.Packet.Proto == netfilter.UDP:
		used, proto = p.InUse.UDP, "UDP"
	}
	if used < ports {
		return s, false
	}
	s = unknown(report.SegmentClientPod, place, c.Client.Name, enter("ss -tuan"), "the pod has %d sockets of %s, and the "+
		"kernel has %d ports for sockets that ask for none: the client may get no port (cannot assign requested address)%s",
		used, proto, ports, unless)
	return with(s, fmt.Sprintf("sockstat: %d sockets of %s, with those in TIME_WAIT", used, proto)), true
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
