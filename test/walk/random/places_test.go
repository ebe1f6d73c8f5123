// SPDX-License-Identifier: Apache-2.0

package random

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
)

// pool has what may be at a place of a term, for IPv4 and IPv6.
type pool struct{ v4, v6 []string }

func both(s ...string) pool { return pool{s, s} }

// Addresses of the node, and of others: a pod on it, pods elsewhere, another node, clients, Services, and what no route
// reaches.
var (
	ownAddrs = pool{
		[]string{"10.77.0.11", "10.77.0.12", "10.244.1.1", "127.0.0.1"},
		[]string{"fd00:77::11", "fd00:77::12", "fd00:244:1::1", "::1"},
	}
	otherAddrs = pool{
		[]string{
			"10.244.1.15", "10.244.1.16", "10.244.2.9", "10.77.0.21", "192.0.2.7", "10.96.0.10", "10.96.0.11",
			"10.66.0.5", "10.67.0.5",
		},
		[]string{
			"fd00:244:1::15", "fd00:244:1::16", "fd00:244:2::9", "fd00:77::21", "2001:db8::7", "fd00:96::10",
			"fd00:96::11", "fd00:66::5", "fd00:67::5",
		},
	}
	// sources are the addresses that packets come from, by the interface that they come in by.
	sources = map[string]pool{
		"eth0": {[]string{"192.0.2.7", "10.77.0.21", "10.244.2.9"}, []string{"2001:db8::7", "fd00:77::21", "fd00:244:2::9"}},
		"pod0": {[]string{"10.244.1.15", "10.244.1.16"}, []string{"fd00:244:1::15", "fd00:244:1::16"}},
	}
	destinations = []int{53, 80, 443, 8080, 30080}
)

// places are what the names in a term's braces stand for. A name with a number behind it differs from those with other
// numbers in the same rule; what is behind a "#" is the same wherever it is.
var places = map[string]pool{
	"!":  both("", "", "! "),
	"!=": both("", "", "!= "),
	"addr": {
		append(append([]string{}, ownAddrs.v4...), otherAddrs.v4...),
		append(append([]string{}, ownAddrs.v6...), otherAddrs.v6...),
	},
	"net": {
		[]string{"10.96.0.0/24", "10.244.0.0/16", "10.77.0.0/24", "192.0.2.0/24", "127.0.0.0/8", "10.66.0.0/15"},
		[]string{"fd00:96::/64", "fd00:244::/32", "fd00:77::/64", "2001:db8::/64", "::1/128", "fd00:66::/31"},
	},
	"own": {[]string{"10.77.0.11", "10.77.0.12", "10.244.1.1"}, []string{"fd00:77::11", "fd00:77::12", "fd00:244:1::1"}},
	"dst": {
		[]string{
			"10.244.1.15", "10.244.1.16", "10.244.2.9", "10.77.0.11", "10.77.0.21", "127.0.0.1", "192.0.2.7", "10.66.0.5",
		},
		[]string{
			"fd00:244:1::15", "fd00:244:1::16", "fd00:244:2::9", "fd00:77::11", "fd00:77::21", "::1", "2001:db8::7",
			"fd00:66::5",
		},
	},
	"dstrange": {
		[]string{"10.244.1.15-10.244.1.16", "10.244.1.14-10.244.1.17"},
		[]string{"fd00:244:1::15-fd00:244:1::16", "fd00:244:1::14-fd00:244:1::17"},
	},
	"dstports": {
		[]string{"10.244.1.15:78-82", "10.244.2.9:8000-8003"},
		[]string{"[fd00:244:1::15]:78-82", "[fd00:244:2::9]:8000-8003"},
	},
	"ownports":  {[]string{"10.77.0.12:2000-3000"}, []string{"[fd00:77::12]:2000-3000"}},
	"ethertype": {[]string{"ip"}, []string{"ip6"}},
	"dstport": {
		[]string{"10.244.1.15:8080", "10.244.1.16:80", "10.244.2.9:8080", "10.77.0.11:443", "10.77.0.21:53"},
		[]string{
			"[fd00:244:1::15]:8080", "[fd00:244:1::16]:80", "[fd00:244:2::9]:8080", "[fd00:77::11]:443", "[fd00:77::21]:53",
		},
	},
	"bits":       {[]string{"24", "9", "30", "255.0.0.255"}, []string{"64", "17", "127", "ffff::ffff"}},
	"prefixbits": {[]string{"16", "24"}, []string{"64", "48"}},
	"netmask":    {[]string{"255.255.0.0", "255.0.0.255", "0.0.0.15"}, []string{"ffff:ffff::", "ffff::ffff", "::f"}},
	"addrbits": {
		[]string{"10.77.0.0", "10.0.0.21", "0.0.0.5", "10.96.0.0"}, []string{"fd00:77::", "fd00::21", "::5", "fd00:96::"},
	},
	"range": {
		[]string{"10.77.0.11-10.77.0.20", "10.96.0.0-10.96.0.10", "10.0.0.0-10.255.255.255", "127.0.0.1-192.0.2.7"},
		[]string{"fd00:77::11-fd00:77::20", "fd00:96::-fd00:96::10", "fd00::-fdff::", "::1-2001:db8::7"},
	},
	"ip":           {[]string{"ip"}, []string{"ip6"}},
	"fam":          {[]string{"four"}, []string{"six"}},
	"addrtypename": {[]string{"ipv4_addr"}, []string{"ipv6_addr"}},
	"protofield":   {[]string{"protocol"}, []string{"nexthdr"}},
	"nfproto":      {[]string{"ipv4"}, []string{"ipv6"}},
	"iface":        both("eth0", "pod0", "lo"),
	"ifmatch":      both("eth0", "pod0", "lo", "eth+", "pod+", "e+"),
	"proto":        both("tcp", "udp"),
	"natproto":     both("tcp", "udp"),
	"port":         both("53", "80", "443", "8080"),
	"highport":     both("8080", "30080", "65535"),
	"ports":        both("53", "80", "443", "80:443", "1:79", "8080:", ":1024"),
	"sports":       both("1024:65535", "0:1023", "32768:", ":40000", "33000:35000"),
	"sport":        both("1024", "32768", "40000", "50000"),
	"portlist":     both("53,80", "80:443,8080", "22,30080", "1000:50000"),
	"tcpflags":     both("FIN,SYN,RST,ACK SYN", "SYN,RST NONE", "ACK,SYN SYN,ACK", "ALL SYN"),
	"mark":         both("0x4000/0x4000", "0x1", "0x0/0x4000", "0x3/0xff", "0x8000/0xc000", "0x20/0x0"),
	"value":        both("0x4000", "0x1", "0x3", "0xff", "0x8001", "0xffffffff"),
	"ctstate": both("NEW", "INVALID", "UNTRACKED", "RELATED,ESTABLISHED", "NEW,UNTRACKED", "INVALID,NEW", "SNAT",
		"DNAT,INVALID"),
	"state":    both("NEW", "INVALID", "RELATED,ESTABLISHED", "UNTRACKED"),
	"nctstate": both("new", "invalid", "untracked", "established,related", "new,untracked"),
	"vctstate": both("new", "invalid", "untracked", "established", "related"),
	"ctdir":    both("ORIGINAL", "REPLY"),
	"ctstatus": both("CONFIRMED", "NONE", "ASSURED", "SEEN_REPLY,CONFIRMED", "EXPECTED"),
	"addrtype": {
		[]string{"LOCAL", "LOCAL", "UNICAST", "BROADCAST", "UNREACHABLE", "BLACKHOLE", "MULTICAST"},
		[]string{"LOCAL", "LOCAL", "UNICAST", "UNREACHABLE", "MULTICAST"},
	},
	"fibtype": both("local", "local", "unicast", "broadcast", "unreachable", "blackhole", "{ local, unicast }"),
	"chance":  both("0.5", "0.33333", "0.25", "0.1"),
	"mod":     both("2", "3", "5"),
	"less":    both("0", "1"),
	"rel":     both("<", "<=", ">", ">=", "!=", "=="),
	"dir":     both("src", "dst"),
	"quoted":  both(`plain`, `"a \"b\" -j DROP"`, `"{ drop }"`),
}

var inBraces = regexp.MustCompile(`\{[a-z!=]+\d*(#\d+)?\}`)

// chooser fills places in by chance.
type chooser struct {
	*rand.Rand
	v4 bool
	// other answers for places that are not in the table.
	other func(name string) string
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// fill replaces the places of a text.
func (c *chooser) fill(text string) string {
	same := map[string]string{}
	used := map[string]map[string]bool{}
	return inBraces.ReplaceAllStringFunc(text, func(place string) string {
		place = strings.Trim(place, "{}")
		if s, ok := same[place]; ok {
			return s
		}
		name, _, isSame := strings.Cut(place, "#")
		base := strings.TrimRight(name, "0123456789")
		p, ok := places[base]
		if !ok {
			return c.fill(c.other(name))
		}
		from := p.v4
		if !c.v4 {
			from = p.v6
		}
		s := pick(c.Rand, from)
		if _, err := strconv.Atoi(name[len(base):]); err == nil {
			if used[base] == nil {
				used[base] = map[string]bool{}
			}
			for used[base][s] {
				s = pick(c.Rand, from)
			}
			used[base][s] = true
		}
		if isSame {
			same[place] = s
		}
		return s
	})
}
