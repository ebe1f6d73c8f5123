// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// statement turns a statement into ops of the rule. It returns false for arguments that it does not understand.
type statement func(b *builder, arg any) bool

// statements are all that are known, by what JSON calls them (libnftables-json(5), STATEMENTS). One that only counts, logs, or
// changes fields that the walk does not follow, does nothing whatever its arguments are.
var statements map[string]statement

func init() { //nolint:gochecknoinits // statements contain statements: a table of functions that use the table
	statements = map[string]statement{
		"match":          match,
		"accept":         verdict(netfilter.Accept, ""),
		"drop":           verdict(netfilter.Drop, ""),
		"return":         verdict(netfilter.Return, ""),
		"continue":       nothing,
		"jump":           jump(netfilter.Jump),
		"goto":           jump(netfilter.Goto),
		"vmap":           vmap,
		"reject":         reject,
		"queue":          verdict(netfilter.Queue, "a process on the node decides (queue)"),
		"dnat":           nat(translateDst),
		"snat":           nat(translateSrc),
		"masquerade":     masquerade,
		"redirect":       nat(redirect),
		"mangle":         mangle,
		"notrack":        notrack,
		"tproxy":         tproxy,
		"synproxy":       synproxy,
		"set":            update,
		"map":            update,
		"meter":          needsCount("how much came before (meter)"),
		"limit":          needsCount("how many packets came before (limit)"),
		"quota":          needsCount("how many bytes came before (quota)"),
		"ct count":       needsCount("how many connections there are (ct count)"),
		"counter":        nothing,
		"last":           nothing,
		"log":            nothing,
		"dup":            nothing,
		"flow":           never, // what is not established breaks the rule off (nft_flow_offload_eval)
		"ct helper":      nothing,
		"ct timeout":     nothing,
		"ct expectation": nothing,
		"secmark":        nothing,
		"reset":          ofTCP, // of a TCP option
		"optstrip":       ofTCP,
		"fwd":            opaque("it sends the packet out by another interface (fwd)"),
		"xt":             opaque("it is a match or a target of iptables, which nft does not show (xt)"),
	}
}

func (b *builder) add(o netfilter.Op) { b.ops = append(b.ops, o) }

// build turns the statements of a rule into its ops.
func (b *builder) build(list []any) {
	b.tellsFamily = tellsFamily(list)
	for _, v := range list {
		before := len(b.ops)
		key, arg, ok := one(v)
		if s, isBare := v.(string); isBare {
			key, ok = s, true
		}
		if do := statements[key]; ok && do != nil && do(b, arg) {
			continue
		}
		b.ops = b.ops[:before]
		if key == "match" {
			b.add(op.UnknownMatch("unknown expression " + statementText(v)))
			continue
		}
		b.add(op.OpaqueTarget("unknown statement " + statementText(v)))
	}
	b.rule.Ops = b.ops
}

// tellsFamily tells whether statements ask for the IP family, or for something that packets of one family have.
func tellsFamily(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, tellsFamily)
	case map[string]any:
		switch words(v["payload"], "protocol") {
		case "ip", "ip6", "icmp", "icmpv6":
			return true
		}
		switch words(v["meta"], "key") {
		case "nfproto", "protocol":
			return true
		}
		for _, inner := range v {
			if tellsFamily(inner) {
				return true
			}
		}
	}
	return false
}

func verdict(k netfilter.Kind, why string) statement {
	v := &op.Verdict{Kind: k, Why: why}
	return func(b *builder, _ any) bool { b.add(v); return true }
}

// opaque is a statement that is known, but not followed.
func opaque(why string) statement { return verdict(netfilter.Opaque, why) }

func nothing(*builder, any) bool { return true }

// ofTCP changes nothing, but breaks the rule off for other protocols (nft_exthdr_tcp_strip_eval).
func ofTCP(b *builder, _ any) bool {
	b.has("tcp")
	return true
}

func never(b *builder, _ any) bool {
	b.add(op.Conditions([]op.Cond{op.Nobody}, ""))
	return true
}

func act(f func(c *netfilter.Context)) statement {
	return func(b *builder, _ any) bool {
		b.acted = true
		b.add(op.Action(f))
		return true
	}
}

// notrack is nft_notrack_eval (net/netfilter/nft_ct.c): what has a connection keeps it, so behind connection tracking it does nothing.
func notrack(b *builder, _ any) bool {
	b.acted = true
	b.add(untrack{})
	return true
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

// needsCount is a statement that lets the packet pass on, or breaks the rule off, by what no snapshot holds. An object of that
// kind that has a name stands there as its name.
func needsCount(what string) statement {
	o := op.UnknownMatch("it depends on " + what)
	return func(b *builder, _ any) bool { b.add(o); return true }
}

func jump(k netfilter.Kind) statement {
	return func(b *builder, arg any) bool {
		to := words(arg, "target")
		if to == "" {
			return false
		}
		b.add(b.jump(to, k))
		return true
	}
}

// jump returns the op that leads to a chain: there is one for all the rules of a table.
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

// reject of a protocol is for packets of that one only; nft does not print the condition that it makes for it. It takes a person's own
// condition on the IP family for that one, and leaves it out, too (stmt_reject_postprocess in src/netlink_delinearize.c). What is
// rejected with an ICMP message tells the family again; what is reset does not.
func reject(b *builder, arg any) bool {
	need := map[string]op.Cond{"icmp": isFamily(netfilter.IPv4), "icmpv6": isFamily(netfilter.IPv6), "tcp reset": isProto(netfilter.TCP), "icmpx": nil, "": nil}
	cond, ok := need[words(arg, "type")]
	if cond != nil {
		b.add(op.Conditions([]op.Cond{cond}, ""))
	}
	if words(arg, "type") == "tcp reset" && b.object.Family == "inet" && !b.tellsFamily && !b.source.whole {
		b.add(op.UnknownMatch("nft does not print of a reset in a table inet whether the rule is for one IP family only"))
	}
	b.add(&op.Verdict{Kind: netfilter.Reject})
	return ok
}

// vmap goes by the verdict that a map has for the packet; where it has none the next rule is asked.
func vmap(b *builder, arg any) bool {
	l, ok := b.lookup(arg, true)
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

// draws makes a branch of each element that a draw may come to, with its share; of nil for numbers that no element has.
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

// Fields that a statement may set without changing the packet's way.
var harmless = map[string]bool{
	"meta priority": true, "meta pkttype": true, "meta nftrace": true, "meta secmark": true,
	"ct label": true, "ct event": true, "ct helper": true, "ct secmark": true,
	"payload dscp": true, "payload ecn": true, "payload checksum": true, "payload flowlabel": true, "payload id": true,
}

// has breaks the rule off for a packet without such a header: nft does not print the condition that it makes for it.
func (b *builder) has(protocol string) {
	if need, ok := headers[protocol]; ok {
		b.add(op.Conditions([]op.Cond{need}, ""))
	}
}

// mangle sets a field: {"key": EXPRESSION, "value": EXPRESSION}.
func mangle(b *builder, arg any) bool {
	kind, key, ok := one(member(arg, "key"))
	if !ok {
		return false
	}
	field := words(key, "key")
	switch {
	case kind == "ct" && field == "zone":
		b.acted = true
		b.add(setZone{})
		return true
	case kind == "tcp option":
		b.has("tcp")
		return true
	case kind == "payload":
		b.has(words(key, "protocol"))
	}
	switch {
	case harmless[kind+" "+field], kind == "payload" && harmless["payload "+words(key, "field")]:
		return true
	case kind == "payload" && (words(key, "field") == "ttl" || words(key, "field") == "hoplimit"):
		// One that leaves nothing to live on ends the packet at the next routing decision.
		n, isNumber := member(arg, "value").(float64)
		return isNumber && n > 1
	case kind == "payload", field != "mark", kind != "meta" && kind != "ct":
		return false
	}
	x, ok := b.operand(member(arg, "value"), typeMark)
	if !ok || x.draw != nil || x.from != nil && len(x.from.key) == 1 && x.from.key[0].draw != nil {
		return false
	}
	b.acted = true
	b.add(&setMark{expr: x, ct: kind == "ct"})
	return true
}

// setZone gives a packet without a connection a template of one, even if it was not to be tracked: it is again (nft_ct_set_zone_eval in
// net/netfilter/nft_ct.c, which does not tell the two apart; iptables' CT does).
type setZone struct{}

// Run implements [netfilter.Op].
func (setZone) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	untracked := p.Untracked
	p.Untracked = false
	before := hasConnection(c)
	p.Untracked = untracked
	switch {
	case before == op.No || p.Template:
		p.Untracked, p.Template = false, true
	case before == op.Maybe || untracked:
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "it gives a zone to a packet that connection tracking may be through with"}
	}
	return netfilter.Effect{}
}

// setMark sets the mark of the packet, or of its connection.
type setMark struct {
	*expr
	ct bool
}

// Run implements [netfilter.Op].
func (s *setMark) Run(c *netfilter.Context) netfilter.Effect {
	vals, t := values(c, []*expr{s.expr}, nil)
	switch {
	case t == op.No:
		return breakOff
	case t == op.Maybe || !vals[0].exact():
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "it sets the mark to what is not known: " + dependsOn([]*expr{s.expr})}
	}
	mark := uint32(vals[0].lo) //nolint:gosec // marks have 32 bits; the kernel cuts off the rest, too
	if !s.ct {
		c.Packet.Mark = mark
		return netfilter.Effect{}
	}
	switch hasConnection(c) {
	case op.Yes:
		c.Packet.CTMark = mark
	case op.Maybe:
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "whether the packet has a connection to mark is not known"}
	case op.No: // nft_ct_set_eval does nothing
	}
	return netfilter.Effect{}
}

// tproxy hands the packet to a local socket, and goes on with the rule (net/netfilter/nft_tproxy.c). That one listens there is taken
// for granted: without it the kernel breaks the rule off.
func tproxy(b *builder, arg any) bool {
	var port uint16
	if v, has := memberOf(arg, "port"); has {
		lo, hi, ok := typePort.constant(v)
		if port = uint16(lo.lo); !ok || lo != hi { //nolint:gosec // a port
			return false
		}
	}
	if need, ok := headers[words(arg, "family")]; ok {
		b.add(op.Conditions([]op.Cond{need}, ""))
	}
	return act(func(c *netfilter.Context) {
		if c.Packet.TProxy = port; port == 0 {
			c.Packet.TProxy = c.Packet.DstPort
		}
	})(b, nil)
}

// synproxy answers a SYN in the server's place; other protocols pass by (net/netfilter/nft_synproxy.c).
func synproxy(b *builder, _ any) bool {
	b.add(op.Conditions([]op.Cond{isProto(netfilter.TCP)}, ""))
	b.add(&op.Verdict{Kind: netfilter.Stolen, Why: "synproxy answers in the server's place"})
	return true
}

// update is add, update or delete of an element from the packet's path: {"op": …, "elem": …, "set": "@NAME"} (nft_dynset.c). It
// leaves a note for the rules that ask the set afterwards.
func update(b *builder, arg any) bool {
	name, _ := member(arg, "set").(string)
	if name == "" {
		name, _ = member(arg, "map").(string)
	}
	name, isName := strings.CutPrefix(name, "@")
	s := b.sets[name]
	if !isName || s == nil {
		return false
	}
	elem := member(arg, "elem")
	if key, in, ok := one(elem); ok && key == "elem" {
		elem = member(in, "val")
	}
	key, ok := b.exprs(elem)
	if !ok {
		return false
	}
	note := &putIn{key: key, note: "set:" + s.list}
	if sign := words(arg, "op"); (sign == "add" || sign == "update") && isClient(key) && s.remembers() {
		note.note = s.list
	}
	b.acted = true
	b.add(note)
	if list, ok := member(arg, "stmt").([]any); ok {
		for _, v := range list {
			if kind, _, ok := one(v); !ok || kind != "counter" && kind != "last" {
				b.add(op.UnknownMatch("it depends on what the element of the set has counted: " + statementText(v)))
			}
		}
	}
	return true
}

// putIn notes that a set was changed. A full set, which breaks the rule off, no snapshot shows.
type putIn struct {
	key  []*expr
	note string
}

// Run implements [netfilter.Op].
func (p *putIn) Run(c *netfilter.Context) netfilter.Effect {
	if _, t := values(c, p.key, nil); t == op.No {
		return breakOff
	}
	op.Note(c.Packet, p.note, "")
	return netfilter.Effect{}
}
