// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ctnetlink"
)

// so6OriginalDst is IP6T_SO_ORIGINAL_DST of uapi/linux/netfilter_ipv6/ip6_tables.h.
const so6OriginalDst = 80

// originalDestination asks connection tracking where a connection was sent before a rule redirected it (getorigdst in
// net/netfilter/nf_conntrack_proto.c). Of one that nobody redirected it is the socket's own address.
func originalDestination(c *net.TCPConn) (at netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return at, err
	}
	v6 := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().Is6() //nolint:forcetypeassert // of a TCPConn
	var asked error
	err = raw.Control(func(fd uintptr) {
		if v6 {
			var m *unix.IPv6MTUInfo // a struct sockaddr_in6, and more
			if m, asked = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, so6OriginalDst); asked == nil {
				at = netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), networkOrder(m.Addr.Port))
			}
			return
		}
		var m *unix.IPv6Mreq // 16 bytes, as a struct sockaddr_in has
		if m, asked = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); asked == nil {
			b := m.Multiaddr
			at = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4]))
		}
	})
	if err == nil {
		err = asked
	}
	return at, err
}

// redirected tells whether a datagram was redirected by the rules: its original destination is the frontend.
func redirected(from, front netip.AddrPort) bool {
	return ctnetlink.Find(unix.IPPROTO_UDP, from, front) != nil
}

// networkOrder reads a port as the kernel has it in a socket address.
func networkOrder(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
}

// ownAddress tells whether an address is the node's.
func ownAddress(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, x := range list {
		if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}
