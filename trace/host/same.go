// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"reflect"
)

// conntrackCount counts the kernel's connections. It differs at each reading, and decides no packet.
const conntrackCount = "net/netfilter/nf_conntrack_count"

// found are the states of a neighbour whose link-layer address the kernel uses (NUD_VALID in
// include/net/neighbour.h), but for PROBE, in which nobody has answered so far. An entry goes from one to the other by
// the minute, and packets to it the same way. That one has just answered counts behind a bridge that filters VLANs, and
// where somebody has set the port at which a bridge finds it.
var found = map[string]bool{"REACHABLE": true, "STALE": true, "DELAY": true}

// Same tells whether two readings of a node's network are equal in all that packets go by: all but the time, the
// number of connections, and how long ago a neighbour has answered.
func (n *Network) Same(o *Network) bool {
	a, b := *n, *o
	for _, x := range []*Network{&a, &b} {
		x.clock.Now = Clock{}.Now
		if _, ok := x.sysctl[conntrackCount]; ok {
			x.sysctl = maps.Clone(x.sysctl)
			x.sysctl[conntrackCount] = ""
		}
		x.neighbours = maps.Clone(x.neighbours)
		for key, e := range x.neighbours {
			if found[e.State] && x.VLANBridge(key.dev) == "" && x.SetAt(key.dev, e.MAC) == "" {
				e.State = ""
				x.neighbours[key] = e
			}
		}
	}
	return reflect.DeepEqual(&a, &b)
}

// KnowsAddresses tells whether the node's own addresses of a family were collected, so that nothing else has to tell
// which are not its own.
func (n *Network) KnowsAddresses(v4 bool) bool {
	if v4 {
		return n.fam[0].addrsKnown
	}
	return n.fam[1].addrsKnown
}
