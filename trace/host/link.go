// SPDX-License-Identifier: Apache-2.0

package host

import "slices"

// link is what ip link and ip addr tell of an interface itself.
type link struct {
	up, noCarrier bool
	flags         bool // they were collected
	mac           string
	mtu           int
}

// setLink records what an interface's listing says; the latest file that tells something counts.
func (n *Network) setLink(l *ipLink) {
	if n.links == nil {
		n.links = map[string]link{}
	}
	was := n.links[l.Name]
	if l.Flags != nil {
		was.flags = true
		was.up, was.noCarrier = slices.Contains(l.Flags, "UP"), slices.Contains(l.Flags, "NO-CARRIER")
	}
	if l.MAC != "" {
		was.mac = l.MAC
	}
	if l.MTU > 0 {
		was.mtu = l.MTU
	}
	n.links[l.Name] = was
}

// NoCarrier tells whether an interface is up and has no carrier: the kernel takes its queue away, and drops what is
// sent by it (linkwatch_do_dev in net/core/link_watch.c, dev_deactivate in net/sched/sch_generic.c). It is false where
// that was not collected. Routes by an interface that is down are removed by the kernel (fib_disable_ip in
// net/ipv4/fib_frontend.c), so that nothing is sent by it.
func (n *Network) NoCarrier(dev string) bool {
	l := n.links[dev]
	return l.flags && l.up && l.noCarrier
}

// MTU returns the largest packet that an interface sends, in bytes; 0 where that is not known.
func (n *Network) MTU(dev string) int { return n.links[dev].mtu }

// MAC returns the link-layer address of an interface, as ip prints it; "" where it has none, or that is not known.
func (n *Network) MAC(dev string) string { return n.links[dev].mac }
