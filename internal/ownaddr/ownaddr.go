// SPDX-License-Identifier: Apache-2.0

// Package ownaddr lists the addresses that a machine, or a network namespace, has.
package ownaddr

import (
	"net"
	"net/netip"
)

// List returns the addresses of all interfaces in the network namespace of the calling thread, without their prefixes
// and zones.
func List() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addresses := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addresses = append(addresses, p.Addr().Unmap())
		}
	}
	return addresses, nil
}
