// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// several begins the names that stand for one of several interfaces ([netfilter.Context.OneOf]).
const several = netfilter.UnknownIface + " "

// oneOfSeveral tells whether an interface of the packet is one of several.
func oneOfSeveral(p *netfilter.Packet) bool {
	return strings.HasPrefix(p.In, several) || strings.HasPrefix(p.Out, several)
}

// forEach runs a match for each of the interfaces that the packet may have. Where all come to the same, so does it.
func forEach(c *netfilter.Context, m netfilter.Op) netfilter.Effect {
	at := &c.Packet.In
	if !strings.HasPrefix(*at, several) {
		at = &c.Packet.Out
	}
	name := *at
	defer func() { *at = name }()
	var all netfilter.Effect
	for i, dev := range c.OneOf[name] {
		*at = dev
		c.Work++
		e := m.Run(c)
		switch {
		case i == 0:
			all = e
		case e.Kind != all.Kind:
			return netfilter.Effect{Kind: netfilter.Unknown, Why: "it depends on the interface, one of " +
				strings.Join(c.OneOf[name][:min(len(c.OneOf[name]), maxNamed)], ", ") + more(len(c.OneOf[name]))}
		}
	}
	return all
}

// maxNamed is how many interfaces are named.
const maxNamed = 4

func more(n int) string {
	if n > maxNamed {
		return ", …"
	}
	return ""
}
