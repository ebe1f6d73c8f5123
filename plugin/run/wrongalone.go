// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// fewServices is how many Services are judged alone at most.
const fewServices = 16

// wrongAlone reads a node, and judges alone the Services that are wrong by what its helper has seen. Where that
// confirms the sighting, it returns the helper's report with the paths of these Services as they are judged here; else
// nil: all of the node has to be judged.
func (c *confirmer) wrongAlone(
	ctx context.Context, node string, request Request, first *sighting,
) *report.NodeReport {
	services := wrongServices(first.NodeReport)
	if c.read != nil || len(services) == 0 || len(services) > fewServices {
		return nil
	}
	of := func(p *report.Path) bool {
		return p.Service != nil && slices.Contains(services, types.NamespacedName(*p.Service))
	}
	out, wrong := *first.NodeReport, report.NodeReport{}
	out.Paths, out.Summary = nil, report.Summary{Paths: out.Summary.Matched, Matched: out.Summary.Matched}
	for i := range first.Paths {
		if p := &first.Paths[i]; of(p) {
			wrong.Paths = append(wrong.Paths, *p)
		} else {
			out.Paths = append(out.Paths, *p)
			out.Summary.Count(p.Verdict)
		}
	}
	out.Verdict = report.ByDesign
	if out.Summary.Matched > 0 {
		out.Verdict = report.Match
	}
	if !acceptable(&out) {
		return nil
	}
	request.Services, request.Backwards = services, false
	got, err := c.look(ctx, node, first.NodeReport, request)
	if err != nil {
		klog.V(2).InfoS("The Services that are wrong were not judged alone", "node", node, "err", err)
		return nil // judging it whole will tell why
	}
	switch {
	case got.Error != "" || judge.AsksOthers(got.NodeReport):
		return nil
	case len(changes(first.by, got.by, services)) > 0 || !judge.Alike(&wrong, got.NodeReport):
		return nil
	case slices.ContainsFunc(got.Findings, func(f report.Finding) bool { return f.Severity != report.Info }):
		return nil
	}
	here := got.Paths
	out.Paths = slices.Clone(first.Paths)
	for i := range out.Paths {
		p := &out.Paths[i]
		if of(p) {
			*p, here = here[0], here[1:]
			out.Summary.Count(p.Verdict)
			out.Verdict = report.Together(out.Verdict, p.Verdict)
		}
	}
	if out.Summary != first.Summary {
		return nil // what the helper has counted is not what it tells
	}
	out.Mode = got.Mode
	return &out
}

// wrongServices are the Services of a report with paths of which something is wrong or unknown, in its order.
func wrongServices(r *report.NodeReport) []types.NamespacedName {
	var out []types.NamespacedName
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Service == nil || p.Verdict == report.ByDesign {
			continue
		}
		if name := types.NamespacedName(*p.Service); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
