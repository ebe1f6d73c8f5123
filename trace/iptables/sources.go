// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// SourcesOf returns the terms of a rule as iptables-save has it.
func SourcesOf(r *netfilter.Rule) netfilter.SourceTerms {
	var out netfilter.SourceTerms
	words, err := split(r.Text, nil)
	if err != nil {
		return out
	}
	for i := 0; i+1 < len(words); i++ {
		if words[i].quoted {
			continue
		}
		arg := words[i+1].text
		switch words[i].text {
		case "-s", "--ctorigsrc":
			if p, err := netip.ParsePrefix(arg); err == nil {
				out.Ranges = append(out.Ranges, [2]netip.Addr{p.Masked().Addr(), lastOf(p)})
			} else if a, err := netip.ParseAddr(arg); err == nil {
				out.Ranges = append(out.Ranges, [2]netip.Addr{a, a})
			}
		case "--src-range":
			from, to, _ := strings.Cut(arg, "-")
			a, err1 := netip.ParseAddr(from)
			if b, err2 := netip.ParseAddr(to); err1 == nil && err2 == nil {
				out.Ranges = append(out.Ranges, [2]netip.Addr{a, b})
			}
		case "--match-set":
			if i+2 < len(words) && strings.Contains(words[i+2].text, "src") {
				out.Sets = append(out.Sets, arg)
			}
		case "-i", "--physdev-in":
			out.Interfaces = append(out.Interfaces, arg)
		}
	}
	return out
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		if free := 8*(i+1) - p.Bits(); free > 0 {
			b[i] |= byte(1<<min(free, 8) - 1)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
