// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// markForms reads the options of a new mark. Each one is a value and a mask: mark = mark &^ mask ^ value
// (net/netfilter/xt_mark.c; extensions/libxt_MARK.c translates). Dumps have the first one only.
func markForms(o *option) (v, m uint32, ok bool) {
	arg, one := o.arg()
	v, m, ok = valueMask(arg)
	switch o.name {
	case "--set-xmark":
	case "--set-mark":
		m |= v
	case "--and-mark":
		v, m = 0, ^v
	case "--or-mark":
		m = v
	case "--xor-mark":
		m = 0
	default:
		return 0, 0, false
	}
	return v, m, one && ok
}

func mark(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) != 1 {
		return nil, false
	}
	v, m, ok := markForms(&opts[0])
	return op.Action(func(c *netfilter.Context) { c.Packet.Mark = c.Packet.Mark&^m ^ v }), ok
}

// connmark is net/netfilter/xt_connmark.c, connmark_tg: without a connection it does nothing.
func connmark(s *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) == 0 {
		return nil, false
	}
	missing := noConnection(s)
	set := func(change func(p *netfilter.Packet)) netfilter.Op {
		return op.Action(func(c *netfilter.Context) {
			if !missing(c) {
				change(c.Packet)
			}
		})
	}
	nf, ct, ok := markMasks(opts[1:])
	switch opts[0].name {
	case "--save-mark":
		return set(func(p *netfilter.Packet) { p.CTMark = p.CTMark&^ct ^ p.Mark&nf }), ok
	case "--restore-mark":
		return set(func(p *netfilter.Packet) { p.Mark = p.Mark&^nf ^ p.CTMark&ct }), ok
	}
	v, m, ok := markForms(&opts[0])
	return set(func(p *netfilter.Packet) { p.CTMark = p.CTMark&^m ^ v }), ok && len(opts) == 1
}

// markMasks reads the masks of --save-mark and --restore-mark.
func markMasks(opts []option) (nf, ct uint32, ok bool) {
	nf, ct = ^uint32(0), ^uint32(0)
	for i := range opts {
		arg, _ := opts[i].arg()
		v, ok := number(arg)
		if !ok {
			return 0, 0, false
		}
		switch opts[i].name {
		case "--nfmask":
			nf = v
		case "--ctmask":
			ct = v
		case "--mask":
			nf, ct = v, v
		default:
			return 0, 0, false
		}
	}
	return nf, ct, true
}

func notrack(*ruleSpec, []option) (netfilter.Op, bool) { return op.Action(op.Notrack), true }

// zoneOptions are those of CT that give the packet's connection a zone, with the directions in which it counts.
var zoneOptions = map[string]uint8{
	"--zone": netfilter.ZoneBoth, "--zone-orig": netfilter.ZoneOriginal, "--zone-reply": netfilter.ZoneReply,
}

// passing are the helpers of connection tracking that let pass what is not of their protocol
// (net/netfilter/nf_conntrack_*.c). snmp and snmp_trap drop it where addresses are translated (snmp_translate in
// net/ipv4/netfilter/nf_nat_snmp_basic_main.c), and a process may be another one (net/netfilter/nfnetlink_cthelper.c).
var passing = []string{
	"ftp", "tftp", "irc", "sip", "RAS", "Q.931", "H.245", "pptp", "amanda", "sane", "netbios-ns",
}

// ct is CT (xt_ct_tg_check in net/netfilter/xt_CT.c). Most helpers and similar options do not affect the path of a
// packet, except that it stays tracked. A policy of timeouts, which is not read, may forget the connection before its
// answer (xt_ct_set_timeout there; nf_ct_is_expired in include/net/netfilter/nf_conntrack.h).
func ct(s *ruleSpec, opts []option) (netfilter.Op, bool) {
	zone, why := netfilter.Zone{Dirs: netfilter.ZoneBoth}, ""
	for i := range opts {
		o := &opts[i]
		if dirs := zoneOptions[o.name]; dirs != 0 {
			arg, _ := o.arg()
			zone.Dirs = dirs
			if zone.ByMark = arg == "mark"; zone.ByMark {
				continue
			}
			n, ok := number(arg)
			if !ok || n >= 1<<16 {
				return nil, false
			}
			zone.ID = uint16(n)
			continue
		}
		switch o.name {
		case "--notrack":
			return notrack(s, nil)
		case "--ctevents", "--expevents":
		case "--helper":
			// One for another port than the usual has it in its name (nf_ct_helper_init).
			arg, _ := o.arg()
			name := strings.TrimSuffix(strings.TrimRight(arg, "0123456789"), "-")
			if !slices.Contains(passing, arg) && !slices.Contains(passing, name) {
				why = "it gives the connection a helper, which may drop its packets (--helper " + arg + ")"
			}
		case "--timeout":
			why = "it sets how long connection tracking keeps the connection, which is not read (--timeout)"
		default:
			return nil, false
		}
	}
	if why != "" {
		return op.OpaqueTarget(why), true
	}
	return op.Action(func(c *netfilter.Context) { op.GiveTemplate(c, zone) }), true
}

// tproxy delivers the packet to a transparent socket of the node, for any destination, and drops it where there is none
// (tproxy_tg4 in net/netfilter/xt_TPROXY.c).
func tproxy(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	var port uint16
	ok := false
	for i := range opts {
		arg, _ := opts[i].arg()
		fine := true
		switch opts[i].name {
		case "--on-port":
			port, ok = portNumber(arg)
		case "--tproxy-mark":
			_, _, fine = valueMask(arg)
		case "--on-ip":
		default:
			fine = false
		}
		if !fine {
			return nil, false
		}
	}
	return &op.TProxy{Port: port, Else: netfilter.Drop}, ok
}
