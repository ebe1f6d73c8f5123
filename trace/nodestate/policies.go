// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// policy is a policy of IPsec.
type policy struct {
	text     string
	src, dst netip.Prefix
	proto    uint8
	mark     uint32
	mask     uint32
	dir      string // "out", "fwd", "in"; "" for one of a socket, or of an interface of IPsec
	// acts: it transforms packets, or blocks them.
	acts     bool
	priority uint32 // the lowest one counts
	narrow   bool   // it selects by more than addresses, a protocol and a mark
	// sub: it is of the type that is asked before the others (xfrm_policy_lookup in net/xfrm/xfrm_policy.c).
	sub bool
	// others: it is what happens to packets that no policy selects (xfrm_lookup_with_ifid and __xfrm_policy_check in
	// net/xfrm/xfrm_policy.c).
	others bool
}

// defaultPolicies is the line with which ip xfrm policy getdefault begins.
const defaultPolicies = "Default policies:"

// parsePolicies reads what ip xfrm policy prints, and ip xfrm policy getdefault behind it.
// on tells whether a setting is known to be on.
func parsePolicies(data []byte, on func(key string) bool) ([]*netfilter.Table, error) {
	var all []*policy
	var bad error
	selected, others, _ := strings.Cut(string(data), defaultPolicies)
	for line := range strings.Lines(selected) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if line[0] != ' ' && line[0] != '\t' {
			p, err := policyOf(words)
			if err != nil {
				bad = cmp.Or(bad, err)
				p = &policy{}
			}
			all = append(all, p)
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("it begins with %q, where the selector of a policy was expected (ip xfrm policy)",
				short(strings.TrimSpace(line)))
		}
		all[len(all)-1].add(words)
	}
	for line := range strings.Lines(others) { // " fwd: block"
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case len(words) != 2 || !strings.HasSuffix(words[0], ":"):
			bad = cmp.Or(bad, fmt.Errorf("it has %q, where a direction and its default policy were expected "+
				"(ip xfrm policy getdefault)", short(strings.TrimSpace(line))))
		case words[1] != "accept":
			dir := strings.TrimSuffix(words[0], ":")
			all = append(all, &policy{text: "default policy: " + dir + " " + short(words[1]), dir: dir, others: true})
		}
	}
	at := map[string]struct {
		hook     netfilter.Hook
		priority int
		why      string
	}{
		"out": {netfilter.Postrouting, behindAll, "a policy of IPsec may transform or refuse what leaves"},
		"fwd": {netfilter.Forward, beforeAll, "a policy of IPsec refuses what is forwarded, unless it came in transformed"},
		"in":  {netfilter.Input, behindAll, "a policy of IPsec refuses what is delivered, unless it came in transformed"},
	}
	var out []*netfilter.Table
	for _, dir := range []string{"out", "fwd", "in"} {
		var rules []*netfilter.Rule
		for _, p := range all {
			if p.dir != dir {
				continue
			}
			applies := func(x *netfilter.Packet) op.Truth {
				if p.excused(x, on) {
					return op.No
				}
				return p.applies(x, all)
			}
			rules = append(rules, &netfilter.Rule{
				Text: p.text, Ops: []netfilter.Op{&obstacle{applies: applies, why: at[dir].why}},
			})
		}
		if len(rules) > 0 {
			out = append(out, programTable("xfrm", dir,
				netfilter.Base{Hook: at[dir].hook, Priority: at[dir].priority, Policy: netfilter.Accept}, rules...))
		}
	}
	return out, bad
}

// policyOf reads the first line of a policy: its selector.
func policyOf(words []string) (*policy, error) {
	p := &policy{text: short(strings.Join(words, " "))}
	for i := 0; i+1 < len(words); i += 2 {
		var err error
		switch words[i] {
		case "src":
			p.src, err = netip.ParsePrefix(words[i+1])
		case "dst":
			p.dst, err = netip.ParsePrefix(words[i+1])
		case "proto":
			proto, known := op.Protocol(words[i+1])
			p.proto, p.narrow = proto, p.narrow || !known
		default:
			p.narrow = true
		}
		if err != nil {
			return nil, fmt.Errorf("it has the selector %q: %w", p.text, err)
		}
	}
	if !p.src.IsValid() || !p.dst.IsValid() {
		return nil, fmt.Errorf("it has %q, where the selector of a policy was expected (ip xfrm policy)", p.text)
	}
	return p, nil
}

// add takes in a further line of a policy.
func (p *policy) add(words []string) {
	switch words[0] {
	case "dir":
		if len(words) > 1 && p.dir == "" {
			p.dir = words[1]
			p.text = short(p.text + " " + strings.Join(words, " "))
			p.acts = p.acts || slices.Contains(words, "action")
			if i := slices.Index(words, "priority"); i >= 0 && i+1 < len(words) {
				if n, err := strconv.ParseUint(words[i+1], 10, 32); err == nil {
					p.priority = uint32(n)
				}
			}
			if i := slices.Index(words, "ptype"); i >= 0 && !slices.Contains(words[i:], "main") {
				p.sub, p.narrow = true, true
			}
		}
	case "tmpl":
		p.acts = true
	case "socket":
		p.dir = "socket"
	case "if_id":
		p.dir = "interface"
	case "mark":
		if len(words) > 1 {
			value, mask, _ := strings.Cut(words[1], "/")
			v, err := strconv.ParseUint(value, 0, 32)
			m, err2 := strconv.ParseUint(mask, 0, 32)
			if err == nil && err2 == nil {
				p.mark, p.mask = uint32(v), uint32(m)
			}
		}
	}
}

// excused tells whether the kernel asks for no policy of this kind by the settings of an interface: for packets that
// leave by it (DST_NOXFRM, which the policy for all others does not heed: xfrm_lookup_with_ifid), and for those that
// come in by it (IPSKB_NOPOLICY; __xfrm_policy_check2 in include/net/xfrm.h). IPv6 has the latter for the node's own
// addresses alone (addrconf_f6i_alloc in net/ipv6/addrconf.c).
func (p *policy) excused(x *netfilter.Packet, on func(key string) bool) bool {
	switch {
	case x.Family != netfilter.IPv4:
		return false
	case p.dir == "out":
		return !p.others && !netfilter.IsUnknown(x.Out) && on("net/ipv4/conf/"+x.Out+"/disable_xfrm")
	}
	return !netfilter.IsUnknown(x.In) && on("net/ipv4/conf/"+x.In+"/disable_policy")
}

// applies tells whether a packet is one of those that the policy selects, as far as it is read, and that none of all
// policies lets pass before it.
func (p *policy) applies(x *netfilter.Packet, all []*policy) op.Truth {
	if p.others {
		return op.Yes
	}
	if !p.acts {
		return op.No
	}
	for _, as := range p.lookups(x) {
		if !p.selects(x, as) {
			continue
		}
		if p.sub || !slices.ContainsFunc(all, func(o *policy) bool {
			return !o.acts && !o.others && !o.narrow && o.dir == p.dir && o.priority < p.priority && as.dst.IsValid() &&
				as.src.IsValid() && o.selects(x, as)
		}) {
			return op.Yes
		}
	}
	return op.No
}

// selects tells whether a policy selects a packet by some addresses. The one with the lowest priority counts
// (xfrm_policy_lookup_bytype in net/xfrm/xfrm_policy.c).
func (p *policy) selects(x *netfilter.Packet, as selected) bool {
	return p.src.Addr().Is4() == (x.Family == netfilter.IPv4) && (p.proto == 0 || p.proto == x.Proto) &&
		x.Mark&p.mask == p.mark &&
		(!as.dst.IsValid() || p.dst.Contains(as.dst)) && (!as.src.IsValid() || p.src.Contains(as.src))
}

// selected are the addresses by which the kernel looks for a policy.
type selected struct{ src, dst netip.Addr }

// lookups are what a policy of a direction is looked up by. What is forwarded or delivered is looked up as it came to
// the node, by connection tracking's own account (nf_nat_decode_session in net/netfilter/nf_nat_core.c, called by
// __xfrm_policy_check in net/xfrm/xfrm_policy.c). What leaves is looked up as it is routed, and once more when it is
// translated after that (xfrm_lookup_route, ip_route_me_harder, nf_xfrm_me_harder): for the node's own packets first
// with the address that the client asks for.
func (p *policy) lookups(x *netfilter.Packet) []selected {
	came := selected{x.OrigSrc, x.OrigDst}
	switch c := x.Tracked(); {
	case !came.dst.IsValid(), c == nil && x.Turn != netfilter.First && x.Tracking != netfilter.NotOurs:
		came = selected{x.Src, x.Dst} // it has no connection
	case c != nil:
		t := c.Original
		if x.Turn.Answers() {
			t = c.Reply
		}
		came = selected{t.Src.Addr(), t.Dst.Addr()}
	}
	if p.dir != "out" {
		return []selected{came}
	}
	out := []selected{{x.Src, x.Dst}, {came.src, x.Dst}}
	if x.Local {
		out = append(out, came)
	}
	return out
}
