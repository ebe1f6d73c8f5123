// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// iptChain names a chain of a plan; the kernel takes 28 characters.
func iptChain(name, kind string, i int) string {
	return kubeproxy.ProgramChainPrefix + name + "-" + kind + strconv.Itoa(i)
}

func (l *layout) iptEndChain(name string, i int) string {
	return kubeproxy.ProgramChainPrefix + name + "-E" + l.endpoints[i].name
}

// hook is a rule in a built-in chain that jumps to one of the plan's chains.
type hook struct {
	table, chain string
	to           string // the suffix of the name of the plan's chain
	last         bool   // appended to the chain, not inserted at its beginning
}

// iptTables are the tables that contain chains of a plan.
var iptTables = []string{"nat", "filter"}

// iptHooks are the hooks of iptables mode. Address translation is ahead of all other rules, as those of kube-proxy may
// be wrong. Rules that accept packets are behind all other filter rules, as network policies take precedence
// (kube-proxy puts KUBE-FORWARD at the beginning, and policies are still ahead of it).
var iptHooks = []hook{
	{table: "nat", chain: "PREROUTING", to: "NAT"},
	{table: "nat", chain: "OUTPUT", to: "NAT"},
	{table: "nat", chain: "POSTROUTING", to: "POST"},
	{table: "filter", chain: "INPUT", to: "DROP"},
	{table: "filter", chain: "FORWARD", to: "DROP"},
	{table: "filter", chain: "OUTPUT", to: "DROP"},
	{table: "filter", chain: "FORWARD", to: "FORWARD", last: true},
}

func (h *hook) rule(name string) string {
	return `-m comment --comment "kubectl-svcproxy program" -j ` + kubeproxy.ProgramChainPrefix + name + "-" + h.to
}

// iptInput is what iptables-restore --noflush is given, one transaction for each table.
type iptInput struct {
	tables []*iptTable
}

type iptTable struct {
	name   string
	chains []string // created, or flushed
	gone   []string // flushed and deleted
	rules  []iptRule
	unhook []string // rules of built-in chains that are deleted
}

// iptRule is a rule that is added to a chain.
type iptRule struct {
	first bool   // inserted at the chain's beginning, not appended
	chain string // without its table
	text  string // matches and target, as iptables takes them
}

// input is the rule as iptables-restore takes it.
func (r *iptRule) input() string {
	if r.first {
		return "-I " + r.chain + " " + r.text
	}
	return r.saved()
}

// saved is the rule as iptables-save shows it.
func (r *iptRule) saved() string { return "-A " + r.chain + " " + r.text }

// declared is the line that creates or flushes a chain, as iptables-save shows it.
func declared(chain string) string { return ":" + chain + " - [0:0]" }

// saved is what iptables-save shows of the table, each line with the table's name in front.
func (t *iptTable) saved() []string {
	out := make([]string, 0, len(t.chains)+len(t.rules))
	for _, c := range t.chains {
		out = append(out, t.name+" "+declared(c))
	}
	for i := range t.rules {
		out = append(out, t.name+" "+t.rules[i].saved())
	}
	return out
}

func (t *iptTable) chain(name string) { t.chains = append(t.chains, name) }

func (t *iptTable) add(chain, format string, args ...any) {
	t.rules = append(t.rules, iptRule{chain: chain, text: fmt.Sprintf(format, args...)})
}

// write writes the input.
func (in *iptInput) write(w *bytes.Buffer) {
	for _, t := range in.tables {
		fmt.Fprintf(w, "*%s\n", t.name)
		for _, c := range t.chains {
			fmt.Fprintln(w, declared(c))
		}
		for _, c := range t.gone {
			fmt.Fprintln(w, declared(c))
		}
		for _, r := range t.unhook {
			fmt.Fprintln(w, r)
		}
		for i := range t.rules {
			fmt.Fprintln(w, t.rules[i].input())
		}
		for _, c := range t.gone {
			fmt.Fprintf(w, "-X %s\n", c)
		}
		w.WriteString("COMMIT\n")
	}
}

// replace deletes the chains that another state of the same plan has and this one does not.
func (in *iptInput) replace(old *iptInput) {
	for i, t := range in.tables {
		now := map[string]bool{}
		for _, c := range t.chains {
			now[c] = true
		}
		for _, c := range old.tables[i].chains {
			if !now[c] {
				t.gone = append(t.gone, c)
			}
		}
	}
}

// iptWriter returns a plan's chains of one IP family. After until they take no new connections (see [iptTable.end]).
// hooked tells which hooks the built-in chains have already.
type iptWriter func(p *plan.Plan, v6 bool, until time.Time, hooked func(*hook) bool) *iptInput

// hookIn creates the chains that hooks jump to, and the hooks that do not exist yet.
func hookIn(p *plan.Plan, hooks []hook, hooked func(*hook) bool) (nat, filter *iptTable) {
	nat, filter = &iptTable{name: "nat"}, &iptTable{name: "filter"}
	byName := map[string]*iptTable{"nat": nat, "filter": filter}
	for i := range hooks {
		h := &hooks[i]
		t := byName[h.table]
		if c := topChain(p, h.to); len(t.chains) == 0 || t.chains[len(t.chains)-1] != c {
			t.chain(c)
		}
		if hooked(h) {
			continue
		}
		t.rules = append(t.rules, iptRule{first: !h.last, chain: h.chain, text: h.rule(p.Name)})
	}
	return nat, filter
}

// topChain returns the name of a chain that a hook jumps to.
func topChain(p *plan.Plan, to string) string {
	return kubeproxy.ProgramChainPrefix + p.Name + "-" + to
}

// iptMark is the bit that marks packets for masquerade, as value and mask.
func iptMark(p *plan.Plan) string { return fmt.Sprintf("0x%x/0x%x", p.Mark, p.Mark) }

// iptTo is the match of packets to a frontend.
func (e *entry) iptTo() string {
	return fmt.Sprintf(`-d %s -p %s -m %s --dport %d -m comment --comment "%s %s"`,
		host(e.Address.Addr().String(), e.V6()), strings.ToLower(e.Protocol), strings.ToLower(e.Protocol), e.Address.Port(),
		comment(e.Port), e.Kind)
}

// iptRules is the iptWriter of iptables mode.
func iptRules(p *plan.Plan, v6 bool, until time.Time, hooked func(*hook) bool) *iptInput {
	l := layoutOf(p, v6)
	nat, filter := hookIn(p, iptHooks, hooked)
	top, mark := func(to string) string { return topChain(p, to) }, iptMark(p)
	nat.end(top("NAT"), until)
	filter.end(top("DROP"), until)
	for i := range l.entry {
		e := &l.entry[i]
		to := e.iptTo()
		nat.add(top("NAT"), "%s -j %s", to, iptChain(p.Name, "F", e.front))
		if l.fronts[e.front].drops {
			filter.add(top("DROP"), "%s -j DROP", to)
		}
	}
	shared := l.shared()
	for i := range l.fronts {
		l.iptFront(nat, p.Name, i, mark, shared)
	}
	for i := range l.pools {
		if shared[i] {
			chain := iptChain(p.Name, "W", i)
			nat.chain(chain)
			l.iptPool(nat, chain, p.Name, i)
		}
	}
	for i := range l.endpoints {
		l.iptEnd(nat, p.Name, i, mark)
	}
	nat.masquerade(p, until)
	filter.forward(p, until)
	return &iptInput{tables: []*iptTable{nat, filter}}
}

// masquerade writes the chain of POSTROUTING: what is marked is masqueraded (writeNATRules of kube-proxy's iptables
// mode).
func (t *iptTable) masquerade(p *plan.Plan, until time.Time) {
	c := topChain(p, "POST")
	t.end(c, lastPackets(until))
	t.add(c, "-m mark ! --mark %s -j RETURN", iptMark(p))
	t.add(c, "-j MARK --set-xmark 0x%x/0x0", p.Mark)
	t.add(c, "-j MASQUERADE --random-fully")
}

// forward writes the chain of FORWARD: it lets through answers, and what was marked. Established connections outlive
// the time; only their first packet is marked.
func (t *iptTable) forward(p *plan.Plan, until time.Time) {
	c := topChain(p, "FORWARD")
	t.add(c, "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	t.end(c, lastPackets(until))
	t.add(c, "-m mark --mark %s -j ACCEPT", iptMark(p))
}

// comment is a name as far as it fits into a comment, of which the kernel keeps 255 bytes.
func comment(s string) string { return s[:min(len(s), 200)] }

func host(a string, v6 bool) string {
	if v6 {
		return a + "/128"
	}
	return a + "/32"
}

// iptFront writes the rules that match the source of packets. A packet that is to be dropped leaves the table here,
// ahead of rules that would translate it, and is dropped in the filter table by its original destination.
func (l *layout) iptFront(t *iptTable, name string, i int, mark string, shared []bool) {
	f := &l.fronts[i]
	chain := iptChain(name, "F", i)
	t.chain(chain)
	if len(f.ranges) > 0 {
		in := iptChain(name, "R", i)
		if f.own.IsValid() {
			t.add(chain, "-s %s -j ACCEPT", host(f.own.String(), l.v6))
		}
		for _, r := range f.ranges {
			t.add(chain, "-s %s -j %s", r.Masked(), in)
		}
		if f.free {
			t.add(chain, "-m addrtype --src-type LOCAL -j %s", in)
		}
		t.add(chain, "-j ACCEPT")
		t.chain(in)
		chain = in
	}
	for _, s := range f.steps() {
		match, target := iptClass(f, s.class), "ACCEPT"
		switch {
		case s.mark:
			target = "MARK --set-xmark " + mark
		case s.pool >= 0 && !shared[s.pool]:
			l.iptPool(t, chain, name, s.pool)
			continue
		case s.pool >= 0:
			target = iptChain(name, "W", s.pool)
		}
		t.add(chain, "%s-j %s", match, target)
	}
}

// iptClass is the match of packets of a class; "" matches all.
func iptClass(f *front, c class) string {
	switch c {
	case anyone:
	case fromPod:
		return iptPods(f, "")
	case notFromPod:
		return iptPods(f, "! ")
	case fromNode:
		return "-m addrtype --src-type LOCAL "
	}
	return ""
}

// iptPods is the match of packets of the node's pods; not is "! " or "". If the plan does not say how to detect them,
// it is "".
func iptPods(f *front, not string) string {
	switch {
	case f.pods == nil:
		return ""
	case f.pods.CIDR.IsValid():
		return not + "-s " + f.pods.CIDR.Masked().String() + " "
	case f.pods.Prefix:
		return not + "-i " + f.pods.Iface + "+ "
	}
	return not + "-i " + f.pods.Iface + " "
}

// iptPool writes the rules that choose one of a pool's endpoints into a chain.
func (l *layout) iptPool(t *iptTable, chain, name string, i int) {
	w := &l.pools[i]
	if w.affinity > 0 {
		for _, e := range w.endpoints {
			to := l.iptEndChain(name, e)
			t.add(chain, "-m recent --name %s --rcheck --seconds %d --reap --rsource -j %s", to, w.affinity, to)
		}
	}
	for k, e := range w.endpoints {
		match := ""
		if left := len(w.endpoints) - k; left > 1 {
			match = fmt.Sprintf("-m statistic --mode random --probability %.10f ", 1/float64(left))
		}
		t.add(chain, "%s-j %s", match, l.iptEndChain(name, e))
	}
}

func (l *layout) iptEnd(t *iptTable, name string, i int, mark string) {
	e := &l.endpoints[i]
	chain := l.iptEndChain(name, i)
	t.chain(chain)
	t.add(chain, "-s %s -j MARK --set-xmark %s", host(e.address.Addr().String(), l.v6), mark)
	recent := ""
	if e.affinity > 0 {
		recent = "-m recent --name " + chain + " --set --rsource "
	}
	t.add(chain, "-p %s -m %s %s-j DNAT --to-destination %s", strings.ToLower(e.protocol), strings.ToLower(e.protocol),
		recent, e.address)
}
