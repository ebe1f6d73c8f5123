// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"maps"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// focus is what matters for the paths of one Service on two nodes. Of nil everything does.
type focus struct {
	chains map[string]bool // that packets of the paths meet on one of the nodes, as "nat KUBE-SERVICES"
	names  map[string]bool // the same without their tables
	addrs  map[netip.Addr]bool
	ports  map[uint16]bool // NodePorts
	sets   map[string]bool // that rules of these chains name
	// form: the nodes run kube-proxy in different modes, so that its rules are others, whatever they do.
	form bool
	// backend: the same with the backends of iptables, whose rules are the same.
	backend bool
	// all: everything that was read matters, as of two pods.
	all bool
	// apart are endpoints that are expected on one of the nodes alone, by a traffic policy or a topology hint.
	apart map[netip.AddrPort]bool
}

// focusOf collects it from two reports with their steps.
func focusOf(a, b *Facts) *focus {
	f := &focus{
		chains: map[string]bool{}, names: map[string]bool{}, addrs: map[netip.Addr]bool{}, ports: map[uint16]bool{},
		sets: map[string]bool{}, apart: map[netip.AddrPort]bool{},
	}
	expected := [2]map[pathKey]map[netip.AddrPort]bool{}
	for i, x := range []*Facts{a, b} {
		expected[i] = map[pathKey]map[netip.AddrPort]bool{}
		for k := range x.report.Paths {
			p := &x.report.Paths[k]
			f.path(p)
			key := keyOf(p, true)
			if expected[i][key] == nil {
				expected[i][key] = map[netip.AddrPort]bool{}
			}
			for e := range p.Expected.Endpoints {
				if at, ok := p.Expected.Endpoints[e].AddrPort(); ok {
					expected[i][key][at] = true
				}
			}
		}
	}
	for _, of := range [][2]*Facts{{a, b}, {b, a}} { // lists are asked for by their new names
		for chain := range maps.Clone(f.chains) {
			f.chains[of[0].rename(chain, of[1])] = true
		}
	}
	if x, y := a.report.Mode, b.report.Mode; x != nil && y != nil {
		f.form, f.backend = x.Actual != y.Actual, x.Backend != y.Backend
	}
	for i := range expected {
		for key, endpoints := range expected[i] {
			for at := range endpoints {
				if !expected[1-i][key][at] {
					f.apart[at] = true
				}
			}
		}
	}
	for _, x := range []*Facts{a, b} {
		for p, l := range x.lists {
			if p.part == PartRules && f.has(p) {
				for i := range l.items {
					f.namedSets(l.items[i].text)
				}
			}
		}
	}
	return f
}

// path adds what a path meets.
func (f *focus) path(p *report.Path) {
	if a, err := netip.ParseAddr(p.Frontend.Address); err == nil {
		f.addrs[a] = true
	}
	if p.Frontend.Kind == "NodePort" && p.Frontend.Port > 0 && p.Frontend.Port <= 0xffff {
		f.ports[uint16(p.Frontend.Port)] = true
	}
	for i := range p.Steps {
		f.chain(p.Steps[i].RuleRef)
	}
	for i := range p.Actual.Outcomes {
		f.chain(p.Actual.Outcomes[i].Where)
	}
	for i := range p.Actual.Uncertain {
		f.chain(p.Actual.Uncertain[i].Where)
	}
}

func (f *focus) chain(r report.RuleRef) {
	if r.Chain == "" {
		return
	}
	f.chains[lastWord(r.Table)+" "+r.Chain] = true
	f.names[r.Chain] = true
}

func lastWord(s string) string { return s[strings.LastIndexByte(s, ' ')+1:] }

// has tells whether packets meet a chain.
func (f *focus) has(p place) bool { return f.chains[lastWord(p.table)+" "+p.name] }

// namedSets adds the sets that a rule names: "-m set --match-set NAME src", "@NAME".
func (f *focus) namedSets(text string) {
	words := strings.Fields(text)
	for i, w := range words {
		if w == "--match-set" && i+1 < len(words) {
			f.sets[words[i+1]] = true
		}
		if name, ok := strings.CutPrefix(w, "@"); ok {
			f.sets[name] = true
		}
	}
}

// pick returns what of a list matters; nil where nothing does.
func (f *focus) pick(p place, l *list) *list {
	if f.all {
		return l
	}
	native := lastWord(p.table) == kubeproxy.NFTTable
	if f.form && (p.part == PartServers || native || kubeproxy.OfKubernetes(p.name)) {
		return nil
	}
	switch p.part {
	case PartRules:
		if !f.has(p) {
			return nil
		}
		return l.only(func(x *item) bool {
			return (x.class != "frontend" || f.owns(x)) && !(f.form && kubeproxy.OfKubernetes(x.target))
		})
	case PartSets:
		if !f.sets[p.name] {
			return nil
		}
		if native || p.table == tableIPSet && kubeproxy.OfKubernetes(p.name) {
			return l.only(f.owns)
		}
		return l
	case PartServers:
		if some := l.only(f.owns); len(some.items) > 0 {
			return some
		}
		return nil
	}
	return l
}

// owns tells whether an entry of what serves all Services is one of these paths.
func (f *focus) owns(x *item) bool {
	return f.addrs[x.dst] || x.port != 0 && f.ports[x.port] || x.target != "" && f.names[x.target]
}

// only returns a list with some of the entries.
func (l *list) only(keep func(*item) bool) *list {
	out := *l
	out.items = nil
	for i := range l.items {
		if keep(&l.items[i]) {
			out.items = append(out.items, l.items[i])
		}
	}
	return &out
}

// must tells whether nodes have to differ in an entry, or may: it is about an endpoint that one of them alone may use,
// or it leads to a chain that no packet of the paths meets, as the rules of other pods do.
func (f *focus) must(x *item) bool {
	return f != nil && !f.all && (x.endpoint.IsValid() && f.apart[x.endpoint] || x.jumps && !f.names[x.target])
}

// mustDiffer tells whether two nodes have to differ in a value, or naturally do.
func (c *comparison) mustDiffer(part, name, a, b string, both bool) bool {
	switch part {
	case PartLinks:
		return !both || c.a.rename(a, c.b) == c.b.rename(b, c.a)
	case PartNeighbours:
		return notable(a) == notable(b)
	case PartVersions:
		return name == "kernel by the API" && c.a.values[place{part: part, name: "kernel"}] != ""
	}
	return both && c.a.rename(a, c.b) == c.b.rename(b, c.a)
}

// rename replaces what is a node's own, and the other node's own, by what stands for it.
func (f *Facts) rename(text string, other *Facts) string {
	for _, s := range f.own {
		text = replaceWord(text, s.own, s.name)
	}
	for _, s := range other.own {
		text = replaceWord(text, s.own, "<other "+s.name[1:])
	}
	return text
}

// inBoth are the keys that two lists have as they are.
func inBoth(a, b []item) map[string]bool {
	out := make(map[string]bool, len(a))
	for i := range a {
		out[a[i].key] = false
	}
	for i := range b {
		if _, ok := out[b[i].key]; ok {
			out[b[i].key] = true
		}
	}
	return out
}

// renamed is a list with the keys renamed, but for those that both nodes have, in the order of its classes.
func (f *Facts) renamed(part string, list []item, other *Facts, both map[string]bool) []item {
	out := make([]item, len(list))
	for i := range list {
		out[i] = list[i]
		if !both[list[i].key] {
			out[i].key = f.rename(list[i].key, other)
		}
		if part == PartTunnels {
			_, out[i].key, _ = strings.Cut(out[i].key, " ") // link-layer addresses are each node's own
		}
	}
	sortClasses(out)
	return out
}

// sameButForNames counts the entries whose keys are equal only by their new names.
func sameButForNames(left, right, a, b []item) int {
	raw := map[string]int{}
	for i := range a {
		raw[a[i].key]++
	}
	equal := 0
	for i := range b {
		if raw[b[i].key] > 0 {
			raw[b[i].key]--
			equal++
		}
	}
	names := map[string]int{}
	for i := range left {
		names[left[i].key]++
	}
	for i := range right {
		if names[right[i].key] > 0 {
			names[right[i].key]--
			equal--
		}
	}
	return max(-equal, 0)
}

// replaceWord replaces a text where it stands by itself: no letter, digit, dot or colon continues it, but for a port
// behind an IPv4 address.
func replaceWord(text, old, with string) string {
	at := strings.Index(text, old)
	if at < 0 {
		return text
	}
	var b strings.Builder
	for at >= 0 {
		end := at + len(old)
		if at > 0 && continues(text[at-1]) || end < len(text) && continues(text[end]) &&
			(text[end] != ':' || strings.Contains(old, ":")) {
			b.WriteString(text[:end])
		} else {
			b.WriteString(text[:at])
			b.WriteString(with)
		}
		text = text[end:]
		at = strings.Index(text, old)
	}
	b.WriteString(text)
	return b.String()
}

func continues(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == ':' || c == '-'
}
