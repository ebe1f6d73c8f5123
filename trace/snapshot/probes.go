// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// ProbesFile holds the results of real connections to frontends: [Probing] as JSON.
const ProbesFile = "probes.json"

// Probing is one run of probes.
type Probing struct {
	Targets []Probes `json:"targets"`
	// Tracked is the increase of connection tracking's counters during the run, of all connections of the node; nil where
	// they cannot be read.
	Tracked *Tracked `json:"tracked,omitempty"`
}

// Update takes over a later run's results: those of its targets take the place of earlier ones, and its counters.
func (p *Probing) Update(later *Probing) {
	p.Tracked = later.Tracked
	at := make(map[ProbeTarget]int, len(p.Targets))
	for i := range p.Targets {
		at[p.Targets[i].Bare()] = i
	}
	for i := range later.Targets {
		if k, ok := at[later.Targets[i].Bare()]; ok {
			p.Targets[k] = later.Targets[i]
		} else {
			p.Targets = append(p.Targets, later.Targets[i])
		}
	}
}

// Tracked are counters of the kernel's connection tracking (/proc/net/stat/nf_conntrack), over a time.
type Tracked struct {
	Seconds float64 `json:"seconds"`
	Invalid uint64  `json:"invalid"` // packets that belong to no connection and cannot create one
	// connections that raced with another one with the same addresses: their first packet is dropped
	InsertFailed uint64 `json:"insertFailed"`
	Drop         uint64 `json:"drop"` // connections dropped because the table was full
}

// ProbeTarget is an address and port to connect to, and from where.
type ProbeTarget struct {
	Protocol string         `json:"protocol"` // TCP, UDP, SCTP
	To       netip.AddrPort `json:"to"`
	// From is the address of the pod of this node from whose network namespace to connect; the zero Addr is the node's
	// own.
	From   netip.Addr `json:"from,omitzero"`
	Probes int        `json:"probes"` // number of connections
	// Trace requests kernel traces of the rules that apply to connections, one for each endpoint.
	Trace bool `json:"trace,omitempty"`
	// Payload is what to send over each connection, of which an answer is then awaited; empty: nothing is sent.
	Payload string `json:"payload,omitempty"`
}

// Bare is the target without what is done there: what probes of a path are found by.
func (t ProbeTarget) Bare() ProbeTarget {
	t.Probes, t.Trace, t.Payload = 0, false, ""
	return t
}

// Probes is the result of the connections to a target.
type Probes struct {
	ProbeTarget

	Error string  `json:"error,omitempty"` // why it could not be probed
	List  []Probe `json:"list,omitempty"`

	Traces     []Trace `json:"traces,omitempty"`
	TraceError string  `json:"traceError,omitempty"` // why there are no kernel traces, or not all
	// Legacy: the traces include the rules of iptables-legacy. LegacyError is the reason why they do not, on a node that
	// has such rules.
	Legacy      bool   `json:"legacy,omitempty"`
	LegacyError string `json:"legacyError,omitempty"`
	// DropsError is the reason why the kernel could not be asked where it discards packets of traced connections; it is
	// asked where connections fail.
	DropsError string `json:"dropsError,omitempty"`
}

// Trace is one additional connection with the rules that applied to its first packet.
type Trace struct {
	Probe

	Steps []TraceStep `json:"steps,omitempty"`
	// Hooks are the hooks of the node that the first packet came to, in its order.
	Hooks []TraceHook `json:"hooks,omitempty"`
	// Answer has the same of the first packet that came back. Of that only what follows connection tracking is traced.
	Answer      []TraceStep `json:"answer,omitempty"`
	AnswerHooks []TraceHook `json:"answerHooks,omitempty"`
	// Drops are the packets of the connection that the kernel discarded, on this node.
	Drops []Drop `json:"drops,omitempty"`
}

// TraceHook is a hook that a traced packet came to.
type TraceHook struct {
	Hook string `json:"hook"` // prerouting, input, forward, output, postrouting
	// Passed: the packet came to the hook's end, behind all rules.
	Passed bool `json:"passed,omitempty"`
}

// Drop is a packet that the kernel discarded (its tracepoint skb:kfree_skb).
type Drop struct {
	// Reason is the kernel's name for it without its prefix ("IP_RPFILTER"), of enum skb_drop_reason; empty before
	// Linux 5.17, which tells none.
	Reason   string `json:"reason,omitempty"`
	Function string `json:"function,omitempty"` // of the kernel, in which that was
	// Interface is the packet's at that moment, which may be the one that it came in by or the one that it leaves by;
	// empty where it has none, or where it is not one of this node's own.
	Interface string         `json:"interface,omitempty"`
	InPod     bool           `json:"inPod,omitempty"` // in the network namespace of a pod, not in the node's
	Protocol  string         `json:"protocol,omitempty"`
	From      netip.AddrPort `json:"from"`
	To        netip.AddrPort `json:"to"`
	Answer    bool           `json:"answer,omitempty"` // it went to the client
}

// TraceStep is a rule that applied to the packet, as the kernel traced it; or a base chain's policy.
type TraceStep struct {
	Family string `json:"family"` // of the table: ip, ip6, inet
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	// its number in the chain, from 1; 0, and for iptables-legacy the number of rules plus one: the chain's end
	Rule   int  `json:"rule,omitempty"`
	Legacy bool `json:"legacy,omitempty"` // of iptables-legacy; otherwise of nf_tables, as iptables-nft's are
	// accept, drop, continue, jump, goto, return, queue; iptables-legacy traces have none
	Verdict string `json:"verdict,omitempty"`
	To      string `json:"to,omitempty"` // the chain of a jump or goto
	Policy  bool   `json:"policy,omitempty"`
}

// How a connection can end.
const (
	ProbeConnected = "connected" // the server accepted it; of UDP: it replied
	ProbeSent      = "sent"      // UDP: no reply, as none was expected
	ProbeRefused   = "refused"   // by a reset, an abort or ICMP port unreachable
	ProbeTimeout   = "timeout"   // no response
	ProbeNoRoute   = "noroute"   // the kernel, or a router, has no route
	ProbeFailed    = "failed"    // another error, see Error
)

// Probe is one connection.
type Probe struct {
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
	// Local is the address and port that it was sent from.
	Local netip.AddrPort `json:"local,omitzero"`
	// Endpoint is the translated destination in the connection tracking table; the zero AddrPort where there is no entry.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	// Source is what Local is translated to, in the connection tracking table; the zero AddrPort where there is no entry.
	Source netip.AddrPort `json:"source,omitzero"`
	// RealServer is the real server in IPVS's own connection table (/proc/net/ip_vs_conn); the zero AddrPort where there
	// is no entry.
	RealServer netip.AddrPort `json:"realServer,omitzero"`
	// Unreplied: the entry in the connection tracking table has no reply.
	Unreplied bool `json:"unreplied,omitempty"`
	// Micros is the time until it was connected or refused, in microseconds.
	Micros int64 `json:"micros,omitempty"`
	// Data is what became of the target's payload (ProbeAnswered, …); empty where none was sent.
	Data string `json:"data,omitempty"`
	// Received is how many bytes came back, of the first that did.
	Received int `json:"received,omitempty"`
}

// What can become of a payload.
const (
	ProbeAnswered = "answered" // some bytes came back
	ProbeSilent   = "silent"   // none came in time
	// ProbeUnacknowledged: nor did an acknowledgement of all of it, which the kernel at the other end sends by itself. Of
	// TCP alone.
	ProbeUnacknowledged = "unacknowledged"
	ProbeClosed         = "closed" // the other side ended the connection without a byte
)

// SentTo returns the endpoint to which the kernel sent a connection to an address: by connection tracking, or by IPVS
// where connection tracking has no translation, as with net.ipv4.vs.conntrack=0. The zero AddrPort where neither has an
// entry.
func (p *Probe) SentTo(to netip.AddrPort) netip.AddrPort {
	if p.RealServer.IsValid() && (!p.Endpoint.IsValid() || p.Endpoint == to) {
		return p.RealServer
	}
	return p.Endpoint
}

// Probed reads [ProbesFile]; nil where there is none. The error is that of a damaged file.
func (n *Node) Probed() (*Probing, error) {
	data, ok, err := n.File(ProbesFile)
	if err != nil || !ok {
		return nil, err
	}
	p := &Probing{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, ErrorOf(n.Name, fmt.Errorf("%s: %w", ProbesFile, err))
	}
	if p.Targets == nil && p.Tracked == nil {
		return nil, ErrorOf(n.Name, fmt.Errorf("%s: it has no list of targets", ProbesFile))
	}
	return p, nil
}
