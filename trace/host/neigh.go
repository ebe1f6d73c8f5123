// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Neighbour is an entry of the kernel's neighbour table: the link-layer address of a next hop.
type Neighbour struct {
	MAC string // as ip prints it; "" where it is not known
	// Static: a person or a program has set the address, and the kernel never asks for it (NUD_PERMANENT, NUD_NOARP).
	Static bool
	// Failed: the kernel has asked, and nobody answered (NUD_FAILED), or not yet (NUD_INCOMPLETE). The next packet has it
	// ask anew (neigh_event_send in net/core/neighbour.c).
	Failed bool
	State  string // as ip prints it
}

type neighbourKey struct {
	dev string
	ip  netip.Addr
}

// macKey is a link-layer address on an interface, in lower case.
type macKey struct{ dev, mac string }

// ipNeighbour is an entry as ip -j neigh prints it.
type ipNeighbour struct {
	Dst   string   `json:"dst"`
	Dev   string   `json:"dev"`
	MAC   string   `json:"lladdr"`
	State []string `json:"state"`
}

// readNeighbours reads ip-neigh.json: the table, and behind it, if it was read, the list of addresses for which the
// node answers in place of others. A list without entries is one: a node that has talked to nobody has none.
func (n *Network) readNeighbours(data []byte) error {
	const both = 2
	lists, err := decodeLists[ipNeighbour](data, both)
	if err != nil {
		return err
	}
	if len(lists) == both {
		proxied := map[neighbourKey]bool{}
		for i := range lists[1] {
			x := &lists[1][i]
			ip, err := parseAddr(x.Dst)
			if err != nil {
				return err
			}
			proxied[neighbourKey{x.Dev, ip}] = true // on all interfaces where it has none (pneigh_lookup)
		}
		n.proxied = proxied
	}
	list := lists[0]
	all := make(map[neighbourKey]Neighbour, len(list))
	for i := range list {
		x := &list[i]
		ip, err := parseAddr(x.Dst)
		if err != nil {
			return err
		}
		if x.Dev == "" {
			return fmt.Errorf("the neighbour %s has no interface", ip)
		}
		e := Neighbour{MAC: x.MAC}
		if len(x.State) > 0 {
			e.State = x.State[0]
		}
		is := func(state string) bool { return slices.Contains(x.State, state) }
		e.Static = is("PERMANENT") || is("NOARP")
		e.Failed = is("FAILED") || is("INCOMPLETE")
		all[neighbourKey{x.Dev, ip}] = e
	}
	n.neighbours, n.foundAt, n.foundAs = all, map[netip.Addr][]string{}, map[macKey][]netip.Addr{}
	for key, e := range all {
		if e.MAC != "" && !e.Static && !e.Failed {
			n.foundAt[key.ip] = append(n.foundAt[key.ip], key.dev)
			as := macKey{key.dev, strings.ToLower(e.MAC)}
			n.foundAs[as] = append(n.foundAs[as], key.ip)
		}
	}
	for _, list := range n.foundAt {
		slices.Sort(list)
	}
	for _, list := range n.foundAs {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	return nil
}

// HasNeighbours tells whether the neighbour table was collected.
func (n *Network) HasNeighbours() bool { return n.neighbours != nil }

// Neighbour returns the entry for a next hop on an interface; ok is false where there is none, and where the table was
// not collected.
func (n *Network) Neighbour(dev string, hop netip.Addr) (e Neighbour, ok bool) {
	e, ok = n.neighbours[neighbourKey{dev, hop.Unmap().WithZone("")}]
	return e, ok
}

// Neighbours returns the addresses on an interface that the kernel has found to have a MAC, by asking, in ascending
// order.
func (n *Network) Neighbours(dev, mac string) []netip.Addr {
	return n.foundAs[macKey{dev, strings.ToLower(mac)}]
}

// Behind returns the interface for pods only that an address is behind: where the kernel has found it, by asking for it
// or by being asked; and where it has found it nowhere, the bridge in whose subnet it is, if that is up. "" where there
// is none, or several, and where that was not collected.
func (n *Network) Behind(a netip.Addr) (dev string) {
	a = a.Unmap().WithZone("")
	at := n.foundAt[a]
	for _, d := range at {
		switch {
		case !n.PodsOnly(d, a.Is4()):
		case dev != "":
			return ""
		default:
			dev = d
		}
	}
	if len(at) > 0 {
		return dev
	}
	if within := n.Within(a); n.Bridge(within) && n.links[within].up && !n.NoCarrier(within) &&
		n.PodsOnly(within, a.Is4()) {
		return within
	}
	return ""
}

// NeverAsks returns the settings by which the kernel asks nobody on an interface for a neighbour that it has no address
// of, and discards packets to it (__neigh_event_send in net/core/neighbour.c); nil where it asks, where a program may
// ask in its place, and where that was not collected.
func (n *Network) NeverAsks(dev string, v4 bool) (settings []string) {
	ip := "ipv6"
	if v4 {
		ip = "ipv4"
	}
	for _, name := range []string{"mcast_solicit", "app_solicit"} {
		key := "net/" + ip + "/neigh/" + dev + "/" + name
		if n.sysctl[key] != "0" {
			return nil
		}
		settings = append(settings, key+"=0")
	}
	return settings
}

// AnswersLate returns the setting by which the node may wait longer than others ask before it answers by ARP in place
// of an address that is not its own; "" where it does not. The kernel waits a random part of proxy_delay, hundredths of
// a second (pneigh_enqueue in net/core/neighbour.c), and others ask three times, a second apart.
func (n *Network) AnswersLate(dev string) string {
	const asked = 300
	key := "net/ipv4/neigh/" + dev + "/proxy_delay"
	if wait, err := strconv.Atoi(n.sysctl[key]); err == nil && wait > asked {
		return key + "=" + n.sysctl[key]
	}
	return ""
}
