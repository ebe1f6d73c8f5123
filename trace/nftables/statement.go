// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// effect adds the ops of a statement that has no arguments, or none that matter, to a rule.
type effect func(b *builder)

// effects are those statements, by name. One that only counts, logs, or changes fields that the walk does not follow,
// does nothing.
var effects = map[string]effect{
	"accept":         verdict(netfilter.Accept, ""),
	"drop":           verdict(netfilter.Drop, ""),
	"return":         verdict(netfilter.Return, ""),
	"continue":       nothing,
	"queue":          verdict(netfilter.Queue, "a process on the node decides (queue)"),
	"reject":         verdict(netfilter.Reject, ""),
	"notrack":        notrack,
	"synproxy":       synproxy,
	"meter":          needsCount("how much came before (meter)"),
	"limit":          needsCount("how many packets came before (limit)"),
	"quota":          needsCount("how many bytes came before (quota)"),
	"ct count":       needsCount("how many connections there are (ct count)"),
	"counter":        nothing,
	"last":           nothing,
	"log":            nothing,
	"dup":            copies,      // one that is not read
	"flow":           offload(""), // one that is not read
	"ct helper":      helps,
	"ct timeout":     keptFor,
	"ct expectation": expects,
	"secmark":        nothing,
	"reset":          resets, // one that is not read
	"fwd":            verdict(netfilter.Opaque, "it sends the packet out by another interface (fwd)"),
	"xt":             verdict(netfilter.Opaque, "it is a match or a target of iptables, which nft does not show (xt)"),
}

// keptFor is ct timeout: connection tracking keeps a connection as long as the object says, which is not read; where it
// says 0, no answer finds the connection (nft_ct_timeout_obj_eval in net/netfilter/nft_ct.c, nf_ct_is_expired in
// include/net/netfilter/nf_conntrack.h).
func keptFor(b *builder) {
	b.add(op.OpaqueTarget("it sets how long connection tracking keeps the connection, which is not read (ct timeout)"))
}

// helps is ct helper: the object says which helper of connection tracking the connection gets. Some drop what is not of
// their protocol, all of which is UDP's (help in net/ipv4/netfilter/nf_nat_snmp_basic_main.c). It is not read.
func helps(b *builder) { b.add(helper{}) }

type helper struct{}

// Run implements [netfilter.Op]: nothing happens to a packet without a connection (nft_ct_helper_obj_eval in
// net/netfilter/nft_ct.c).
func (helper) Run(c *netfilter.Context) netfilter.Effect {
	if both(hasConnection(c), isProto(netfilter.UDP)(c)) == op.No {
		return netfilter.Effect{}
	}
	const why = "it gives the connection a helper, which is not read and may drop its packets (ct helper)"
	return netfilter.Effect{Kind: netfilter.Opaque, Why: why}
}

// expects is ct expectation: it announces another connection, and drops the packet where that clashes with what others
// have announced. It breaks the rule off for a packet without a connection, and where the connection has announced as
// many as the object allows; newer kernels do so, too, for a connection that is confirmed, which older ones do not
// (nft_ct_expect_obj_eval in net/netfilter/nft_ct.c, nf_ct_expect_related_report in nf_conntrack_expect.c).
func expects(b *builder) {
	b.add(op.Conditions([]op.Cond{hasConnection}, "it depends on whether the packet has a connection"))
	b.add(op.OpaqueTarget("it expects another connection, and drops packets where it cannot (ct expectation)"))
}

// named adds the ops of a statement of which only the name counts; false for one that is not known.
func (b *builder) named(name string) bool {
	do := effects[name]
	if do != nil {
		do(b)
	}
	return do != nil
}

func (b *builder) add(o netfilter.Op) { b.ops = append(b.ops, o) }

// build turns the statements of a rule into its ops.
func (b *builder) build(list []syntax.Statement) {
	if onlyTraces(list) {
		return
	}
	b.ops = make([]netfilter.Op, 0, len(list))
	for i, s := range list {
		b.before = list[:i]
		before := len(b.ops)
		if b.statement(s) {
			continue
		}
		b.ops = b.ops[:before]
		b.add(notUnderstood(s))
	}
	if len(b.ops) > 0 {
		b.rule.Ops = b.ops
	}
}

// onlyTraces tells whether a rule does nothing but have the kernel trace packets: whichever it matches, nothing becomes
// of them.
func onlyTraces(list []syntax.Statement) bool {
	traces := false
	for _, s := range list {
		switch s := s.(type) {
		case *syntax.Match:
		case *syntax.Mangle:
			if key, ok := s.Key.(*syntax.Meta); !ok || key.Key != "nftrace" {
				return false
			}
			traces = true
		default:
			return false
		}
	}
	return traces
}

// notUnderstood is the op of a statement that is not understood: a match is Unknown, another statement Opaque.
func notUnderstood(s syntax.Statement) netfilter.Op {
	isMatch := false
	switch s := s.(type) {
	case *syntax.Match:
		isMatch = true
	case *syntax.Opaque:
		isMatch = s.Name == "match"
	}
	if isMatch {
		return op.UnknownMatch("unknown expression " + syntax.StatementText(s))
	}
	return op.OpaqueTarget("unknown statement " + syntax.StatementText(s))
}

// statement adds the ops of a statement; false for one that is not understood.
func (b *builder) statement(s syntax.Statement) bool {
	switch s := s.(type) {
	case *syntax.Match:
		return b.match(s)
	case *syntax.Verdict:
		if s.Target == "" {
			return b.named(s.Kind)
		}
		b.add(b.jump(s.Target, verdicts[s.Kind]))
		return true
	case *syntax.VMap:
		return b.vmap(s)
	case *syntax.Reject:
		return b.reject(s)
	case *syntax.NAT:
		return b.nat(s)
	case *syntax.Mangle:
		return b.mangle(s)
	case *syntax.TProxy:
		return b.tproxy(s)
	case *syntax.Update:
		return b.update(s)
	case *syntax.Queue:
		return b.named("queue")
	case *syntax.Limit:
		return b.named("limit")
	case *syntax.Quota:
		return b.named("quota")
	case *syntax.CTCount:
		return b.named("ct count")
	case *syntax.Log:
		return b.named("log")
	case *syntax.Flow:
		offload(s.Flowtable)(b)
		return true
	case *syntax.Dup:
		return b.duplicate(s)
	case *syntax.Reset:
		return b.reset(s)
	case *syntax.ObjectRef:
		if s.Map != nil && !b.finds(s.Map) {
			return false
		}
		return b.named(s.Kind)
	case syntax.Plain:
		return b.named(string(s))
	case *syntax.Opaque:
		return b.named(s.Name)
	}
	return false
}

// tellsFamily tells whether the rule matches the IP family, or for something that packets of one family have, before
// the statement in progress, as far as nft prints it.
func (b *builder) tellsFamily() bool {
	found := false
	for _, s := range b.before {
		syntax.Exprs(s, func(e syntax.Expr) {
			switch e := e.(type) {
			case *syntax.Payload:
				found = found || slices.Contains([]string{"ip", "ip6", "icmp", "icmpv6"}, e.Protocol)
			case *syntax.Meta:
				found = found || e.Key == "nfproto" || e.Key == "protocol"
			}
		})
	}
	return found
}

// verdict ends the rule.
func verdict(k netfilter.Kind, why string) effect {
	v := &op.Verdict{Kind: k, Why: why}
	return func(b *builder) { b.add(v) }
}

func nothing(*builder) {}

// offload hands the connection to a flowtable of the table.
func offload(flowtable string) effect {
	return func(b *builder) {
		name := strings.TrimPrefix(flowtable, "@")
		o := &op.Offload{Flowtable: b.table.Family + " " + b.table.Name + " " + name, Breaks: true}
		if f := b.table.Flowtable(name); f != nil {
			o.Devices = f.Devices
		}
		b.add(o)
	}
}

// notrack is nft_notrack_eval (net/netfilter/nft_ct.c): what has a connection keeps it, so behind connection tracking
// it does nothing.
func notrack(b *builder) {
	b.acted = true
	b.add(untrack{})
}

type untrack struct{}

// Run implements [netfilter.Op].
func (untrack) Run(c *netfilter.Context) netfilter.Effect {
	switch hasConnection(c) {
	case op.No:
		op.Notrack(c)
	case op.Maybe:
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "whether the packet has a connection by then is not known"}
	case op.Yes:
	}
	return netfilter.Effect{}
}

// needsCount is a statement that lets the packet pass on, or breaks the rule off, by what no snapshot holds. An object
// of that kind that has a name stands there as its name.
func needsCount(what string) effect {
	o := op.UnknownMatch("it depends on " + what)
	return func(b *builder) { b.add(o) }
}

// jump returns the op that jumps to a chain: all rules of a table share one.
func (in *scope) jump(to string, k netfilter.Kind) *op.Jump {
	in.jumping.Lock()
	defer in.jumping.Unlock()
	j := in.jumps[jumpKey{to, k}]
	if j == nil {
		j = &op.Jump{Name: to, Kind: k}
		in.jumps[jumpKey{to, k}] = j
	}
	return j
}

// reject of a protocol is for packets of that one only; nft does not print the condition that it makes for it. It takes
// a person's own condition on the IP family for that one, and leaves it out, too (stmt_reject_postprocess in
// src/netlink_delinearize.c). What is rejected with an ICMP message tells the family again; what is reset does not.
func (b *builder) reject(r *syntax.Reject) bool {
	cond, ok := rejected[r.Type]
	if cond != nil {
		b.add(op.Conditions([]op.Cond{cond}, ""))
	}
	if r.Type == "tcp reset" && b.table.Family == "inet" && !b.ruleset.Complete && !b.tellsFamily() {
		b.add(op.UnknownMatch("nft does not print of a reset in a table inet whether the rule is for one IP family only"))
	}
	b.add(&op.Verdict{Kind: netfilter.Reject})
	return ok
}

// rejected are the packets that a reject of a type is for.
var rejected = map[string]op.Cond{
	"icmp": isFamily(netfilter.IPv4), "icmpv6": isFamily(netfilter.IPv6), "tcp reset": isProto(netfilter.TCP),
	"icmpx": nil, "": nil,
}

// vmap goes by the verdict that a map has for the packet; where it has none the next rule is asked.
func (b *builder) vmap(s *syntax.VMap) bool {
	l, ok := b.lookup((*syntax.Map)(s), typeVerdict)
	if !ok {
		return false
	}
	if len(l.key) == 1 && l.key[0].draw != nil {
		if l.in.unread != "" || l.key[0].draw.mod > maxDrawn {
			return false
		}
		b.add(&choice{branches{l}})
		return true
	}
	b.add(&dispatch{branches{l}})
	return true
}

// branches is a look-up in a verdict map.
type branches struct{ *lookup }

// BranchesTo implements [netfilter.Brancher].
func (b branches) BranchesTo(f func(name string)) {
	for i := range b.in.elements {
		if to := b.in.elements[i].target; to != "" {
			f(to)
		}
	}
}

// ResolveAll implements [netfilter.Brancher].
func (b branches) ResolveAll(chain func(name string) *netfilter.Chain) { b.in.resolve(chain) }

// dispatch is vmap.
type dispatch struct{ branches }

// Run implements [netfilter.Op].
func (d *dispatch) Run(c *netfilter.Context) netfilter.Effect {
	t, e := d.find(c)
	switch {
	case t == op.No:
		return breakOff
	case t == op.Yes:
		return d.in.decided(c, e)
	case d.in.unread != "":
		return netfilter.Effect{Kind: netfilter.Opaque, Why: d.in.unread}
	}
	return netfilter.Effect{Kind: netfilter.Opaque, Why: dependsOn(d.key)}
}

// choice is vmap of a number that is drawn.
type choice struct{ branches }

// Run implements [netfilter.Op].
func (d *choice) Run(c *netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Split, Alts: d.draws(c, func(e *element) netfilter.Alt {
		alt := netfilter.Alt{Packet: *c.Packet} // the effect Next of none: the next rule is asked
		if e != nil {
			alt.Effect = d.in.decided(c, e)
		}
		return alt
	})}
}

// draws makes a branch of each element that a draw may come to, with its share; of nil for numbers that no element
// has.
func (l *lookup) draws(c *netfilter.Context, branch func(e *element) netfilter.Alt) []netfilter.Alt {
	d := l.key[0].draw
	c.Work += int(d.mod / costOfElement) //nolint:gosec // at most maxDrawn
	var order []*element
	count := map[*element]int{}
	for i := range d.mod {
		e, _ := l.in.find([]value{knownNumber(d.first + i)})
		if count[e] == 0 {
			order = append(order, e)
		}
		count[e]++
	}
	alts := make([]netfilter.Alt, len(order))
	for i, e := range order {
		alts[i] = branch(e)
		alts[i].P = float64(count[e]) / float64(d.mod)
	}
	return alts
}

// tproxy gives the packet to a transparent socket of the node, and breaks the rule off where there is none
// (nft_tproxy_eval_v4 in net/netfilter/nft_tproxy.c).
func (b *builder) tproxy(t *syntax.TProxy) bool {
	var port uint16
	if t.Port != nil {
		lo, hi, ok := typePort.constant(t.Port)
		if port = uint16(lo.lo); !ok || lo != hi { //nolint:gosec // a port
			return false
		}
	}
	b.has(t.Family)
	b.acted = true
	b.add(&op.TProxy{Port: port, Else: netfilter.Break})
	return true
}

// synproxy answers a SYN in the server's place; other protocols pass by (net/netfilter/nft_synproxy.c).
func synproxy(b *builder) {
	b.add(op.Conditions([]op.Cond{isProto(netfilter.TCP)}, ""))
	b.add(&op.Verdict{Kind: netfilter.Stolen, Why: "synproxy answers in the server's place"})
}
