// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
)

// label6 is an entry of the table of labels that rule 6 of RFC 6724 compares.
type label6 struct {
	prefix netip.Prefix
	label  uint32
	dev    string // of addresses of this interface alone; "" for any
}

// noLabel is the label of an address that no entry has (IPV6_ADDR_LABEL_DEFAULT in include/net/addrconf.h).
const noLabel = 0xffffffff

// labels6 are those that the kernel starts with (ip6addrlbl_init_table in net/ipv6/addrlabel.c), longest first.
var labels6 = []label6{
	{netip.MustParsePrefix("::1/128"), 0, ""},
	{netip.MustParsePrefix("::/96"), 3, ""},
	{netip.MustParsePrefix("::ffff:0:0/96"), 4, ""},
	{netip.MustParsePrefix("2001::/32"), 6, ""},
	{netip.MustParsePrefix("2001:10::/28"), 7, ""},
	{netip.MustParsePrefix("3ffe::/16"), 12, ""},
	{netip.MustParsePrefix("2002::/16"), 2, ""},
	{netip.MustParsePrefix("fec0::/10"), 11, ""},
	{netip.MustParsePrefix("fc00::/7"), 5, ""},
	{netip.MustParsePrefix("::/0"), 1, ""},
}

// readLabels reads the list behind the addresses, which is in the order in which the kernel asks: the first entry that
// has an address is that of it (__ipv6_addr_label in net/ipv6/addrlabel.c).
func readLabels(list []ipLink) ([]label6, error) {
	out := make([]label6, 0, len(list))
	for i := range list {
		x := &list[i]
		a, err := netip.ParseAddr(x.MAC)
		if err != nil || a.Zone() != "" || a.Is4() || x.PrefixLen == nil || x.Label == nil {
			return nil, fmt.Errorf("it has %q for the prefix of a label", x.MAC)
		}
		p, err := a.Prefix(*x.PrefixLen)
		if err != nil {
			return nil, fmt.Errorf("it has %d bits for the prefix of a label", *x.PrefixLen)
		}
		out = append(out, label6{p, *x.Label, x.Name})
	}
	return out, nil
}

// label6 returns the label of an address of an interface: that of a destination is the one that packets leave by.
func (n *Network) label6(a netip.Addr, dev string) uint32 {
	list := n.labels
	if list == nil {
		list = labels6
	}
	for i := range list {
		if l := &list[i]; (l.dev == "" || l.dev == dev) && l.prefix.Contains(a) {
			return l.label
		}
	}
	return noLabel
}

// AddressLabels yields the entries of that table that somebody has set, as ip addrlabel prints them, with their labels,
// and those that somebody has deleted.
func (n *Network) AddressLabels() iter.Seq2[string, string] {
	return func(yield func(entry, label string) bool) {
		if n.labels == nil {
			return
		}
		lists := [][2][]label6{{n.labels, labels6}, {labels6, n.labels}}
		for deleted, x := range lists {
			for _, l := range x[0] {
				text, label := "prefix "+l.prefix.String(), strconv.FormatUint(uint64(l.label), 10)
				if l.dev != "" {
					text += " dev " + l.dev
				}
				same := func(o label6) bool { return o == l }
				other := func(o label6) bool { return o.prefix == l.prefix && o.dev == l.dev }
				if deleted == 1 {
					same, label = other, "none"
				}
				if !slices.ContainsFunc(x[1], same) && !yield(text, label) {
					return
				}
			}
		}
	}
}
