// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// RuleNotEvaluated says that what becomes of a packet depends on a rule, or on something else of the kernel's, that the
// files of a node do not tell enough to evaluate.
const RuleNotEvaluated = "RuleNotEvaluated"

// ProgramOnPath says the same of what is not a rule: filters of tc, programs of BPF, policies of IPsec.
const ProgramOnPath = "ProgramOnPath"

var _ = register(kind{code: ProgramOnPath, severity: note, scope: onPath, by: certain})

var _ = register(kind{code: RuleNotEvaluated, severity: note, scope: onPath, by: certain})

// EvidenceUnreadable says that a file is there, cannot be read, and may tell of what stops the path's packets.
const EvidenceUnreadable = "EvidenceUnreadable"

var _ = register(kind{code: EvidenceUnreadable, severity: note, scope: onPath, by: unreadable})

// sampled judges what becomes of a further packet, by which the path is judged besides its own. Where that depends on
// what cannot be evaluated, right has to say the same in each case of it. Else known is false, the third result of a
// comparison, which makes the path Unknown.
func (p *pathCase) sampled(res *netfilter.Result, right func(got *outcomes) bool) (is, known bool) {
	got := p.outcomesOf(p.want.Frontend, res)
	if !got.uncertain {
		return right(&got), true
	}
	cases := res.Cases()
	for i, list := range cases {
		of := p.outcomesOf(p.want.Frontend, &netfilter.Result{Outcomes: list})
		if of.uncertain || i > 0 && right(&of) != is {
			cases = nil
			break
		}
		is = right(&of)
	}
	if cases != nil {
		return is, true
	}
	p.doubts = append(p.doubts, res.Uncertain...)
	for i := range got.list {
		if o := &got.list[i]; !o.certain && len(res.Uncertain) == 0 {
			p.doubts = append(p.doubts, netfilter.Uncertain{Where: o.where, What: o.where.String(), Why: o.why})
		}
	}
	return false, false
}

// uncertain is what the path depends on, and could not be evaluated.
func (p *pathCase) uncertain() []netfilter.Uncertain {
	return slices.Concat(p.res.Uncertain, p.doubts)
}

// notEvaluated names what the path depends on and could not be evaluated, each place once.
func (p *pathCase) notEvaluated() []issue {
	var out []issue
	for _, u := range p.uncertain() {
		is := issue{
			code: RuleNotEvaluated, subject: placeName(u.Where), where: u.Where, predicate: u.Where.Chain != nil,
			message:  "decides, and cannot be evaluated: " + u.Why,
			evidence: evidenceOf(&u), remedy: p.askLiveOf(&u),
		}
		if is.predicate && u.Where.Chain.Table.Backend == netfilter.BackendProgram {
			is.code, is.message = ProgramOnPath, "is on the packet's path, and cannot be evaluated: "+u.Why
		}
		if !is.predicate {
			is.message = "what happens to the packet " + is.message
		}
		if !slices.ContainsFunc(out, func(o issue) bool { return o.subject == is.subject && o.message == is.message }) {
			out = append(out, is)
		}
	}
	return out[:min(len(out), maxEvidence)]
}

// askLive is the remedy where real connections tell what the rules do not; objects are commands that show what it
// depends on.
func (p *pathCase) askLive(objects ...report.Command) report.Remedy {
	if p.Probes != nil {
		return report.Remedy{Text: "real connections were made: what they show stands with the path", Commands: objects}
	}
	return report.Remedy{Text: "real connections show what happens to them", Commands: append(p.live(), objects...)}
}

// live is the command that makes real connections, with flags of it. They are made from a pod only where it is named:
// that of --from is named again.
func (p *pathCase) live(flags ...string) []report.Command {
	words := append([]string{"kubectl", "svcproxy", "trace", "--live"}, flags...)
	words = append(words, "--node", p.Name)
	if o := p.want.Origin; o.Kind == expect.FromPod && o.Pod != "" && !o.Sample {
		words = append(words, "--from", "pod/"+o.Pod)
	}
	words = append(words, "-n", p.svc.Namespace, "--", p.svc.Name)
	return []report.Command{{Line: report.ShellLine(words...)}}
}

// askLiveOf is askLive for something that could not be evaluated. What depends on a packet's length shows only where
// something is sent.
func (p *pathCase) askLiveOf(u *netfilter.Uncertain) report.Remedy {
	objects := p.objectAt(u.Where, familyOf(p.want.Frontend))
	if strings.Contains(u.Why, "the packet's length") && p.want.Frontend.Protocol == corev1.ProtocolTCP {
		return report.Remedy{
			Text:     "it shows on real connections over which data is sent",
			Commands: append(p.live("--payload", "http"), objects...),
		}
	}
	return p.askLive(objects...)
}
