// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/digest"
)

// ports is what rules are for that have no other packets in common: to an address, or to any where that is the zero
// one.
type ports struct {
	dst   netip.Addr
	proto uint8
	port  uint16
}

// mayBeReordered tells whether there may be rules for printRules to bring into order: most chains have one endpoint, or
// a few, and none.
func (c *Chain) mayBeReordered() bool {
	if b := c.Table.Backend; c.Base != nil || b != BackendNFT && b != BackendLegacy {
		return false
	}
	n := 0
	for _, r := range c.Rules {
		if r.mayBeMoved() {
			n++
		}
	}
	return n > 1
}

// lastTargets are targets behind which a packet comes to no other rule of the chain.
var lastTargets = map[string]bool{
	"ACCEPT": true, "DROP": true, "REJECT": true, "RETURN": true, "DNAT": true, "REDIRECT": true,
}

// mayBeMoved tells whether a rule is for a single port, and neither leaves anything to the rules behind it that these
// may go by, nor goes by what those before it leave. Of answers, the walk knows no port, and tries such rules in turn.
func (r *Rule) mayBeMoved() bool {
	if r.Key.DstPort == 0 || strings.Contains(r.Text, "mark --mark ") {
		return false
	}
	return lastTargets[r.Target] || slices.ContainsFunc(r.Ops, func(o Op) bool { _, leads := o.(Jumper); return leads })
}

// printRules adds the rules of a chain of iptables. Two rules next to each other of which no packet can match both may
// come in either order: kube-proxy writes KUBE-SERVICES anew at each sync, in an order that Go chooses at random
// (syncProxyRules in pkg/proxy/iptables/proxier.go ranges over a map). So of rules that may be moved, each is added
// with those before it that a packet may match as well, and where it is among others does not count. Any other rule
// stays where it is among them.
func (c *Chain) printRules(p *digest.Digest) {
	rule := digest.New()
	before := map[ports]digest.Sum{}
	var run []digest.Sum
	end := func() {
		slices.SortFunc(run, compareSums)
		p.Number(len(run))
		for _, s := range run {
			p.Add(s)
		}
		run = run[:0]
		clear(before)
	}
	for _, r := range c.Rules {
		if !r.mayBeMoved() {
			end()
			p.Number(r.Num)
			r.print(p)
			continue
		}
		at := ports{r.Key.Dst, r.Key.Proto, r.Key.DstPort}
		rule.Reset()
		r.print(rule)
		rule.Add(before[at])
		// Whether a rule to any address comes before one to a single address is known from the latter.
		rule.Add(before[ports{proto: at.proto, port: at.port}])
		sum := rule.Sum()
		before[at] = sum
		run = append(run, sum)
	}
	end()
}

// print adds what decides what a rule does.
func (r *Rule) print(p *digest.Digest) {
	p.Text(r.Text)
	p.Text(r.Target)
	p.Flag(r.Masked)
}

func compareSums(a, b digest.Sum) int { return slices.Compare(a[:], b[:]) }
