// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// connectionsFile is IPVS's connection table of the network namespace, as text; it is not there where the kernel has no
// IPVS. It cannot be asked for one connection. Unlike connection tracking it is there with net.ipv4.vs.conntrack=0,
// too.
const connectionsFile = "/proc/thread-self/net/ip_vs_conn"

// scheduled notes beside each connection of a target the real server that IPVS has sent it to. It is called while the
// kernel still remembers them: for 10 s after a refusal, for longer after any other end (tcp_timeouts in
// net/netfilter/ipvs/ip_vs_proto_tcp.c).
func scheduled(t snapshot.ProbeTarget, list ...*snapshot.Probe) {
	file, err := os.Open(connectionsFile)
	if err != nil {
		return
	}
	defer file.Close()
	matchScheduled(file, t, list)
}

// matchScheduled reads the table (ip_vs_conn_seq_show in net/netfilter/ipvs/ip_vs_conn.c): protocol, client, its port,
// virtual server, its port, real server, its port, all in hexadecimal. A line that it cannot read is none of these
// connections.
func matchScheduled(table io.Reader, t snapshot.ProbeTarget, list []*snapshot.Probe) {
	byLocal := make(map[netip.AddrPort]*snapshot.Probe, len(list))
	for _, p := range list {
		if p.Local.IsValid() {
			byLocal[p.Local] = p
		}
	}
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) < 7 || w[0] != t.Protocol || scheduledAt(w[3], w[4]) != t.To {
			continue
		}
		p := byLocal[scheduledAt(w[1], w[2])]
		if p != nil && !earlierConnection(t.Protocol, p, w[7:]) {
			p.RealServer = scheduledAt(w[5], w[6])
		}
	}
}

// opening are the states of a TCP connection that is not open yet (ip_vs_proto_tcp.c).
var opening = []string{"NONE", "SYN_SENT", "SYN_RECV", "SYNACK"}

// earlierConnection tells whether a line whose state comes next is of an earlier connection from the same port: the
// kernel reuses ports, and this one was never answered, perhaps dropped before IPVS saw it.
func earlierConnection(protocol string, p *snapshot.Probe, state []string) bool {
	return protocol == "TCP" && p.Result == snapshot.ProbeTimeout && len(state) > 0 && !slices.Contains(opening, state[0])
}

// scheduledAt reads an address and a port of the table: an IPv4 address is a number, an IPv6 one has colons, and
// brackets in some places.
func scheduledAt(address, port string) netip.AddrPort {
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}
	}
	if a, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return netip.AddrPortFrom(a, uint16(number))
	}
	v4, err := strconv.ParseUint(address, 16, 32)
	if err != nil {
		return netip.AddrPort{}
	}
	//nolint:gosec // its bytes
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(v4 >> 24), byte(v4 >> 16), byte(v4 >> 8), byte(v4)}),
		uint16(number))
}
