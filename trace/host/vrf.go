// SPDX-License-Identifier: Apache-2.0

package host

import "strconv"

// kindVRF is the kind of an interface (ip -d link, info_kind) that has a routing table for those which belong to it
// (drivers/net/vrf.c).
const kindVRF = "vrf"

// setKind records an interface's kind and group.
func (n *Network) setKind(l *ipLink) {
	if l.Info != nil && l.Info.Kind == kindVRF {
		n.vrfs[l.Name] = true
	}
	n.kindsKnown = n.kindsKnown || l.Info != nil || l.AddrGenMode != ""
	if l.Group != "" {
		n.groups[l.Name] = groupName(l.Group)
	}
}

// vrfOf returns the VRF that an interface is, or belongs to; "" for none, and where it is not known.
func (n *Network) vrfOf(dev string) string {
	if n.vrfs[dev] {
		return dev
	}
	if m := n.master[dev]; n.vrfs[m] {
		return m
	}
	return ""
}

// byVRF tells whether a packet belongs to a VRF (l3mdev_fib_rule_match in net/l3mdev/l3mdev.c): without any no packet
// does, and that of a local process only where its socket is bound to an interface.
func (n *Network) byVRF(q *Query) truth {
	dev := q.In
	if q.Local {
		dev = q.Out
	}
	switch {
	case q.Local && dev == "", n.kindsKnown && len(n.vrfs) == 0:
		return knownTruth(false)
	case dev == "" || n.master == nil:
		return truth{}
	case n.master[dev] == "" && !n.vrfs[dev]:
		return knownTruth(false)
	}
	return truth{n.vrfOf(dev) != "", n.kindsKnown || n.Bridge(n.master[dev])}
}

// groupOf returns the group of an interface, as ip prints it; that which interfaces have by default where it is not
// known.
func (n *Network) groupOf(dev string) string {
	if g := n.groups[dev]; g != "" {
		return g
	}
	return defaultGroup
}

// Group returns the number of an interface's group; known is false where it was not collected, and where ip has a name
// for it of its own (/etc/iproute2/group).
func (n *Network) Group(dev string) (group uint32, known bool) {
	g := n.groups[dev]
	if g == defaultGroup {
		return 0, true
	}
	number, err := strconv.ParseUint(g, 10, 32)
	return uint32(number), err == nil
}

const defaultGroup = "default"

// groupName returns the name that ip gives to a group of interfaces.
func groupName(s string) string {
	if s == "0" {
		return defaultGroup
	}
	return s
}
