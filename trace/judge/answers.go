// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// DuplicateEndpoint says that an address stands several times in EndpointSlices, with different conditions.
const DuplicateEndpoint = "DuplicateEndpoint"

var _ = register(kind{
	code: DuplicateEndpoint, severity: warning, scope: onPath, by: certain,
	issues: []string{"kubernetes/kubernetes#135593"},
})

// several is what is known of a path for which kube-proxy may have programmed one of several answers.
type several struct {
	shared types.NamespacedName // another Service that claims the frontend
	taken  bool                 // its answer is the one that the rules give
	own    string               // of its own Service, the one that was expected
	one    string               // why the Service's own answer is one of several
}

// compareAnswers compares the path with each answer that kube-proxy may have programmed, in each case of what the
// snapshot does not tell.
func (p *pathCase) compareAnswers() {
	want := p.want
	p.chooseAnswer()
	if p.got.uncertain && p.want.Unsure == "" && !p.settled {
		p.compareCases(want)
	}
}

// wrong tells whether an error was found.
func (p *pathCase) wrong() bool {
	return slices.ContainsFunc(p.found, func(f report.Finding) bool { return f.Severity == report.Error })
}

// wrongEndpoints are those that something was found wrong about. some is false where that is about the frontend itself.
func (p *pathCase) wrongEndpoints() (list []string, some bool) {
	for i := range p.found {
		f := &p.found[i]
		if f.Severity != report.Error {
			continue
		}
		if len(f.Endpoints) == 0 {
			return nil, false
		}
		list = append(list, f.Endpoints...)
	}
	return list, true
}

// chooseAnswer compares the path with each answer that kube-proxy may have programmed for the frontend. The first
// that the rules give is the expected one from then on, also where it is another Service's. Where they give none, the
// path is compared with the first of its own Service.
func (p *pathCase) chooseAnswer() {
	if p.want.Unsure == "" {
		p.compare()
		return
	}
	f := p.want.Frontend
	answers := p.exp.Answers(f, p.want.Origin, p.got.leadsTo())
	s := several{own: describe(&answers[0])}
	for i := range answers {
		if a := &answers[i]; a.Frontend.Service != f.Service {
			s.shared = a.Frontend.Service
		} else if s.one == "" {
			s.one = a.OneOf
		}
	}
	first, unsure := p.against(&answers[0]), ""
	for i := range answers {
		t := first
		if i > 0 {
			t = p.against(&answers[i])
		}
		if t.want.Unsure != "" {
			unsure = t.want.Unsure
			continue
		}
		if t.wrong() {
			continue
		}
		if other := answers[i].Frontend.Service; other != f.Service {
			s.shared, s.taken = other, true
			t.want.Frontend, t.svc = f, p.svc
		}
		*p, p.several = *t, s
		return
	}
	*p, p.several = *first, s
	if unsure != "" {
		p.want.Unsure, p.found = unsure, nil
	}
}

// against compares the path with an answer; p stays as it is.
func (p *pathCase) against(a *expect.Path) *pathCase {
	t := *p
	t.want, t.found, t.steps, t.doubts = a, nil, nil, nil
	if svc := p.cluster.services[a.Frontend.Service]; svc != nil {
		t.svc = svc
	}
	t.compare()
	return &t
}

// severalAnswers says that the path is one of several that kube-proxy may have programmed.
func (p *pathCase) severalAnswers() []issue {
	s := &p.several
	var out []issue
	switch {
	case s.taken:
		out = append(out, issue{
			code: SharedFrontend, subject: s.shared.String(), expected: s.own, actual: describe(p.want),
			predicate: true, message: "has the same address and port, and takes the packets",
		})
	case s.shared.Name != "":
		out = append(out, issue{
			code: SharedFrontend, subject: s.shared.String(), expected: s.own,
			predicate: true, message: "has the same address and port; this one takes the packets",
		})
	}
	if s.one != "" && !s.taken {
		out = append(out, issue{code: DuplicateEndpoint, message: s.one, remedy: readSlices(p.svc)})
	}
	return out
}

// readSlices is the remedy where the EndpointSlices of a Service contradict each other.
func readSlices(svc *corev1.Service) report.Remedy {
	return report.Remedy{
		Text: "if it stays so for longer than a minute, find out which controller writes these EndpointSlices (their label " +
			discoveryv1.LabelManagedBy + ") and why it leaves an entry that is out of date",
		Commands: []report.Command{{Line: report.ShellLine("kubectl", "get", "endpointslices", "-n", svc.Namespace,
			"-l", discoveryv1.LabelServiceName+"="+svc.Name, "-o", "yaml")}},
	}
}
