// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// chanceOp is -m statistic.
type randomOp float64

// Run implements [netfilter.Op].
func (p randomOp) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Chance, P: float64(p)}
}

// statistic: random with its probability; nth with its share over many connections, because its counter is not in the
// snapshot (net/netfilter/xt_statistic.c).
func statistic(_ *ruleSpec, opts []option, _ string) (netfilter.Op, bool) {
	p, not, mode := -1.0, false, ""
	for i := range opts {
		o := &opts[i]
		arg, ok := o.arg()
		if !ok {
			return nil, false
		}
		not = not || o.not
		switch o.name {
		case "--mode":
			mode = arg
		case "--probability":
			v, err := strconv.ParseFloat(arg, 64)
			if err != nil || !(0 <= v && v <= 1) || mode != "random" {
				return nil, false
			}
			p = v
		case "--every":
			n, ok := number(arg)
			if !ok || n == 0 || mode != "nth" {
				return nil, false
			}
			p = 1 / float64(n)
		case "--packet":
			if mode != "nth" {
				return nil, false
			}
		default:
			return nil, false
		}
	}
	if not {
		p = 1 - p
	}
	return randomOp(p), p >= 0 && p <= 1
}

// recentOp is -m recent (net/netfilter/xt_recent.c, recent_mt).
type recentOp struct {
	name    string
	mode    string
	not     bool
	hits    uint32 // --hitcount
	partial bool   // --mask: an entry stands for a network
	ttl     bool   // --rttl
	seconds uint32 // --seconds; 0 for none
	rdest   bool
}

func (r *recentOp) acts() bool { return r.mode != "--rcheck" }

// Run implements [netfilter.Op].
func (r *recentOp) Run(c *netfilter.Context) netfilter.Effect {
	if r.mode == "--set" {
		if r.rdest {
			op.Note(c.Packet, "set:"+r.name, "")
		} else {
			op.Note(c.Packet, r.name, "!"+r.name)
		}
		return r.answer(yes)
	}
	t := r.listed(c)
	switch {
	case t == no || r.mode == "--rcheck":
	case r.rdest:
		op.Note(c.Packet, "set:"+r.name, "")
	case r.mode == "--remove":
		op.Note(c.Packet, "!"+r.name, r.name)
	case t == yes:
		op.Note(c.Packet, r.name, "!"+r.name)
	}
	return r.answer(t)
}

// Remembers implements [netfilter.Rememberer].
func (r *recentOp) Remembers() (list string, seconds uint32) {
	if r.mode != "--rcheck" || r.not {
		return "", 0
	}
	return r.name, r.seconds
}

func (r *recentOp) answer(t truth) netfilter.Effect {
	switch {
	case t == maybe:
		return netfilter.Effect{Kind: netfilter.Unknown, Why: "the entries of the list " + r.name + " of recent are not " +
			"known"}
	case (t == yes) == r.not:
		return breakOff
	}
	return netfilter.Effect{}
}

func (r *recentOp) listed(c *netfilter.Context) truth {
	if r.rdest || op.Changed(c.Packet, r.name) {
		return maybe
	}
	if op.Noted(c.Packet, "!"+r.name) {
		return no
	}
	here := op.Noted(c.Packet, r.name)
	listed, ok := here, here
	if !ok {
		listed, ok = c.Recent(r.name)
	}
	switch {
	case !ok:
		return maybe
	case !listed && r.partial:
		return maybe // another client of its network may be
	case !listed:
		return no
	case r.mode == "--remove":
		return op.Known(true, !r.ttl)
	case r.hits > 1 || r.ttl:
		return maybe
	}
	return yes
}

func recent(_ *ruleSpec, opts []option, _ string) (netfilter.Op, bool) {
	r := &recentOp{name: "DEFAULT"}
	for i := range opts {
		o := &opts[i]
		arg, one := o.arg()
		ok := true
		switch o.name {
		case "--set", "--rcheck", "--update", "--remove":
			ok = r.mode == "" && len(o.args) == 0
			r.mode, r.not = o.name, o.not
		case "--name":
			r.name, ok = arg, one && !strings.ContainsRune(arg, ' ')
		case "--hitcount":
			r.hits, ok = number(arg)
		case "--mask":
			n, a, isAddr := readNetwork(arg)
			ok = isAddr && n.single()
			r.partial = !slices.Equal(a.AsSlice(), slices.Repeat([]byte{0xff}, a.BitLen()/8))
		case "--rttl":
			r.ttl = true
		case "--rdest":
			r.rdest = true
		case "--seconds":
			r.seconds, ok = number(arg) // a client in the list is assumed to be recent
		case "--reap", "--rsource":
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return r, r.mode != ""
}

// setOp is -m set (net/netfilter/xt_set.c).
type setOp struct {
	name   string
	flags  []string
	not    bool
	vague  string // an option that makes a match uncertain
	noElse bool   // --return-nomatch: a non-match is uncertain, too
}

// Run implements [netfilter.Op].
func (s *setOp) Run(c *netfilter.Context) netfilter.Effect {
	if c.Sets == nil {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: "the node's sets were not collected (ipset-save.txt)"}
	}
	in, ok, why := c.Sets.Match(c, s.name, s.flags)
	switch {
	case !ok:
	case op.Changed(c.Packet, s.name):
		ok, why = false, "a rule for packets of the connection changes the set "+s.name
	case in && s.vague != "" || s.noElse:
		ok, why = false, "it depends on "+s.vague
	}
	switch {
	case !ok:
		return netfilter.Effect{Kind: netfilter.Unknown, Why: why}
	case in == s.not:
		return breakOff
	}
	return netfilter.Effect{}
}

func matchSet(_ *ruleSpec, opts []option, _ string) (netfilter.Op, bool) {
	set := &setOp{}
	for i := range opts {
		o := &opts[i]
		switch o.name {
		case "--match-set":
			if len(o.args) != 2 || set.name != "" {
				return nil, false
			}
			set.name, set.flags, set.not = o.args[0].text, strings.Split(o.args[1].text, ","), o.not
		case "--return-nomatch":
			set.vague, set.noElse = "the entries with nomatch", true
		case "--packets-eq", "--packets-lt", "--packets-gt", "--bytes-eq", "--bytes-lt", "--bytes-gt":
			set.vague = "the set's counters"
		case "--update-counters", "--update-subcounters":
		default:
			return nil, false
		}
	}
	return set, set.name != ""
}

// ipvsOptions are the options of -m ipvs for a request of a connection that IPVS has scheduled.
var ipvsOptions = map[string]reader{
	"--vproto": withArg(func(arg string) (cond, bool) {
		p, ok := op.Protocol(arg)
		return func(c *netfilter.Context) truth { return op.Is(c.Packet.Proto == p) }, ok
	}),
	"--vaddr": withArg(func(arg string) (cond, bool) {
		n, _, ok := readNetwork(arg)
		return func(c *netfilter.Context) truth { return n.has(c.Packet.Virtual.Addr()) }, ok
	}),
	"--vport": withArg(func(arg string) (cond, bool) {
		p, ok := number(arg)
		return func(c *netfilter.Context) truth { return op.Is(uint32(c.Packet.Virtual.Port()) == p) }, ok
	}),
	"--vdir": withArg(func(arg string) (cond, bool) {
		reply := arg == "REPLY"
		return func(*netfilter.Context) truth { return op.Is(!reply) }, reply || arg == "ORIGINAL"
	}),
}

// scheduled tells whether IPVS has scheduled the packet.
func scheduled(c *netfilter.Context) truth { return op.Is(c.Packet.Virtual.IsValid()) }

// request tells whether ipvs_mt finds the connection of a packet: it looks it up by the packet's addresses turned round
// (ip_vs_fill_iph_skb with inverse), as those of a request that has its endpoint. No answer has such ones.
func request(c *netfilter.Context) truth {
	return op.Is(c.Packet.Virtual.IsValid() && !c.Packet.Turn.Answers())
}

// ipvs is net/netfilter/xt_ipvs.c. With any option besides --ipvs a packet that IPVS has not scheduled never matches,
// nor an answer, also with "!".
func ipvs(s *ruleSpec, opts []option, text string) (netfilter.Op, bool) {
	var conds []cond
	for i := range opts {
		o := &opts[i]
		if o.name == "--ipvs" {
			f := cond(scheduled)
			if o.not {
				f = f.Not()
			}
			conds = append(conds, f)
			continue
		}
		read := ipvsOptions[o.name]
		if read == nil {
			if o.name == "--vmethod" || o.name == "--vportctl" {
				conds = append(conds, request, op.Unsure)
				continue
			}
			return nil, false
		}
		f, ok := read(s, o)
		if !ok {
			return nil, false
		}
		if o.not {
			f = f.Not()
		}
		conds = append(conds, request, f)
	}
	return op.Conditions(conds, notInSnapshot(text)), len(conds) > 0
}
