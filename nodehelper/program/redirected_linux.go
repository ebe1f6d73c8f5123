// SPDX-License-Identifier: Apache-2.0

package program

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/ownaddr"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ctnetlink"
)

// redirected tells whether a datagram was redirected by the rules: its original destination is the frontend.
func redirected(from, front netip.AddrPort) bool {
	return ctnetlink.Find(unix.IPPROTO_UDP, from, front) != nil
}

// ownAddresses are the node's addresses. They are asked for once a second at most: where kube-proxy in ipvs mode has
// given an interface thousands of them, that takes milliseconds.
type ownAddresses struct {
	mu    sync.Mutex
	asked time.Time
	list  map[netip.Addr]bool
}

func (o *ownAddresses) has(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.list != nil && time.Since(o.asked) < time.Second {
		return o.list[a]
	}
	list, err := ownaddr.List()
	if err != nil {
		return false
	}
	o.asked, o.list = time.Now(), make(map[netip.Addr]bool, len(list))
	for _, own := range list {
		o.list[own] = true
	}
	return o.list[a]
}
