// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"slices"
	"strings"
)

// link is what ip link and ip addr tell of an interface.
type link struct {
	up, noCarrier bool
	flags         bool // they were collected
	mac           string
	mtu           int
	kind          string // as ip -d link names it; "" where it was not collected, and of an interface without one
	lower         string // the interface that it is on top of
	index, peer   int    // its number, and that of the other end in another network namespace; 0 where not collected
	// nfCall are the bridge's own settings nf_call_iptables and nf_call_ip6tables; nil where not collected.
	nfCall [2]*int
	xdp    string // its program; "" for none
}

// setLink records what an interface's listing says; the latest file that tells something counts.
func (n *Network) setLink(l *ipLink) {
	x := n.links[l.Name]
	if l.Flags != nil {
		x.flags = true
		x.up, x.noCarrier = slices.Contains(l.Flags, "UP"), slices.Contains(l.Flags, "NO-CARRIER")
	}
	if l.MAC != "" {
		x.mac = l.MAC
	}
	if l.MTU > 0 {
		x.mtu = l.MTU
	}
	if l.Lower != "" {
		x.lower = l.Lower
	}
	if l.Index != 0 {
		x.index = l.Index
	}
	if l.Peer != 0 {
		x.peer = l.Peer
	}
	if l.Info != nil {
		x.kind = l.Info.Kind
		x.nfCall = [2]*int{l.Info.Data.CallIPTables, l.Info.Data.CallIP6Tables}
	}
	if l.XDP != nil {
		x.xdp = strings.TrimSpace(fmt.Sprintf("program %d %s", l.XDP.Prog.ID, l.XDP.Prog.Name))
	}
	n.links[l.Name] = x
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
