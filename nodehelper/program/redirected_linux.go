// SPDX-License-Identifier: Apache-2.0

package program

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ctnetlink"
)

// redirected tells whether a datagram was redirected by the rules: its original destination is the frontend.
func redirected(from, front netip.AddrPort) bool {
	return ctnetlink.Find(unix.IPPROTO_UDP, from, front) != nil
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
