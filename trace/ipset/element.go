// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// protocols are the numbers of protocols by their names in /etc/protocols, which ipset prints.
var protocols = map[string]uint8{
	"tcp": netfilter.TCP, "udp": netfilter.UDP, "udplite": netfilter.UDPLite, "sctp": netfilter.SCTP,
	"dccp": netfilter.DCCP,
	"icmp": netfilter.ICMP, "icmpv6": netfilter.ICMPv6, "ipv6-icmp": netfilter.ICMPv6, "esp": netfilter.ESP,
	"ah": netfilter.AH,
	"ip": 0, "hopopt": 0, "igmp": 2, "ggp": 3, "ipencap": 4, "ipip": 94, "st": 5, "egp": 8, "igp": 9, "pup": 12, "hmp": 20,
	"xns-idp": 22,
	"rdp":     27, "iso-tp4": 29, "xtp": 36, "ddp": 37, "idpr-cmtp": 38, "ipv6": 41, "ipv6-route": 43,
	"ipv6-frag": 44, "idrp": 45,
	"rsvp": 46, "gre": 47, "skip": 57, "ipv6-nonxt": 59, "ipv6-opts": 60, "rspf": 73, "vmtp": 81, "eigrp": 88, "ospf": 89,
	"ax.25": 93, "etherip": 97, "encap": 98, "pim": 103, "ipcomp": 108, "vrrp": 112, "l2tp": 115, "isis": 124, "fc": 133,
	"mobility-header": 135, "mpls-in-ip": 137, "manet": 138, "hip": 139, "shim6": 140, "wesp": 141, "rohc": 142,
	"ethernet": 143,
}

// element is the element of an add line, which may be a range of many.
type element struct {
	addrs    [2][]netip.Prefix
	n        int // addresses per element
	proto    uint8
	from, to uint16
	icmp     bool
	mark     uint32
	iface    ifaceElem
}

// add reads an add line. The elements of a set that does not support lookups are not parsed.
func (x *set) add(text string, f []string) error {
	x.size++
	if x.dims == nil {
		return nil
	}
	opts, unknown, err := options(f, addOptions)
	if err != nil {
		return err
	}
	if unknown != "" && x.unknown == "" {
		x.unknown = "an element of set " + x.name + " has the option " + short(unknown) + ", which this version does not know"
	}
	if x.dims[0] == dimSet {
		x.lists = append(x.lists, text)
		return nil
	}
	e, err := x.element(text)
	if err != nil {
		return err
	}
	_, e.iface.nomatch = opts["nomatch"]
	_, e.iface.wildcard = opts["wildcard"]
	x.insert(&e)
	return nil
}

func (x *set) element(text string) (e element, err error) {
	parts := strings.Split(text, ",")
	if len(parts) != len(x.dims) && (x.typ != "bitmap:ip,mac" || len(parts) != 1) {
		return e, fmt.Errorf("%q is not an element of a %s", short(text), x.typ)
	}
	for i, p := range parts {
		switch x.dims[i] {
		case dimIP, dimNet:
			if e.addrs[e.n], err = x.prefixes(p); err != nil {
				return e, err
			}
			if x.masked && (e.n == 0 || x.dims[0] == dimNet) {
				for j, q := range e.addrs[e.n] {
					if !q.IsSingleIP() { // the kernel splits such an element, and ipset save prints the parts
						x.unknown = "set " + x.name + " has a mask, and networks for elements"
						continue
					}
					e.addrs[e.n][j] = netip.PrefixFrom(and(q.Addr(), x.mask), q.Bits())
				}
			}
			e.n++
		case dimPort:
			err = e.ports(p, x.typ != "bitmap:port")
		case dimMark:
			var m uint64
			if m, err = strconv.ParseUint(p, 0, 32); err != nil {
				err = fmt.Errorf("%q is not a mark", short(p))
			}
			e.mark = uint32(m) & x.markMask
		case dimMAC:
			if !isMAC(p) {
				err = fmt.Errorf("%q is not a MAC address", short(p))
			}
		case dimIface:
			e.iface.name, e.iface.physdev = strings.CutPrefix(p, "physdev:")
			if e.iface.name == "" {
				err = fmt.Errorf("%q is not an interface", short(p))
			}
		case dimSet:
		}
		if err != nil {
			return e, err
		}
	}
	return e, nil
}

// isMAC tells whether s is six pairs of hexadecimal digits.
func isMAC(s string) bool {
	pairs := strings.Split(s, ":")
	for _, p := range pairs {
		if _, err := strconv.ParseUint(p, 16, 8); err != nil || len(p) != 2 {
			return false
		}
	}
	return len(pairs) == 6
}

// prefixes reads an address, a network or a range of addresses.
func (x *set) prefixes(s string) ([]netip.Prefix, error) {
	want := "IPv4"
	if x.family == netfilter.IPv6 {
		want = "IPv6"
	}
	bad := fmt.Errorf("%q is not an %s address", short(s), want)
	ours := func(a netip.Addr) bool {
		return a.Zone() == "" && !a.Is4In6() && a.Is4() == (x.family == netfilter.IPv4)
	}
	if from, to, ok := strings.Cut(s, "-"); ok {
		a, err := netip.ParseAddr(from)
		b, err2 := netip.ParseAddr(to)
		if err != nil || err2 != nil || !ours(a) || !ours(b) || b.Less(a) {
			return nil, bad
		}
		return cover(a, b), nil
	}
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil || !ours(p.Addr()) {
			return nil, bad
		}
		return []netip.Prefix{p.Masked()}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || !ours(a) {
		return nil, bad
	}
	return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, nil
}

// cover returns the smallest list of prefixes that make up the range from a to b.
func cover(a, b netip.Addr) (out []netip.Prefix) {
	for {
		bits := a.BitLen()
		p := netip.PrefixFrom(a, bits)
		for bits > 0 {
			wider, err := a.Prefix(bits - 1)
			if err != nil || wider.Addr() != a || b.Less(last(wider)) {
				break
			}
			p, bits = wider, bits-1
		}
		out = append(out, p)
		end := last(p)
		if end == b || !end.Next().IsValid() {
			return out
		}
		a = end.Next()
	}
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// ports reads "tcp:80", "80-90", "icmp:echo-request", "gre:0". Without a name the protocol is TCP.
func (e *element) ports(s string, withProto bool) error {
	bad := fmt.Errorf("%q is not a port", short(s))
	port := s
	if withProto {
		e.proto = netfilter.TCP
		if name, rest, ok := strings.Cut(s, ":"); ok {
			proto, known := protocols[name]
			if n, err := strconv.ParseUint(name, 10, 8); err == nil {
				proto, known = uint8(n), true
			}
			if !known {
				return fmt.Errorf("%q is not a protocol", short(name))
			}
			e.proto, port = proto, rest
		}
		if e.proto == netfilter.ICMP || e.proto == netfilter.ICMPv6 {
			e.icmp = true // a type by name or number: the packets here have none
			if port == "" {
				return bad
			}
			return nil
		}
	}
	from, to, isRange := strings.Cut(port, "-")
	if !isRange {
		to = from
	}
	a, err := strconv.ParseUint(from, 10, 16)
	b, err2 := strconv.ParseUint(to, 10, 16)
	if err != nil || err2 != nil || a > b || b > math.MaxUint16 {
		return bad
	}
	e.from, e.to = uint16(a), uint16(b)
	return nil
}

// insert puts the element into the set's indices.
func (x *set) insert(e *element) {
	none := []netip.Prefix{{}}
	as, bs := e.addrs[0], e.addrs[1]
	if e.n < 1 {
		as = none
	}
	if e.n < 2 {
		bs = none
	}
	if x.protos == nil {
		x.protos = map[uint8]bool{}
	}
	x.protos[e.proto] = true
	vague := slices.Contains(x.dims, dimPort) || slices.Contains(x.dims, dimMAC)
	for _, a := range as {
		x.length(0, a)
		for _, b := range bs {
			x.length(1, b)
			k := key{a: a, b: b, proto: e.proto, mark: e.mark}
			if vague {
				if x.some == nil {
					x.some = map[key]uint16{}
				}
				high := max(e.from, e.to)
				if e.icmp {
					high = math.MaxUint16
				}
				x.some[k] = max(x.some[k], high)
			}
			switch {
			case e.iface.name != "":
				if x.ifaces == nil {
					x.ifaces = map[key][]ifaceElem{}
				}
				x.ifaces[k] = append(x.ifaces[k], e.iface)
			case e.icmp:
			case e.from != e.to:
				if x.spans == nil {
					x.spans = map[key][]span{}
				}
				x.spans[k] = append(x.spans[k], span{e.from, e.to, e.iface.nomatch})
			default:
				k.port = e.from
				x.exact[k] = e.iface.nomatch
			}
		}
	}
}

func (x *set) length(i int, p netip.Prefix) {
	if p.IsValid() && !slices.Contains(x.bits[i], p.Bits()) {
		x.bits[i] = append(x.bits[i], p.Bits())
	}
}
