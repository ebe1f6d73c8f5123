// SPDX-License-Identifier: Apache-2.0

package netfilter

import "net/netip"

// SourceNamer is an Op that tells packets apart by the addresses of their sources.
type SourceNamer interface {
	Op
	// NamesSources calls f with every range of addresses, first and last, that it compares a packet's source with.
	NamesSources(f func(first, last netip.Addr))
}

// SourceTerms are what a rule tells packets apart by as to where they come from, negated or not.
type SourceTerms struct {
	Ranges     [][2]netip.Addr // first and last address
	Sets       []string        // ipsets that are asked for the source
	Interfaces []string        // patterns of the interface that packets come in by
}
