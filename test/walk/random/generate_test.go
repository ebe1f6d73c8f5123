// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// generator makes rule sets and packets of the terms that this kernel, and these tools, take.
type generator struct {
	*rand.Rand
	vocabulary
	sourcePort uint16 // the last one
	odd        bool   // this rule set has odd terms
}

// vocabulary are the terms to choose from.
type vocabulary struct {
	matches, targets map[netfilter.Backend][]term
	decls, names     []term
	sets             [4][]setType // by how many dimensions they have
}

func everything() vocabulary {
	return vocabulary{
		matches: map[netfilter.Backend][]term{
			netfilter.BackendLegacy: iptablesMatches, netfilter.BackendNFT: iptablesMatches, netfilter.BackendNative: nftMatches,
		},
		targets: map[netfilter.Backend][]term{
			netfilter.BackendLegacy: iptablesTargets, netfilter.BackendNFT: iptablesTargets, netfilter.BackendNative: nftTargets,
		},
		decls: nftDecls, names: nftNames, sets: ipsetTypes,
	}
}

// kinds are the mixtures of backends, each as likely as the others.
var kinds = [][]netfilter.Backend{
	{netfilter.BackendLegacy},
	{netfilter.BackendNFT},
	{netfilter.BackendNative},
	{netfilter.BackendNative},
	{netfilter.BackendNFT, netfilter.BackendNative},
	{netfilter.BackendLegacy, netfilter.BackendNative},
	{netfilter.BackendLegacy, netfilter.BackendNFT},
	{netfilter.BackendLegacy, netfilter.BackendNFT, netfilter.BackendNative},
}

// builtinHooks are the chains that each table of iptables has built in.
var builtinHooks = map[string]string{"raw": "po", "mangle": "pifot", "nat": "piot", "filter": "ifo", "security": "ifo"}

var (
	hookChains = map[byte]string{'p': "PREROUTING", 'i': "INPUT", 'f': "FORWARD", 'o': "OUTPUT", 't': "POSTROUTING"}
	hookNames  = map[byte]string{'p': "prerouting", 'i': "input", 'f': "forward", 'o': "output", 't': "postrouting"}
)

// ruleSet makes a rule set.
func (g *generator) ruleSet() *ruleSet {
	g.odd = g.IntN(6) == 0
	rs := &ruleSet{odd: g.odd}
	backends := pick(g.Rand, kinds)
	taken := map[string]bool{} // by two backends at once the order would not be known
	for _, b := range backends {
		if b == netfilter.BackendNative {
			for i := range 1 + g.IntN(2) {
				rs.tables = append(rs.tables, g.nativeTable(i))
			}
			continue
		}
		for _, family := range []string{"ip", "ip6"} {
			if g.IntN(4) == 0 {
				continue
			}
			for _, name := range []string{"raw", "mangle", "nat", "filter", "security"} {
				share := 5
				if name == "nat" {
					share = 2
				}
				if g.IntN(10) < share || taken[family+name] && g.IntN(20) > 0 {
					continue
				}
				taken[family+name] = true
				rs.tables = append(rs.tables, g.iptablesTable(b, family, name))
			}
		}
	}
	if strings.Contains(rs.String(), "--match-set") {
		rs.sets = g.ipsets()
	}
	return rs
}

// userHooks are where chains may be called from, by what is in them.
var userHooks = map[string][]string{
	"nat": {"po", "po", "p", "o", "ti", "t", "t"},
	"":    {"pifot", "pifot", "ifo", "p", "po", "pif", "ot", "i", "f", "o", "t"},
}

// calls are the chains that rules of a chain may jump to.
func calls(c *chain, all []*chain) (out []*chain) {
	for _, to := range all {
		if to.depth > c.depth && within(c.hooks, to.hooks) {
			out = append(out, to)
		}
	}
	return out
}

func within(hooks, allowed string) bool {
	return allowed == "" || strings.Trim(hooks, allowed) == ""
}

func (g *generator) userChains(prefix, kind string) (out []*chain) {
	hooks := userHooks[kind]
	if hooks == nil {
		hooks = userHooks[""]
	}
	for i := range g.IntN(5) {
		out = append(out, &chain{name: fmt.Sprintf("%s%d", prefix, i), hooks: pick(g.Rand, hooks), depth: 1 + i})
	}
	return out
}

func (g *generator) iptablesTable(b netfilter.Backend, family, name string) *table {
	t := &table{backend: b, family: family, name: name}
	for _, h := range []byte(builtinHooks[name]) {
		policy := "ACCEPT"
		if name != "nat" && g.IntN(12) == 0 {
			policy = "DROP"
		}
		t.chains = append(t.chains, &chain{name: hookChains[h], policy: policy, hooks: string(h)})
	}
	t.chains = append(t.chains, g.userChains("U", name)...)
	c := &chooser{Rand: g.Rand, v4: family == "ip"}
	for _, ch := range t.chains {
		c.other = g.setName(family)
		to := calls(ch, t.chains)
		for range g.IntN(6) {
			ch.rules = append(ch.rules, g.iptablesRule(c, t, ch, to))
		}
	}
	return t
}

// setName answers for the place "ipsetN": a set with N dimensions.
func (g *generator) setName(family string) func(place string) string {
	return func(place string) string { return pick(g.Rand, g.sets[place[len(place)-1]-'0']).name + "-" + family }
}

// fits tells whether a term may be in a chain.
func (x *term) fits(ch *chain, table, family string) bool {
	return within(ch.hooks, x.hooks) && (x.tables == "" || strings.Contains(x.tables, "|"+table+"|")) &&
		(x.only == "" || x.only == family)
}

// choose takes one of the terms by their weights; nil where none fits.
func (g *generator) choose(from []term, fits func(x *term) bool) *term {
	total := 0
	all := fits
	fits = func(x *term) bool { return (g.odd || !x.odd) && all(x) }
	for i := range from {
		if fits(&from[i]) {
			total += max(from[i].weight, 1)
		}
	}
	if total == 0 {
		return nil
	}
	n := g.IntN(total)
	for i := range from {
		if fits(&from[i]) {
			if n -= max(from[i].weight, 1); n < 0 {
				return &from[i]
			}
		}
	}
	return nil
}

func (g *generator) iptablesRule(c *chooser, t *table, ch *chain, to []*chain) string {
	target := g.choose(g.targets[t.backend], func(x *term) bool {
		return x.fits(ch, t.name, t.family) && (len(to) > 0 || x.text != "JUMP" && x.text != "GOTO")
	})
	var words []string
	seen := map[string]bool{}
	proto := target.proto
	for range g.matchCount() {
		m := g.choose(g.matches[t.backend], func(x *term) bool { return x.fits(ch, t.name, t.family) && !(proto && x.proto) })
		if option := firstOption(m.text); seen[option] && option != "-m" ||
			seen["mark"] && strings.Contains(m.text, "--mark") {
			continue // -s, -i and the like may be there once; --mark of two matches iptables mixes up
		}
		seen[firstOption(m.text)] = true
		seen["mark"] = seen["mark"] || strings.Contains(m.text, "--mark")
		proto = proto || m.proto
		words = append(words, c.fill(m.text))
	}
	switch target.text {
	case "JUMP":
		words = append(words, "-j "+pick(g.Rand, to).name)
	case "GOTO":
		words = append(words, "-g "+pick(g.Rand, to).name)
	default:
		words = append(words, c.fill(target.text))
	}
	return protocolFirst(words)
}

// protocolFirst makes a rule of its parts: the protocol has to be in front of what asks for its ports.
func protocolFirst(words []string) string {
	for i, w := range words {
		not := ""
		if rest, ok := strings.CutPrefix(w, "! -p "); ok {
			not, w = "! ", "-p "+rest
		}
		if !strings.HasPrefix(w, "-p ") {
			continue
		}
		parts := strings.SplitN(w, " ", 3)
		words[i] = strings.Join(parts[2:], " ")
		words = append([]string{not + "-p " + parts[1]}, words...)
		break
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

func firstOption(text string) string {
	text = strings.TrimPrefix(text, "{!}")
	option, _, _ := strings.Cut(text, " ")
	return option
}

func (g *generator) matchCount() int { return []int{0, 1, 1, 1, 1, 2, 2, 3}[g.IntN(8)] }

// priorities are where base chains of nftables hook in. Those of iptables are among them seldom: there nobody knows who
// is first.
var priorities = []int{-350, -310, -290, -210, -190, -160, -140, -90, -10, -5, 5, 10, 40, 60, 90, 110, 160, 0, -150}

func (g *generator) nativeTable(i int) *table {
	t := &table{
		backend: netfilter.BackendNative, family: pick(g.Rand, []string{"ip", "ip6", "inet", "inet"}),
		name: fmt.Sprintf("n%d", i),
	}
	for _, v4 := range []bool{true, false} {
		if t.family == "ip" && !v4 || t.family == "ip6" && v4 {
			continue
		}
		c := &chooser{
			Rand: g.Rand, v4: v4,
			other: func(string) string { return pick(g.Rand, []string{"accept", "drop", "continue", "return"}) },
		}
		for _, d := range g.decls {
			t.decls = append(t.decls, c.fill(d.text))
		}
	}
	for _, d := range g.names {
		t.decls = append(t.decls, (&chooser{Rand: g.Rand, v4: true}).fill(d.text))
	}
	for _, kind := range []string{"filter", "nat", "route"} {
		chains := g.baseChains(kind)
		if len(chains) == 0 {
			continue
		}
		chains = append(chains, g.userChains(kind[:1]+"u", kind)...)
		for _, ch := range chains {
			to := calls(ch, chains)
			for range g.IntN(6) {
				ch.rules = append(ch.rules, g.nativeRule(t, ch, to, kind))
			}
		}
		t.chains = append(t.chains, chains...)
	}
	return t
}

// baseChains makes base chains of a type.
func (g *generator) baseChains(kind string) (out []*chain) {
	hooks := map[string]string{"filter": "pifot", "nat": "piot", "route": "o"}[kind]
	for i := range g.IntN(map[string]int{"filter": 5, "nat": 4, "route": 2}[kind]) {
		h := hooks[g.IntN(len(hooks))]
		priority := pick(g.Rand, priorities)
		policy := "accept"
		switch {
		case kind == "nat":
			// The kernel wants nat chains behind connection tracking; by their priority they are ordered among themselves alone.
			priority = max(priority, -190) + i
		case g.IntN(12) == 0:
			policy = "drop"
		}
		out = append(out, &chain{
			name: fmt.Sprintf("%s%d", kind, i), hooks: string(h),
			base: fmt.Sprintf("type %s hook %s priority %d; policy %s;", kind, hookNames[h], priority, policy),
		})
	}
	return out
}

func (g *generator) nativeRule(t *table, ch *chain, to []*chain, kind string) string {
	v4 := t.family == "ip" || t.family == "inet" && g.IntN(2) == 0
	c := &chooser{Rand: g.Rand, v4: v4}
	c.other = func(string) string {
		verdicts := []string{"accept", "drop", "continue", "return"}
		for _, x := range to {
			verdicts = append(verdicts, "jump "+x.name, "jump "+x.name, "goto "+x.name)
		}
		return pick(g.Rand, verdicts)
	}
	family := map[bool]string{true: "ip", false: "ip6"}[v4]
	fits := func(x *term) bool { return x.fits(ch, kind, family) || t.family == x.only && x.fits(ch, kind, "inet") }
	target := g.choose(g.targets[netfilter.BackendNative], func(x *term) bool {
		return fits(x) && (len(to) > 0 || !strings.Contains(x.text, "{chain}"))
	})
	var words []string
	proto := target.proto
	count := g.matchCount()
	if target.text == "" {
		count = max(count, 1)
	}
	for range count {
		m := g.choose(g.matches[netfilter.BackendNative],
			func(x *term) bool { return fits(x) && !(proto && x.proto) && !(ends(x) && target.text != "") })
		proto = proto || m.proto
		words = append(words, c.fill(m.text))
		if ends(m) {
			break
		}
	}
	text := target.text
	if strings.Contains(text, "{chain}") {
		text = strings.ReplaceAll(text, "{chain}", pick(g.Rand, to).name)
	}
	return strings.TrimSpace(strings.Join(append(words, c.fill(text)), " "))
}

// ends tells whether a match decides, so that no target may follow it.
func ends(x *term) bool { return strings.Contains(x.text, "vmap") }

// ipsets makes a set of each type and family. One without a family serves both.
func (g *generator) ipsets() (lines []string) {
	var last []string // lists of sets: the others have to be there
	for _, v4 := range []bool{true, false} {
		family, suffix := " family inet", "-ip"
		if !v4 {
			family, suffix = " family inet6", "-ip6"
		}
		c := &chooser{Rand: g.Rand, v4: v4, other: func(string) string { return suffix }}
		for _, dims := range g.sets {
			for _, x := range dims {
				of := family
				if !strings.HasPrefix(x.typ, "hash:") {
					of = ""
				}
				create := "create " + x.name + suffix + " " + x.typ + of + " " + c.fill(x.options)
				if x.typ == "list:set" {
					last = append(last, create, "-! add "+x.name+suffix+" "+c.fill(x.element))
					continue
				}
				lines = append(lines, strings.TrimSpace(create))
				for range 1 + g.IntN(4) {
					nomatch := ""
					if strings.Contains(x.typ, "net") && g.IntN(5) == 0 {
						nomatch = " nomatch"
					}
					lines = append(lines, "-! add "+x.name+suffix+" "+c.fill(x.element)+nomatch)
				}
			}
		}
	}
	return append(lines, last...)
}

// firstPort is above every port that rules name.
const firstPort = 33000

// firstLow is the first of the ports that a system keeps for root's processes; few packets have one.
const firstLow = 600

// packet makes a packet from a port of its own: where two connections come from one port to one endpoint, the kernel
// gives the second another port, which looks like a masquerade.
func (g *generator) packet() packet {
	v4 := g.IntN(2) == 0
	of := func(p pool) []string {
		if v4 {
			return p.v4
		}
		return p.v6
	}
	p := packet{
		proto: pick(g.Rand, []uint8{netfilter.TCP, netfilter.UDP}),
		in:    pick(g.Rand, []string{"", "", "eth0", "pod0"}),
	}
	dst := pick(g.Rand, of(places["addr"]))
	var src string
	switch {
	case p.in != "":
		for dst == "127.0.0.1" || dst == "::1" {
			dst = pick(g.Rand, of(places["addr"]))
		}
		src = pick(g.Rand, of(sources[p.in]))
	default:
		src = pick(g.Rand, of(ownAddrs))
		for (src == "127.0.0.1" || src == "::1") && !isOwn(dst) { // only a translation could bring it back
			src = pick(g.Rand, of(ownAddrs))
		}
	}
	port := g.nextPort()
	if g.IntN(10) == 0 {
		port -= firstPort - firstLow
	}
	p.src = netip.AddrPortFrom(netip.MustParseAddr(src), port)
	p.dst = netip.AddrPortFrom(netip.MustParseAddr(dst), uint16(pick(g.Rand, destinations)))
	return p
}

// nextPort returns a port that this rule set's packets have not come from.
func (g *generator) nextPort() uint16 {
	g.sourcePort = max(g.sourcePort+1, firstPort)
	return g.sourcePort
}

func isOwn(a string) bool { return slices.Contains(ownAddrs.v4, a) || slices.Contains(ownAddrs.v6, a) }
