// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// WrongMasquerade says that the source address is translated where it must not be, or the reverse.
const WrongMasquerade = "WrongMasquerade"

var _ = register(kind{
	code: WrongMasquerade, severity: mismatch, scope: onPath, by: hairpin,
	effect: map[string]string{notMasqueraded: "not masqueraded", masqueraded: "masqueraded"},
	remedy: restart,
	issues: []string{"kubernetes/kubernetes#36835", "kubernetes/kubernetes#36652"},
})

// What happens to the source, in issue.actual.
const (
	notMasqueraded = "Never"
	masqueraded    = "Always"
)

// masquerading compares who has the source address translated. A CNI may do so for reasons of its own; only
// kube-proxy's own translation can be one too many, while any will do where one is due.
func masquerading(want *expect.Path, got *outcomes) []issue {
	var missing, needless []string
	var own netip.Addr // of all that is missing
	for i := range want.Endpoints {
		e := &want.Endpoints[i]
		sent := got.sentTo(string(expect.DNAT), e.Address)
		for k := range sent {
			o := &sent[k]
			if !o.is(o.action) {
				continue
			}
			due := want.Masquerade == expect.MasqAlways ||
				want.Masquerade == expect.MasqHairpin && want.Origin.Address == e.Address.Addr()
			switch {
			case want.Masquerade == expect.MasqUnknown:
			case due && !o.masq && !o.inside:
				if len(missing) == 0 || own != o.own {
					own = netip.Addr{}
					if len(missing) == 0 {
						own = o.own
					}
				}
				missing = append(missing, e.Address.String())
			case !due && o.masq && o.masqBy.Chain == nil:
				needless = append(needless, e.Address.String())
			}
		}
	}
	var issues []issue
	if len(missing) > 0 {
		message := "the source address is not translated: the endpoint's answer will not come back through this node"
		if want.Masquerade == expect.MasqHairpin {
			message = "the source address is not translated: a pod that reaches itself through the Service gets no answer " +
				"(hairpin)"
		} else if own.IsValid() {
			message = "the source address is not translated, and answers come to the node all the same, as it is " +
				own.String() + ", its own"
		}
		issues = append(issues, issue{
			code: WrongMasquerade, subject: cut(missing, 4), endpoints: missing,
			expected: string(want.Masquerade), actual: notMasqueraded,
			unmasqueraded: true, own: own,
			message: message,
		})
	}
	if len(needless) > 0 {
		issues = append(issues, issue{
			code:      WrongMasquerade,
			subject:   cut(needless, 4),
			endpoints: needless,
			expected:  string(want.Masquerade),
			actual:    masqueraded,
			message: "kube-proxy's rules translate the source address: the endpoint sees the node's address instead of the " +
				"client's",
		})
	}
	return issues
}

// hairpin walks packets from the endpoints on this node to themselves: kube-proxy has to translate their source.
var hairpin = &detector{stage: stageHairpin, path: (*pathCase).hairpin}

func (p *pathCase) hairpin() []issue {
	want := p.want
	if want.Origin.Kind != expect.FromPod || want.Action != expect.DNAT || p.req.From != nil {
		return nil
	}
	itself := func(e expect.Endpoint) bool { return e.Address.Addr() == want.Origin.Address }
	if slices.ContainsFunc(want.Endpoints, itself) {
		return nil // it is an endpoint itself, and masquerading compares it
	}
	var missing []string
	for i := range want.Endpoints {
		e := &want.Endpoints[i]
		if _, possible := p.got.share(e.Address); !e.Local || !possible {
			continue
		}
		if local, known := p.net.Local(e.Address.Addr()); !known || local {
			continue
		}
		self := want.Origin
		self.Address, self.Pod = e.Address.Addr(), ""
		res := p.walker.Walk(start(want.Frontend, self), netfilter.Options{Only: e.Address})
		if len(res.Uncertain) > 0 { // its cases are told by all branches
			res = p.walker.Walk(start(want.Frontend, self), netfilter.Options{})
		}
		if translated, known := p.sampled(&res, func(got *outcomes) bool {
			return !slices.ContainsFunc(got.list, func(o outcome) bool {
				return o.to == e.Address && o.action == string(expect.DNAT) && o.certain && !o.masq && !o.inside
			})
		}); known && !translated {
			missing = append(missing, e.Address.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []issue{{
		code: WrongMasquerade, subject: cut(missing, 4), endpoints: missing,
		expected: string(expect.MasqHairpin), actual: notMasqueraded,
		unmasqueraded: true,
		message: "a pod that reaches itself through the Service gets no answer: its source address is not translated " +
			"(hairpin)",
	}}
}
