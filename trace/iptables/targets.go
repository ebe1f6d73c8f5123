// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// targetSpec compiles a target's options to an op; nil where the target has no effect that a rule could match.
type targetSpec func(s *ruleSpec, opts []option) (netfilter.Op, bool)

// targets are all known targets. One that only counts, logs, or changes fields that are not modelled has no effect,
// with any options.
var targets = map[string]targetSpec{
	"ACCEPT":      verdict(netfilter.Accept, ""),
	"AUDIT":       nothing,
	"CHECKSUM":    nothing,
	"CLASSIFY":    nothing,
	"CLUSTERIP":   opaque("the nodes of a cluster share the address by a hash (CLUSTERIP)"),
	"CONNMARK":    connmark,
	"CONNSECMARK": nothing,
	"CT":          ct,
	"DNAT":        natTarget("--to-destination", translateDst),
	"DNPT":        opaque("it translates the network prefix (DNPT)"),
	"DROP":        verdict(netfilter.Drop, ""),
	"DSCP":        tos,
	"ECN":         nothing,
	"FLOWOFFLOAD": offload,
	"HL":          hopLimit,
	"HMARK":       opaque("it sets the mark by a hash (HMARK)"),
	"IDLETIMER":   nothing,
	"LED":         nothing,
	"LOG":         nothing,
	"MARK":        mark,
	"MASQUERADE":  natTarget("--to-ports", masquerade),
	"NETMAP":      netmap,
	"NFLOG":       nothing,
	"NFQUEUE":     verdict(netfilter.Queue, "a process on the node decides (NFQUEUE)"),
	"NOTRACK":     notrack,
	"QUEUE":       verdict(netfilter.Queue, "a process on the node decides (QUEUE)"),
	"RATEEST":     nothing,
	"REDIRECT":    natTarget("--to-ports", redirect),
	"REJECT":      verdict(netfilter.Reject, ""),
	"RETURN":      verdict(netfilter.Return, ""),
	"SECMARK":     nothing,
	"SET":         changeSet,
	"SNAT":        natTarget("--to-source", translateSrc),
	"SNPT":        opaque("it translates the network prefix (SNPT)"),
	"SYNPROXY":    verdict(netfilter.Stolen, "SYNPROXY answers in the server's place"),
	"TCPMSS":      clamp,
	"TCPOPTSTRIP": stripOptions,
	"TEE":         opaque("it sends a copy to another host, whose answers may break the connection (TEE)"),
	"TOS":         tos,
	"TPROXY":      tproxy,
	"TRACE":       nothing,
	"TTL":         hopLimit,
	"ULOG":        nothing,
}

func verdict(k netfilter.Kind, why string) targetSpec {
	v := &op.Verdict{Kind: k, Why: why}
	return func(*ruleSpec, []option) (netfilter.Op, bool) { return v, true }
}

// opaque is a known target that is not modelled.
func opaque(why string) targetSpec { return verdict(netfilter.Opaque, why) }

func nothing(*ruleSpec, []option) (netfilter.Op, bool) { return nil, true }

// clamp is TCPMSS: nothing that a rule may ask for here.
func clamp(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) == 1 && opts[0].name == "--set-mss" {
		arg, _ := opts[0].arg()
		if n, err := strconv.ParseUint(arg, 10, 16); err == nil && n > 0 {
			return op.ClampTo(uint16(n)), true
		}
	}
	return op.Clamp, true
}

// mayGo are the TCP options without which a connection works, whichever of its packets lack them (tcp_parse_options in
// net/ipv4/tcp_input.c), by name and by number. A signature (md5) is of the addresses, too, and no translated
// connection has one.
var mayGo = []string{"mss", "2", "sack-permitted", "4", "sack", "5", "timestamp", "8", "md5", "19"}

// stripOptions is TCPOPTSTRIP (net/netfilter/xt_TCPOPTSTRIP.c). Where the answer alone loses the window's scale, the
// client takes the server's windows for much smaller than they are, and the server the client's for larger: large data
// stalls.
func stripOptions(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) != 1 || opts[0].name != "--strip-options" {
		return nil, false
	}
	arg, _ := opts[0].arg()
	for name := range strings.SplitSeq(arg, ",") {
		if !slices.Contains(mayGo, name) {
			return op.OpaqueTarget("it takes a TCP option out, without which data may get lost: " + name), true
		}
	}
	return nil, true
}

// tos is of targets that change the TOS byte, DSCP and TOS (net/netfilter/xt_DSCP.c): rules may ask for it. A value
// that is not read is any.
func tos(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) != 1 {
		return op.ChangeTOS, true
	}
	arg, _ := opts[0].arg()
	value, mask, ok := valueMask(arg)
	switch {
	case ok && opts[0].name == "--set-dscp" && value < 1<<6:
		return op.SetTOS(uint8(value<<2), 0xfc), true
	case ok && opts[0].name == "--set-tos" && value <= 0xff:
		return op.SetTOS(uint8(value), uint8(mask)), true //nolint:gosec // the byte alone
	}
	return op.ChangeTOS, true
}

// offload is FLOWOFFLOAD, which OpenWrt adds to the kernel (xt_FLOWOFFLOAD.c): it goes on in any case.
func offload(*ruleSpec, []option) (netfilter.Op, bool) {
	return &op.Offload{Flowtable: "of the target FLOWOFFLOAD"}, true
}

// hopLimit: each node and router on the way to the endpoint takes one, and ends a packet that has 1 left (ip_forward in
// net/ipv4/ip_forward.c, ip6_forward in net/ipv6/ip6_output.c); decrementing may leave too little, too.
func hopLimit(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) != 1 {
		return nil, false
	}
	arg, _ := opts[0].arg()
	n, err := strconv.ParseUint(arg, 0, 8)
	switch name := opts[0].name; {
	case err != nil:
	case (name == "--ttl-set" || name == "--hl-set") && n >= op.EnoughHops:
		return op.SetHops(uint8(n)), true
	case name == "--ttl-inc", name == "--hl-inc":
		return op.AddHops(uint8(n)), true
	}
	return nil, false
}

// changeSet is SET: it records the change for later matches of the set. Values that an entry may assign to the packet
// (--map-mark and similar options) are not modelled.
func changeSet(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	name := ""
	for i := range opts {
		switch o := &opts[i]; o.name {
		case "--add-set", "--del-set":
			if len(o.args) != 2 {
				return nil, false
			}
			name = "set:" + o.args[0].text
		case "--exist", "--timeout":
		default:
			return nil, false
		}
	}
	return op.Action(func(c *netfilter.Context) { op.Note(c.Packet, name, "") }), name != ""
}
