// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"
	"strings"
)

// ParseAddr reads an IP address as kube-proxy does (k8s.io/utils/net, ParseIPSloppy): numbers of an IPv4 address may
// have leading zeros, and an IPv4 address in IPv6 notation is an IPv4 address.
func ParseAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		if a, err = netip.ParseAddr(withoutZeros(s)); err != nil {
			return netip.Addr{}, false
		}
	}
	return a.Unmap(), a.Zone() == ""
}

// ParsePrefix reads a CIDR as kube-proxy does; its host bits are cleared.
func ParsePrefix(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if p, err = netip.ParsePrefix(withoutZeros(s)); err != nil {
			return netip.Prefix{}, false
		}
	}
	return p.Masked(), true
}

func withoutZeros(s string) string {
	ip, bits, cidr := strings.Cut(s, "/")
	parts := strings.Split(ip, ".")
	for i, p := range parts {
		if t := strings.TrimLeft(p, "0"); p != "" {
			parts[i] = t
			if t == "" {
				parts[i] = "0"
			}
		}
	}
	ip = strings.Join(parts, ".")
	if cidr {
		return ip + "/" + bits
	}
	return ip
}
