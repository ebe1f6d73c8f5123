// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// address is one address of an interface.
type address struct {
	ip         netip.Addr
	prefix     netip.Prefix // of its subnet; the peer's where there is one
	dev        string
	scope      uint8
	secondary  bool
	temporary  bool
	deprecated bool
	awaitsDAD  string // why it is not in use: how ip names the state of duplicate address detection; "" where it is
	// wanted: its interface prefers temporary addresses. Both are the same where that is known.
	wanted [2]bool
}

// ipLink is an interface as ip -j addr and ip -j link print it.
type ipLink struct {
	Name   string   `json:"ifname"`
	Master string   `json:"master"`
	Lower  string   `json:"link"`
	Space  *int     `json:"link_netnsid"` // of the other end, or of Lower, where that is in another network namespace
	Index  int      `json:"ifindex"`
	Peer   int      `json:"link_index"` // in another network namespace, in place of Lower
	MAC    string   `json:"address"`
	MTU    int      `json:"mtu"`
	Flags  []string `json:"flags"`
	Addrs  []ipAddr `json:"addr_info"`

	Group       string    `json:"group"`
	Promiscuity int       `json:"promiscuity"`
	AddrGenMode string    `json:"inet6_addr_gen_mode"` // only ip -d prints it
	Info        *linkInfo `json:"linkinfo"`
	XDP         *ipXDP    `json:"xdp"`

	// Those of an entry of ip -j addrlabel, with MAC and Name.
	PrefixLen *int    `json:"prefixlen"`
	Label     *uint32 `json:"label"`
}

// ipXDP is the XDP program of an interface.
type ipXDP struct {
	Prog struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	} `json:"prog"`
}

type ipAddr struct {
	Family     string `json:"family"`
	Local      string `json:"local"`
	Peer       string `json:"address"`
	PrefixLen  *int   `json:"prefixlen"`
	Broadcast  string `json:"broadcast"`
	Scope      string `json:"scope"`
	Secondary  bool   `json:"secondary"`
	Temporary  bool   `json:"temporary"`
	Deprecated bool   `json:"deprecated"`
	Tentative  bool   `json:"tentative"`
	Optimistic bool   `json:"optimistic"`
	DADFailed  bool   `json:"dadfailed"`
}

// readAddrs reads ip-addr.json: the addresses, and behind them, if it was read, the table of labels.
func (n *Network) readAddrs(data []byte) error {
	const both = 2
	lists, err := decodeLists[ipLink](data, both)
	if err != nil {
		return err
	}
	var labels []label6
	if len(lists) == both {
		if labels, err = readLabels(lists[1]); err != nil {
			return err
		}
	}
	links := lists[0]
	if err := named(data, links); err != nil {
		return err
	}
	type source struct {
		link *ipLink
		addr *ipAddr
	}
	var from []source
	all := []address{}
	for i := range links {
		l := &links[i]
		for j := range l.Addrs {
			a := &l.Addrs[j]
			if a.Family != "inet" && a.Family != "inet6" || a.Local == "" {
				continue // ip also lists link-layer families, and prints {} for addresses that a filter excluded
			}
			b, err := a.read(l.Name)
			if err != nil {
				return err
			}
			all = append(all, b)
			from = append(from, source{l, a})
		}
	}
	if len(all) == 0 {
		return errors.New("it has no address, although lo always has one")
	}
	n.setLinks(links)
	n.labels = labels
	n.addrs = all
	n.devs = map[string][]int{}
	for i := range n.fam {
		n.fam[i].addrsKnown = true
		n.fam[i].makeLocal()
	}
	for i, b := range all {
		n.devs[b.dev] = append(n.devs[b.dev], i)
	}
	for i, b := range all {
		n.subnet(from[i].link, from[i].addr, b)
		if b.awaitsDAD == "" {
			n.family(b.ip).local[b.ip] = n.primaryOf(b)
		}
	}
	return nil
}

// awaitsDAD says why an IPv6 address has no local route yet: it gets one when duplicate address detection has completed
// (addrconf_dad_completed in net/ipv6/addrconf.c). "" for one that has; IPv4 has no such state.
func (a *ipAddr) awaitsDAD() string {
	switch {
	case a.Family != "inet6":
		return ""
	case a.DADFailed:
		return "dadfailed"
	case a.Tentative && !a.Optimistic:
		return "tentative"
	}
	return ""
}

func (a *ipAddr) read(dev string) (address, error) {
	ip, err := netip.ParseAddr(a.Local)
	if err != nil || ip.Zone() != "" || ip.Is4() != (a.Family == "inet") {
		return address{}, fmt.Errorf("interface %q has %q for an %s address", dev, a.Local, a.Family)
	}
	if dev == "" {
		return address{}, fmt.Errorf("address %s has no interface name", ip)
	}
	bits, base := ip.BitLen(), ip
	if a.PrefixLen != nil {
		bits = *a.PrefixLen
	}
	if a.Peer != "" {
		if base, err = netip.ParseAddr(a.Peer); err != nil || base.Is4() != ip.Is4() {
			return address{}, fmt.Errorf("interface %q has %q for a peer address", dev, a.Peer)
		}
	}
	prefix, err := base.Prefix(bits)
	if err != nil {
		return address{}, fmt.Errorf("interface %q has an address with prefix length %d", dev, bits)
	}
	return address{
		ip: ip, prefix: prefix, dev: dev, scope: scopeOf(a.Scope), secondary: a.Secondary && ip.Is4(),
		temporary: a.Temporary, deprecated: a.Deprecated, awaitsDAD: a.awaitsDAD(),
	}, nil
}

// primaryOf returns the primary address of a secondary IPv4 address's subnet, and any other address itself.
func (n *Network) primaryOf(a address) netip.Addr {
	if a.secondary {
		for _, i := range n.devs[a.dev] {
			if p := n.addrs[i]; !p.secondary && p.prefix == a.prefix {
				return p.ip
			}
		}
	}
	return a.ip
}

// subnet adds the routes to the local table that the kernel makes of an IPv4 address besides the one to itself
// (fib_add_ifaddr in net/ipv4/fib_frontend.c): none while the interface is down.
func (n *Network) subnet(l *ipLink, a *ipAddr, b address) {
	if !b.ip.Is4() || !slices.Contains(l.Flags, "UP") {
		return
	}
	f := &n.fam[0]
	if cast, err := netip.ParseAddr(a.Broadcast); err == nil && cast.Is4() && cast != limitedBroadcast4 {
		f.broadcast[cast] = l.Name
	}
	if b.secondary || zeroNet4.Contains(b.prefix.Addr()) || b.prefix.Bits() == 32 {
		return
	}
	if slices.Contains(l.Flags, "LOOPBACK") {
		f.localNets = append(f.localNets, localNet{b.prefix, b.ip})
	}
	if b.prefix.Bits() < 31 {
		f.broadcast[lastOf(b.prefix)] = l.Name
	}
}

// lastOf returns the last address of an IPv4 prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

func (f *family) makeLocal() {
	if f.local == nil {
		f.local = map[netip.Addr]netip.Addr{}
		f.broadcast = map[netip.Addr]string{}
	}
}

// named returns the error of an entry that is no interface, or of an address of one without a family, of the first list
// of a text. ip prints {} for what a filter excluded.
func named(data []byte, links []ipLink) error {
	odd := func(l ipLink) bool {
		return l.Name == "" || slices.ContainsFunc(l.Addrs, func(a ipAddr) bool { return a.Family == "" })
	}
	if !slices.ContainsFunc(links, odd) {
		return nil
	}
	var all []map[string]json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&all); err != nil {
		return badJSON(err, len(data))
	}
	for i, fields := range all {
		var addrs []map[string]json.RawMessage
		if text := fields["addr_info"]; text != nil {
			if err := json.Unmarshal(text, &addrs); err != nil {
				return badJSON(err, len(data))
			}
		}
		if len(fields) > 0 && links[i].Name == "" || slices.ContainsFunc(addrs, func(a map[string]json.RawMessage) bool {
			return len(a) > 0 && a["family"] == nil
		}) {
			return fmt.Errorf("entry %d has something that is neither an interface nor an address of one", i+1)
		}
	}
	return nil
}

// readLinks reads ip-link.json. The interfaces are also in ip-addr.json, which may be missing.
func (n *Network) readLinks(data []byte) error {
	links, err := decode[ipLink](data)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(links, func(l ipLink) bool { return l.Name != "" }) {
		return errors.New("it has no interface, although every node has lo")
	}
	if err := named(data, links); err != nil {
		return err
	}
	n.setLinks(links)
	n.readTunnels(data)
	return nil
}

func (n *Network) setLinks(links []ipLink) {
	if n.master == nil {
		n.master, n.bridges, n.promiscuous = map[string]string{}, map[string]*bridge{}, map[string]bool{}
		n.vrfs, n.groups = map[string]bool{}, map[string]string{}
		n.links = map[string]link{}
	}
	for i := range links {
		l := &links[i]
		if l.Name == "" {
			continue
		}
		n.setBridge(l)
		n.setKind(l)
		n.setLink(l)
		if l.Master != "" || n.master[l.Name] == "" {
			n.master[l.Name] = l.Master
		}
	}
}
