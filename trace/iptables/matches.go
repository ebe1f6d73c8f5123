// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// reader reads an option, without its "!", as a condition. It returns false for unknown arguments.
type reader func(s *ruleSpec, o *option) (cond, bool)

// matchSpec describes a known match.
type matchSpec struct {
	proto uint8 // the packet's protocol, where the match is for one only
	// where this is false the kernel's function fails before it evaluates the options and their "!"
	only    cond
	options map[string]reader // one condition each, which must all hold; other options are unknown
	whole   func(s *ruleSpec, opts []option, text string) (netfilter.Op, bool)
	depends string // what the match depends on, where it is never known, with any options
	why     string // why it is not known with the options that it has; "": the snapshot does not tell
	ports   bool   // it has --sport and --dport like -m tcp
	always  bool   // it matches any packet
	args    map[string]int
	words   []string // the arguments with which always is true; nil: any
}

// needs returns a match that depends on something that is not in the snapshot.
func needs(what string) *matchSpec { return &matchSpec{depends: what} }

// none returns a match that fails for every packet of the walk, with or without "!".
func none() *matchSpec { return &matchSpec{only: op.NoPacket, depends: "nothing"} }

// otherProtocol returns a match of a protocol that no Service has: it fails for all others, and is Unknown for that
// one.
func otherProtocol(p uint8) *matchSpec {
	return &matchSpec{proto: p, depends: "a header that the walk's packet does not have"}
}

func tcpPacket(what string) *matchSpec { return &matchSpec{proto: netfilter.TCP, depends: what} }

// kubeProxyObjects are the accounting objects that kube-proxy makes (pkg/proxy/metrics/metrics.go).
var kubeProxyObjects = []string{"ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"}

// matches are all known matches.
//
// The walk follows the first packets of a connection: a TCP SYN, an SCTP INIT, a DCCP REQUEST or a datagram, the answer
// to it, and what follows; unicast, no fragment, without IP options or extension headers.
var matches = map[string]*matchSpec{
	"addrtype":  {whole: addrType},
	"ah":        otherProtocol(netfilter.AH),
	"bpf":       needs("the packet's bytes"),
	"cgroup":    {only: mayHaveSocket, depends: "the process that sends it"},
	"cluster":   needs("a hash of the source"),
	"comment":   {always: true, args: map[string]int{"--comment": 1}},
	"connbytes": needs("how many bytes the connection has seen"),
	"connlabel": {only: isTracked, depends: "the connection's label"},
	"connlimit": needs("how many connections there are"),
	"connmark":  {whole: connmarkMatch},
	"conntrack": {whole: conntrack},
	"cpu":       needs("the CPU"),
	"dccp": {proto: netfilter.DCCP, ports: true, options: map[string]reader{
		"--sport": sport, "--dport": dport, "--dccp-types": dccpTypes,
	}},
	"devgroup": {
		options: map[string]reader{"--src-group": groupOf(incoming), "--dst-group": groupOf(outgoing)},
		why:     "it depends on interface groups",
	},
	"dscp": {
		options: map[string]reader{"--dscp": withArg(dscpIs)},
		why:     "it depends on the packet's DSCP",
	},
	"dst":       none(),
	"ecn":       needs("the packet's ECN bits"),
	"esp":       otherProtocol(netfilter.ESP),
	"eui64":     needs("the source MAC address"),
	"frag":      none(),
	"hashlimit": needs("how many packets came before"),
	"hbh":       none(),
	// xt_helper.c: a condition on the connection that expected this one
	"helper":     {options: map[string]reader{"--helper": anyArg(op.NoPacket)}},
	"hl":         {options: hopsLeft("hl"), why: "it depends on the packet's hop limit"},
	"icmp":       icmp,
	"icmp6":      icmpv6,
	"icmpv6":     icmpv6,
	"ipcomp":     otherProtocol(108),
	"iprange":    {options: map[string]reader{"--src-range": ipRange(source), "--dst-range": ipRange(destination)}},
	"ipv6header": needs("the packet's extension headers"),
	"ipvs":       {whole: ipvs},
	"l2tp":       needs("the packet's bytes"),
	"length": {
		options: map[string]reader{"--length": numberRange(op.Length)},
		why:     "it depends on the packet's length",
	},
	"limit": needs("how many packets came before"),
	"mac": {
		only: op.HasLinkHeader, options: map[string]reader{"--mac-source": withArg(macIs)},
		why: "it depends on the source MAC address",
	},
	"mark": {options: map[string]reader{"--mark": markIs(skbMark)}},
	"mh":   otherProtocol(135),
	"multiport": {options: map[string]reader{
		"--dports": portList(dportIn), "--sports": portList(sportIn), "--ports": portList(anyPortIn),
	}},
	"nfacct": {
		// An object with a quota matches only once that is used up (nfacct_mt in net/netfilter/xt_nfacct.c), and
		// iptables-save does not show which object has one. kube-proxy's have none.
		always: true, args: map[string]int{"--nfacct-name": 1}, words: kubeProxyObjects,
		depends: "whether the accounting object has a quota, and how much of it is left",
	},
	"osf": tcpPacket("the TCP options"),
	"owner": {
		options: map[string]reader{
			"--uid-owner": anyArg(unknownProcess), "--gid-owner": anyArg(unknownProcess),
			"--suppl-groups": flag(unknownProcess), "--socket-exists": flag(op.FromNode),
		},
	},
	"physdev": {
		options: map[string]reader{
			"--physdev-in": withArg(bridgePort), "--physdev-out": withArg(bridgePort),
			"--physdev-is-in": flag(bridged), "--physdev-is-out": flag(bridged), "--physdev-is-bridged": flag(bridged),
		},
	},
	"pkttype":  {options: map[string]reader{"--pkt-type": packetType}},
	"policy":   {whole: ipsecPolicy},
	"quota":    needs("how many bytes came before"),
	"rateest":  needs("a measured rate"),
	"realm":    needs("routing realms"),
	"recent":   {whole: recent},
	"rpfilter": {whole: rpfilter},
	"rt":       none(),
	"sctp": {proto: netfilter.SCTP, ports: true, options: map[string]reader{
		"--sport": sport, "--dport": dport, "--chunk-types": chunkTypes,
	}},
	"set":       {whole: matchSet},
	"socket":    {only: op.MayHaveSocket, depends: "the node's sockets"},
	"srh":       none(),
	"state":     {whole: conntrack},
	"statistic": {whole: statistic},
	"string":    needs("the packet's bytes"),
	"tcp": {proto: netfilter.TCP, ports: true, options: map[string]reader{
		"--sport": sport, "--dport": dport, "--tcp-flags": tcpFlags, "--syn": flag(isSYN), "--tcp-option": tcpOption,
	}},
	"tcpmss": {
		proto: netfilter.TCP, options: map[string]reader{"--mss": mss}, why: "it depends on the TCP options",
	},
	"time": {whole: timeOf},
	"tos": {
		options: map[string]reader{"--tos": withArg(tosIs)},
		why:     "it depends on the packet's TOS",
	},
	"ttl": {options: hopsLeft("ttl"), why: "it depends on the packet's TTL"},
	"u32": needs("the packet's bytes"),
	"udp": {proto: netfilter.UDP, ports: true, options: map[string]reader{"--sport": sport, "--dport": dport}},
}

// understands tells whether all options are known ones, for a match that accepts any packet with these.
func (m *matchSpec) understands(opts []option) bool {
	for i := range opts {
		if n, ok := m.args[opts[i].name]; !ok || opts[i].not || len(opts[i].args) != n {
			return false
		}
		for _, w := range opts[i].args {
			if m.words != nil && !slices.Contains(m.words, w.text) {
				return false
			}
		}
	}
	return true
}

// compile compiles the options of a match to an op; text is the match in the dump.
func (m *matchSpec) compile(s *ruleSpec, opts []option, text string) (netfilter.Op, bool) {
	switch {
	case m.whole != nil:
		return m.whole(s, opts, text)
	case m.always && m.depends == "":
		return nil, false
	}
	var conds []cond
	if m.proto != 0 && m.proto != s.proto {
		conds = append(conds, func(c *netfilter.Context) truth { return op.Is(c.Packet.Proto == m.proto) })
	}
	if m.only != nil {
		conds = append(conds, m.only)
	}
	if m.depends != "" {
		return op.Conditions(append(conds, op.Unsure), "it depends on "+m.depends), true
	}
	more, ok := m.conds(s, opts)
	why := m.why
	if why == "" {
		why = notInSnapshot(text)
	}
	return op.Conditions(append(conds, more...), why), ok
}

// notInSnapshot is the reason of a result that is not known.
func notInSnapshot(text string) string { return "a snapshot does not have: " + text }

// conds reads every option with its reader.
func (m *matchSpec) conds(s *ruleSpec, opts []option) ([]cond, bool) {
	conds := make([]cond, 0, len(opts)+2)
	for i := range opts {
		o := &opts[i]
		read := m.options[o.name]
		if read == nil {
			return nil, false
		}
		f, ok := read(s, o)
		if !ok {
			return nil, false
		}
		if o.not {
			f = f.Not()
		}
		conds = append(conds, f)
	}
	return conds, true
}

// flag reads an option without argument.
func flag(f cond) reader {
	return func(_ *ruleSpec, o *option) (cond, bool) { return f, len(o.args) == 0 }
}

// anyArg reads an option with one argument, for a condition that does not depend on it.
func anyArg(f cond) reader {
	return func(_ *ruleSpec, o *option) (cond, bool) { return f, len(o.args) == 1 }
}

// withArg reads an option with one argument.
func withArg(of func(arg string) (cond, bool)) reader {
	return func(_ *ruleSpec, o *option) (cond, bool) {
		arg, ok := o.arg()
		if !ok {
			return nil, false
		}
		return of(arg)
	}
}
