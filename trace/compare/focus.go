// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// focus is what matters for the paths of one Service on two nodes.
type focus struct {
	chains map[string]bool // that packets of the paths meet on one of the nodes
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
		chains: map[string]bool{}, addrs: map[netip.Addr]bool{}, ports: map[uint16]bool{}, sets: map[string]bool{},
		apart: map[netip.AddrPort]bool{},
	}
	type end struct {
		path pathKey
		at   netip.AddrPort
	}
	var expected [2]map[end]bool
	for i, x := range []*Facts{a, b} {
		expected[i] = map[end]bool{}
		for k := range x.report.Paths {
			p := &x.report.Paths[k]
			f.path(p)
			for e := range p.Expected.Endpoints {
				if at, ok := p.Expected.Endpoints[e].AddrPort(); ok {
					expected[i][end{keyOf(p, true), at}] = true
				}
			}
		}
	}
	for i := range expected {
		for e := range expected[i] {
			if !expected[1-i][e] {
				f.apart[e.at] = true
			}
		}
	}
	if x, y := a.report.Mode, b.report.Mode; x != nil && y != nil {
		f.form, f.backend = x.Actual != y.Actual, x.Backend != y.Backend
	}
	for _, x := range []*Facts{a, b} {
		for _, o := range x.objects {
			if o.Part != PartRules || !f.chains[lastWord(o.Name)] {
				continue
			}
			for i := range o.Lines { // "-m set --match-set NAME src", "@NAME"
				words := strings.Fields(o.Lines[i].Text)
				for k, w := range words {
					if name, ok := strings.CutPrefix(w, "@"); ok {
						f.sets[name] = true
					} else if w == "--match-set" && k+1 < len(words) {
						f.sets[words[k+1]] = true
					}
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
		f.chains[p.Steps[i].Chain] = true
	}
	for i := range p.Actual.Outcomes {
		f.chains[p.Actual.Outcomes[i].Where.Chain] = true
	}
	for i := range p.Actual.Uncertain {
		f.chains[p.Actual.Uncertain[i].Where.Chain] = true
	}
}

func lastWord(s string) string { return s[strings.LastIndexByte(s, ' ')+1:] }

// pick returns a copy of an object with the lines that matter; nil where it does not matter.
func (f *focus) pick(o *Object) *Object {
	out := *o
	out.Lines = nil
	name := lastWord(o.Name)
	native := strings.HasSuffix(o.table, " "+kubeproxy.NFTTable)
	switch {
	case f.all:
	case f.form && (o.Part == PartServers || native || kubeproxy.OfKubernetes(name)),
		o.Part == PartRules && !f.chains[name], o.Part == PartSets && !f.sets[name]:
		return nil
	}
	for _, l := range o.Lines {
		ofMany := o.Part == PartServers || l.class == frontends ||
			o.Part == PartSets && (native || o.table == "" && kubeproxy.OfKubernetes(name))
		switch {
		case f.all:
		case ofMany && !f.addrs[l.dst] && !(l.port != 0 && f.ports[l.port]) && !(l.target != "" && f.chains[l.target]),
			o.Part == PartRules && f.form && kubeproxy.OfKubernetes(l.target),
			l.endpoint.IsValid() && f.apart[l.endpoint], l.jumps && !f.chains[l.target]:
			continue // of another Service, of one node's own endpoint, of a pod that no packet of the paths meets
		}
		if o.Part == PartTunnels {
			_, l.Canonical, _ = strings.Cut(l.Canonical, " ") // link-layer addresses are each node's own
		}
		out.Lines = append(out.Lines, l)
	}
	if o.Part == PartServers && len(out.Lines) == 0 {
		return nil
	}
	return &out
}

// maxOwn is how many texts of a node count as its own: each is searched for in each text.
const maxOwn = 100

// substitution is a text of a node's own, and what stands for it where two nodes are compared.
type substitution struct{ own, name string }

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

// replaceWord replaces a text where it stands by itself: no letter, digit, dot or colon continues it, but for a port
// after an IPv4 address.
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
