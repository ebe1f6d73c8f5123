// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// nftTable names the tables of a plan, one of each family.
func nftTable(name string) string { return kubeproxy.ProgramTablePrefix + name }

// nftBase are the base chains. Those for destination NAT are ahead of kube-proxy's at dstnat-10 and dstnat, and that
// for masquerade is ahead of all others at srcnat: the first translation of a connection takes effect (nf_nat_inet_fn
// in net/netfilter/nf_nat_core.c).
var nftBase = []nftBaseChain{
	{"prerouting", knftables.PreroutingHook, "-115"},
	{"output", knftables.OutputHook, "-115"},
	{"postrouting", knftables.PostroutingHook, "95"},
}

type nftBaseChain struct {
	name     string
	hook     knftables.BaseChainHook
	priority string
}

// frontends is the map of all addresses and ports.
const frontends = "frontends"

// nftWriter writes a plan's tables into a transaction.
type nftWriter struct {
	*layout
	tx     *knftables.Transaction
	family knftables.Family
	table  string
	ip     string // the keyword of the family's header; kind is the type of its addresses
	kind   string
	mark   uint32
}

// nftRules adds the tables of a plan to a transaction. old is the existing state of the same plan; nil: there is none.
// The sets of clients with session affinity are kept. After ttl the tables take no new connections.
func nftRules(tx *knftables.Transaction, p, old *plan.Plan, ttl time.Duration) {
	for _, v6 := range []bool{false, true} {
		now, before := p.Has(v6), old.Has(v6)
		if !now && !before {
			continue
		}
		w := nftWriterOf(tx, p, v6)
		t := &knftables.Table{Family: w.family, Name: w.table}
		switch {
		case now && before:
			tx.Flush(t)
			tx.Flush(&knftables.Map{Family: w.family, Table: w.table, Name: frontends})
			tx.Flush(&knftables.Set{Family: w.family, Table: w.table, Name: hairpins})
			tx.Flush(&knftables.Set{Family: w.family, Table: w.table, Name: active})
			tx.Flush(&knftables.Set{Family: w.family, Table: w.table, Name: masqueraded})
			w.write(ttl)
		case now:
			tx.Add(t)
			w.write(ttl)
		case before:
			tx.Delete(t)
		}
	}
}

// nftSweep removes chains and sets that are unused after an update. It needs its own transaction: before Linux 6.4 a
// chain that a rule's map refers to counts as used until the end of the transaction that removes the rule.
func nftSweep(tx *knftables.Transaction, p, old *plan.Plan) {
	for _, v6 := range []bool{false, true} {
		if p.Has(v6) && old.Has(v6) {
			nftWriterOf(tx, p, v6).sweep(nftWriterOf(tx, old, v6))
		}
	}
}

func nftWriterOf(tx *knftables.Transaction, p *plan.Plan, v6 bool) *nftWriter {
	w := &nftWriter{
		layout: layoutOf(p, v6), tx: tx, family: knftables.IPv4Family, table: nftTable(p.Name), ip: "ip", kind: "ipv4_addr",
		mark: p.Mark,
	}
	if v6 {
		w.family, w.ip, w.kind = knftables.IPv6Family, "ip6", "ipv6_addr"
	}
	return w
}

// sweep removes the chains and sets that an earlier state has and this one does not.
func (w *nftWriter) sweep(was *nftWriter) {
	for i := len(w.fronts); i < len(was.fronts); i++ {
		w.drop("f" + strconv.Itoa(i))
	}
	shared := w.shared()
	for i, was := range was.shared() {
		if was && (i >= len(shared) || !shared[i]) {
			w.drop("w" + strconv.Itoa(i))
		}
	}
	stays := map[string]bool{}
	for i := range w.endpoints {
		stays[w.endpoints[i].name] = w.endpoints[i].affinity > 0
	}
	for i := range was.endpoints {
		if e := &was.endpoints[i]; e.affinity > 0 && !stays[e.name] {
			w.drop("e-" + e.name)
			w.tx.Delete(&knftables.Set{Family: w.family, Table: w.table, Name: "a-" + e.name})
		}
	}
}

func (w *nftWriter) drop(chain string) {
	w.tx.Delete(&knftables.Chain{Family: w.family, Table: w.table, Name: chain})
}

func (w *nftWriter) chain(name string) {
	w.tx.Add(&knftables.Chain{Family: w.family, Table: w.table, Name: name})
}

func (w *nftWriter) rule(chain, format string, args ...any) {
	w.tx.Add(&knftables.Rule{Family: w.family, Table: w.table, Chain: chain, Rule: fmt.Sprintf(format, args...)})
}

func (w *nftWriter) write(ttl time.Duration) {
	w.chain(nftMark)
	for _, b := range nftBase {
		w.tx.Add(&knftables.Chain{
			Family: w.family, Table: w.table, Name: b.name,
			Type: new(knftables.NATType), Hook: new(b.hook), Priority: new(knftables.BaseChainPriority(b.priority)),
		})
	}
	w.timed(active, ttl)
	w.timed(masqueraded, ttl+lastPacket)
	w.hairpin()
	for i := range w.endpoints {
		if w.endpoints[i].affinity > 0 {
			w.endpoint(i)
		}
	}
	shared := w.shared()
	for i := range w.pools {
		if shared[i] {
			chain := "w" + strconv.Itoa(i)
			w.chain(chain)
			w.pool(chain, i)
		}
	}
	for i := range w.fronts {
		w.front(i, shared)
	}
	w.tx.Add(&knftables.Map{
		Family: w.family, Table: w.table, Name: frontends, Type: w.kind + " . inet_proto . inet_service : verdict",
	})
	for i := range w.entry {
		e := &w.entry[i]
		w.tx.Add(&knftables.Element{
			Family: w.family, Table: w.table, Map: frontends, Comment: new(nftComment(e.Port + " " + string(e.Kind))),
			Key:   []string{e.Address.Addr().String(), strings.ToLower(e.Protocol), strconv.Itoa(int(e.Address.Port()))},
			Value: []string{"goto f" + strconv.Itoa(e.front)},
		})
	}
	for _, chain := range []string{"prerouting", "output"} {
		w.rule(chain, "meta l4proto @%s %s daddr . meta l4proto . th dport vmap @%s", active, w.ip, frontends)
	}
	w.chain("marked")
	w.rule("marked", "meta mark set meta mark ^ 0x%x", w.mark)
	w.rule("marked", "masquerade fully-random")
	w.rule("postrouting", "meta l4proto != @%s return", masqueraded)
	w.rule("postrouting", "meta mark & 0x%x != 0 goto marked", w.mark)
	w.rule("postrouting", "ct status dnat %s saddr . %s daddr @%s masquerade fully-random", w.ip, w.ip, hairpins)
}

// The sets of the plan's protocols whose elements the kernel removes when the time is over. They are asked first: from
// then on no new connection meets another rule. Of those that are established no packet does in any case, as the
// kernel consults chains of type nat for the first packet only. A verdict map with timeouts would do without a set, but
// kernels before 6.5 miscount the uses of a chain that an expired element refers to (Linux 24138933b97b).
const (
	active      = "active"
	masqueraded = "masqueraded" // for lastPacket longer
)

// timed writes one of these sets.
func (w *nftWriter) timed(name string, ttl time.Duration) {
	w.tx.Add(&knftables.Set{
		Family: w.family, Table: w.table, Name: name, Type: "inet_proto", Flags: []knftables.SetFlag{knftables.TimeoutFlag},
	})
	seen := map[string]bool{}
	for i := range w.entry {
		protocol := strings.ToLower(w.entry[i].Protocol)
		if seen[protocol] {
			continue
		}
		seen[protocol] = true
		w.tx.Add(&knftables.Element{
			Family: w.family, Table: w.table, Set: name,
			// knftables has no field for the timeout of an element, which follows the key in nft's syntax.
			Key: []string{fmt.Sprintf("%s timeout %dms", protocol, ttl.Milliseconds())},
		})
	}
}

// hairpins is the set of connections whose endpoint is the client itself: pairs of one address.
const hairpins = "hairpins"

// hairpin writes that set: for an endpoint that connects to itself the source has to be translated to the node's. It
// contains local endpoints only, as the packets of others pass the rules of their own nodes (kube-proxy's set does the
// same: syncProxyRules of pkg/proxy/nftables).
func (w *nftWriter) hairpin() {
	w.tx.Add(&knftables.Set{Family: w.family, Table: w.table, Name: hairpins, Type: w.kind + " . " + w.kind})
	seen := map[netip.Addr]bool{}
	for i := range w.entry {
		for _, a := range w.entry[i].Local {
			if !seen[a] {
				seen[a] = true
				w.tx.Add(&knftables.Element{Family: w.family, Table: w.table, Set: hairpins, Key: []string{a.String(), a.String()}})
			}
		}
	}
}

// nftComment is a name as far as it fits into a comment, of which nft takes 128 bytes.
func nftComment(s string) string { return s[:min(len(s), knftables.CommentLengthMax-1)] }

func (w *nftWriter) setMark() string { return fmt.Sprintf("meta mark set meta mark | 0x%x", w.mark) }

func (w *nftWriter) front(i int, shared []bool) {
	f := &w.fronts[i]
	chain := "f" + strconv.Itoa(i)
	w.chain(chain)
	if len(f.ranges) > 0 {
		list := make([]string, len(f.ranges))
		for k, r := range f.ranges {
			list[k] = r.Masked().String()
		}
		if f.own.IsValid() {
			w.rule(chain, "%s saddr %s drop", w.ip, f.own)
		}
		outside := fmt.Sprintf("%s saddr != { %s }", w.ip, strings.Join(list, ", "))
		if f.free {
			outside += " fib saddr type != local"
		}
		w.rule(chain, "%s drop", outside)
	}
	for _, s := range f.steps() {
		match := ""
		switch s.class {
		case anyone:
		case fromPod:
			match = w.pods(f, "")
		case notFromPod:
			match = w.pods(f, "!= ")
		case fromNode:
			match = "fib saddr type local "
		}
		verdict := "drop"
		switch {
		case s.mark:
			verdict = w.setMark()
		case s.pool >= 0 && !shared[s.pool]:
			w.pool(chain, s.pool)
			continue
		case s.pool >= 0:
			verdict = "goto w" + strconv.Itoa(s.pool)
		}
		w.rule(chain, "%s%s", match, verdict)
	}
}

// pods is the match of packets of the node's pods; not is "!= " or "".
func (w *nftWriter) pods(f *front, not string) string {
	switch {
	case f.pods == nil:
		return ""
	case f.pods.CIDR.IsValid():
		return w.ip + " saddr " + not + f.pods.CIDR.Masked().String() + " "
	case f.pods.Prefix:
		return "iifname " + not + strconv.Quote(f.pods.Iface+"*") + " "
	}
	return "iifname " + not + strconv.Quote(f.pods.Iface) + " "
}

// pool writes the rules that choose one of a pool's endpoints into a chain: one translation, or, with session affinity,
// jumps to a chain for each endpoint that remembers its clients.
func (w *nftWriter) pool(chain string, i int) {
	p := &w.pools[i]
	if p.affinity == 0 {
		w.rule(chain, "meta l4proto %s dnat to %s", strings.ToLower(p.protocol), w.draw(p))
		return
	}
	for _, e := range p.endpoints {
		w.rule(chain, "%s saddr @a-%s goto e-%s", w.ip, w.endpoints[e].name, w.endpoints[e].name)
	}
	if len(p.endpoints) == 1 {
		w.rule(chain, "goto e-%s", w.endpoints[p.endpoints[0]].name)
		return
	}
	list := make([]string, len(p.endpoints))
	for k, e := range p.endpoints {
		list[k] = fmt.Sprintf("%d : goto e-%s", k, w.endpoints[e].name)
	}
	w.rule(chain, "numgen random mod %d vmap { %s }", len(p.endpoints), strings.Join(list, ", "))
}

// draw is the address of one endpoint, or a random choice among several.
func (w *nftWriter) draw(p *pool) string {
	if len(p.endpoints) == 1 {
		return w.endpoints[p.endpoints[0]].address.String()
	}
	list := make([]string, len(p.endpoints))
	for k, e := range p.endpoints {
		a := w.endpoints[e].address
		list[k] = fmt.Sprintf("%d : %s . %d", k, a.Addr(), a.Port())
	}
	return fmt.Sprintf("numgen random mod %d map { %s }", len(p.endpoints), strings.Join(list, ", "))
}

func (w *nftWriter) endpoint(i int) {
	e := &w.endpoints[i]
	chain := "e-" + e.name
	w.chain(chain)
	w.tx.Add(&knftables.Set{
		Family: w.family, Table: w.table, Name: "a-" + e.name, Type: w.kind,
		Flags:   []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag},
		Timeout: new(time.Duration(e.affinity) * time.Second),
	})
	w.rule(chain, "update @a-%s { %s saddr }", e.name, w.ip)
	w.rule(chain, "meta l4proto %s dnat to %s", strings.ToLower(e.protocol), e.address)
}
