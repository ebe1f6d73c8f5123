// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about clients that come back.
const (
	AffinityMissing    = "AffinityMissing"
	AffinityUnexpected = "AffinityUnexpected"
	AffinityTimeout    = "AffinityTimeout"
)

var (
	_ = register(kind{
		code: AffinityMissing, severity: mismatch, scope: onPath, by: affinity, remedy: restart,
		effect: map[string]string{"": "no session affinity"},
	})
	_ = register(kind{
		code: AffinityUnexpected, severity: mismatch, scope: onPath, by: affinity, remedy: restart,
		effect: map[string]string{"": "session affinity"},
	})
	_ = register(kind{
		code: AffinityTimeout, severity: mismatch, scope: onPath, by: affinity, remedy: restart,
		effect: map[string]string{"": "session affinity for {actual}"},
	})
)

// affinity judges whether clients stay with their endpoint as the Service asks for.
var affinity = &detector{stage: stageAffinity, path: func(p *pathCase) []issue {
	if p.programmed() {
		return p.programmedAffinity()
	}
	return p.mode.affinity(p)
}}

// ruleAffinity walks the packet of a returning client for every endpoint that a first one may have come to.
func (p *pathCase) ruleAffinity() []issue {
	var missing, unexpected, timeouts []string
	var asking []report.Evidence // for which time clients are remembered
	seconds := uint32(0)
	want := p.want
	for _, o := range p.got.translated() {
		if want.Action != expect.DNAT || o.recent == "" && want.AffinitySeconds == 0 {
			continue
		}
		// A rule that is not kube-proxy's and takes the packet first is a finding of its own ([Shadowed]): a restart of
		// kube-proxy would not bring back what that rule bypasses.
		if o.byOwner == others {
			continue
		}
		back, asked, known := p.comesBack(o)
		switch {
		case !known:
		case want.AffinitySeconds == 0 && back:
			unexpected = append(unexpected, o.to.String())
		case want.AffinitySeconds == 0:
		case !back:
			missing = append(missing, o.to.String())
		case int64(asked.Asked.Seconds) != int64(want.AffinitySeconds):
			timeouts, seconds = append(timeouts, o.to.String()), asked.Asked.Seconds
			asking = append(asking, listsOf(&asked)...)
		}
	}
	var issues []issue
	due := fmt.Sprintf("%ds", want.AffinitySeconds)
	if len(missing) > 0 {
		issues = append(issues, issue{
			code: AffinityMissing, subject: cut(missing, 4), endpoints: missing, expected: "ClientIP for " + due, actual: "none",
			message: "further connections of a client are not sent to the same endpoint",
		})
	}
	if len(unexpected) > 0 {
		issues = append(issues, issue{
			code: AffinityUnexpected, subject: cut(unexpected, 4), endpoints: unexpected, expected: "none", actual: "ClientIP",
			message: "further connections of a client are sent to the same endpoint, which the Service does not ask for",
		})
	}
	if len(timeouts) > 0 {
		issues = append(issues, issue{
			code:      AffinityTimeout,
			subject:   cut(timeouts, 4),
			endpoints: timeouts,
			expected:  due,
			actual:    fmt.Sprintf("%ds", seconds),
			evidence:  asking,
			message:   "clients are remembered for a different time than the Service asks for",
		})
	}
	return issues
}

// listsOf quotes a rule that looks up a list of clients, and how long that keeps them, if the rule does not say it:
// in nftables the list does.
func listsOf(s *netfilter.Step) []report.Evidence {
	if s.Ref.Rule == nil {
		return nil
	}
	rule := cite(s.Ref)
	if strings.Contains(rule.Text, fmt.Sprintf("--seconds %d ", s.Asked.Seconds)) {
		return []report.Evidence{rule}
	}
	return append(say(fmt.Sprintf("set %s: timeout %ds", s.Asked.Name, s.Asked.Seconds)), rule)
}

// comesBack tells whether a client that was sent to an endpoint once is sent there again, and which rule found it in a
// list, with the time that it is remembered for (0 for any). known is false where that depends on what the snapshot
// does not tell.
func (p *pathCase) comesBack(first *outcome) (same bool, asked netfilter.Step, known bool) {
	if first.recent == "" {
		return false, asked, true
	}
	res := p.walker.Walk(start(p.want.Frontend, p.want.Origin), netfilter.Options{Listed: first.recent, Steps: true})
	same, known = p.sampled(&res, func(got *outcomes) bool {
		// What is dropped or rejected on its path to the endpoint is sent to no other one: that is a finding of its own.
		all := 0.0
		for _, o := range got.translated() {
			all += o.share
		}
		s, _ := got.share(first.to)
		return s > 0 && s >= all-certainty
	})
	if !same {
		return false, asked, known
	}
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Asked.Name != "" {
			asked = *s
		}
	}
	return true, asked, true
}
