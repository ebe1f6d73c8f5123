// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ConfigUnknown says that the verdict depends on a value of kube-proxy's that is not known.
const ConfigUnknown = "ConfigUnknown"

var _ = register(kind{
	code: ConfigUnknown, severity: note, scope: onPath, by: secondExpectation,
	remedy: advice("ask the running kube-proxy, or read its configuration, and take the snapshot again with it",
		command{line: "curl -s http://127.0.0.1:10249/configz", onNode: true},
		command{line: "kubectl -n kube-system get configmap kube-proxy -o yaml", when: "where it is started with it"}),
})

// versionRemedy is that of ConfigUnknown for the version.
var versionRemedy = advice("find out the version of kube-proxy on {node}, and take the snapshot again with it",
	command{line: "curl -s http://127.0.0.1:10249/metrics | grep kubernetes_build_info", onNode: true},
	command{line: "kubectl -n kube-system get pods -l k8s-app=kube-proxy -o jsonpath='{..image}'"})

// worlds are the expectations under other values of what is not known, by the numbers of the answers. They are made
// when they are asked for, by the node's own preparation too.
type worlds struct {
	*sync.Mutex

	made map[string]*expect.Node
}

// mostWorlds bounds how many combinations of values one path is judged by.
const mostWorlds = 64

// expect makes the node's expectation by its configuration.
func (n *node) expect() {
	n.values.worlds = worlds{&sync.Mutex{}, map[string]*expect.Node{}}
	n.exp = n.expectation()
}

// world returns the node under an answer to each open question.
func (n *node) world(answers []uint8) *node {
	w := *n
	for i, a := range answers {
		q := &n.values.open[i]
		take(&w.config, q.setting, &q.answers[a].config)
	}
	w.mode = modeOf(w.config.Mode)
	w.values.open = nil

	key := string(answers)
	n.values.worlds.Lock()
	defer n.values.worlds.Unlock()
	made := n.values.worlds.made[key]
	if made == nil {
		made = w.expectation()
		n.values.worlds.made[key] = made
	}
	w.exp = made
	return &w
}

// take takes over the value of a setting, the mode among them. The version and the feature gates are one: which gates
// there are depends on the version.
func take(c *kubeproxy.Config, s kubeproxy.Setting, from *kubeproxy.Config) {
	switch s {
	case kubeproxy.SettingMode:
		c.Mode = from.Mode
	case kubeproxy.SettingVersion, kubeproxy.FeatureGates:
		c.Version, c.FeatureGates = from.Version, from.FeatureGates
	default:
		c.Take(s, from)
	}
}

// reconsider judges the path again under the other values that kube-proxy may have: it is wrong only where it is so
// under each of them, and right only where it is so under each.
func (p *pathCase) reconsider() {
	p.unsureOfSource()
	open := p.values.open
	if len(open) == 0 || p.verdict == report.Unknown {
		return
	}
	matters := p.mattering()
	if len(matters) == 0 {
		return
	}
	wrong := p.verdict == report.Mismatch
	answers := make([]uint8, len(open))
	for range mostWorlds - 1 {
		if !next(answers, matters, open) {
			return
		}
		q := p.under(p.world(answers))
		if (q.verdict == report.Mismatch) == wrong && q.verdict != report.Unknown {
			continue
		}
		p.undecided(answers, q)
		return
	}
}

// unsureOfSource makes a path Unknown of which it is not known whether the source should be translated.
func (p *pathCase) unsureOfSource() {
	if p.verdict != report.Match || p.want.Action != expect.DNAT || p.want.Masquerade != expect.MasqUnknown {
		return
	}
	p.verdict = report.Unknown
	p.found = append(p.found, p.finding(issue{
		code: ConfigUnknown, subject: string(kubeproxy.DetectLocal), predicate: true,
		message: "is not known, or what it depends on is not (the Node's podCIDRs, the interface that the packet comes in " +
			"by): whether the source should be translated is not certain",
	}))
}

// mattering returns the open questions to which some answer makes something else expected of the path.
func (p *pathCase) mattering() []int {
	// The scheduler makes no other path, and one of the two that decide over masquerade may count under one value of the
	// other alone.
	together := []kubeproxy.Setting{kubeproxy.IPVSScheduler}
	if p.isOpen(kubeproxy.MasqueradeAll) != nil {
		together = append(together, kubeproxy.MasqueradeAll, kubeproxy.DetectLocal)
	}
	var out []int
	answers := make([]uint8, len(p.values.open))
	for i := range p.values.open {
		q := &p.values.open[i]
		for a := 1; a < len(q.answers); a++ {
			answers[i] = uint8(a)
			w := p.world(answers)
			other := w.exp.Path(p.want.Frontend, p.want.Origin)
			if !p.want.Same(&other) || slices.Contains(together, q.setting) {
				out = append(out, i)
				break
			}
		}
		answers[i] = 0
	}
	return out
}

// next counts on to the next combination of answers to some of the questions; false behind the last one.
func next(answers []uint8, matters []int, open []question) bool {
	for _, i := range matters {
		answers[i]++
		if int(answers[i]) < len(open[i].answers) {
			return true
		}
		answers[i] = 0
	}
	return false
}

// under judges the path as it was walked by what is expected of another node.
func (p *pathCase) under(w *node) *pathCase {
	other := *p.worker
	other.node = w
	want := w.exp.Path(p.want.Frontend, p.want.Origin)
	q := &pathCase{worker: &other, svc: p.svc, want: &want, res: p.res, got: p.got}
	q.compare()
	q.conclude()
	q.unsureOfSource()
	return q
}

// undecided makes the path Unknown, and says which values the verdict depends on.
func (p *pathCase) undecided(answers []uint8, other *pathCase) {
	var names, ours, theirs []string
	var of []kubeproxy.Setting
	for i, a := range answers {
		if a == 0 {
			continue
		}
		q := &p.values.open[i]
		of = append(of, q.setting)
		names = append(names, string(q.setting))
		ours = append(ours, string(q.setting)+" "+q.answers[0].text)
		theirs = append(theirs, string(q.setting)+" "+q.answers[a].text)
	}
	is := issue{
		code: ConfigUnknown, subject: strings.Join(names, ", "), predicate: true,
		message: verb(len(names), "is", "are") + " not known: with " + strings.Join(ours, " and ") + " " + p.soFar() +
			", with " + strings.Join(theirs, " and ") + " " + other.soFar(),
	}
	if slices.Contains(of, kubeproxy.SettingVersion) {
		is.remedy = p.advise(versionRemedy, &is)
	}
	p.verdict = report.Unknown
	p.found = append(slices.DeleteFunc(p.found, func(f report.Finding) bool { return f.Severity == report.Error }),
		p.finding(is))
}

// soFar says what the verdict comes to.
func (p *pathCase) soFar() string {
	switch p.verdict {
	case report.Mismatch:
		return "the rules are wrong (" + strings.Join(codesOf(p.found), ", ") + ")"
	case report.Unknown:
		return "it is not known whether they are right"
	case report.Match, report.ByDesign, report.Warning:
	}
	return "the rules are right"
}

// codesOf returns the codes of errors.
func codesOf(fs []report.Finding) []string {
	var out []string
	for i := range fs {
		if fs[i].Severity == report.Error && !slices.Contains(out, fs[i].Code) {
			out = append(out, fs[i].Code)
		}
	}
	return out
}
