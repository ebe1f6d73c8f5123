// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/maruel/natural"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/fleet"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// maxStatusGroups is how many groups of findings a StatusReport lists.
const maxStatusGroups = 1000

// With more reports than manyReports, which stay in memory until they are printed, garbage is collected more often from
// reportsMemory bytes on.
const (
	manyReports   = 1000
	reportsMemory = 320 << 20
)

// foldedService stands for the Services whose findings have no room in the object of a node. No namespace has that
// name.
var foldedService = report.ObjectRef{Namespace: "(others)"}

// Status reads what the agents of nodes have published. selector is one of labels of nodes; "": all nodes are asked
// for. service is the one that is asked for; nil: all are.
func (s *Session) Status(ctx context.Context, selector string, service *corev1.Service) (*report.StatusReport, error) {
	s.Progress.Say("reading what the nodes' agents have found")
	defer s.Progress.Done()
	var nodes []*corev1.Node
	var published []*cluster.NodeReport
	err := s.ask(ctx, func(ctx context.Context) error {
		var wg sync.WaitGroup
		var listed, read error
		wg.Go(func() { nodes, listed = cluster.Nodes(ctx, s.client, selector) })
		wg.Go(func() { published, read = cluster.NodeReports(ctx, s.client) })
		wg.Wait()
		if read != nil {
			return read
		}
		return listed
	})
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		if selector != "" {
			return nil, Usagef("--selector %q selects no node of the cluster"+ofNodes, selector)
		}
		return nil, NotInspected(errors.New("the cluster has no nodes"))
	}
	var endpoints []*discoveryv1.EndpointSlice
	if s.Objects != nil {
		endpoints = s.Objects.EndpointSlices
	}
	if len(published) > manyReports {
		debug.SetMemoryLimit(reportsMemory)
	}
	return statusOf(nodes, published, service, endpoints, s.Now()), nil
}

// status makes a StatusReport.
type status struct {
	service *corev1.Service // nil: all Services
	changed time.Time       // when the Service was last changed
	now     time.Time
	out     *report.StatusReport
	fleet   []fleet.Node
	details map[detailKey]*detail // of the groups that are listed
}

// detailKey is what is added up for a group.
type detailKey struct {
	code    string
	unknown bool
	service report.ObjectRef
}

// detail is what a group has besides the nodes.
type detail struct {
	paths, folded int
	since         time.Time
	node          string // of since
}

// statusOf puts together what the agents of nodes say.
func statusOf(
	nodes []*corev1.Node, published []*cluster.NodeReport, service *corev1.Service,
	endpoints []*discoveryv1.EndpointSlice, now time.Time,
) *report.StatusReport {
	s := &status{
		service: service, now: now, details: map[detailKey]*detail{},
		out: &report.StatusReport{
			APIVersion: report.APIVersion, Kind: report.KindStatus, Verdict: report.ByDesign, Groups: []report.StatusGroup{},
			Nodes: []report.StatusNode{},
		},
	}
	if service != nil {
		s.out.Service = &report.ObjectRef{Namespace: service.Namespace, Name: service.Name}
		s.changed = lastChange(service, endpoints)
		s.out.ByDesign = nothingBehind(service, endpoints)
	}
	of := make(map[string]*cluster.NodeReport, len(published))
	for _, p := range published {
		of[p.Node] = p
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return natural.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		s.add(n, of[n.Name])
	}
	patterns, left, wrong := fleet.Group(s.fleet, nodes, maxStatusGroups)
	s.out.GroupsLeft = left
	for i := range patterns {
		s.details[keyOf(&patterns[i])] = &detail{}
	}
	s.detail(of, wrong)
	for i := range patterns {
		s.out.Groups = append(s.out.Groups, s.group(&patterns[i]))
	}
	return s.out
}

// detail adds up what the groups that are listed have besides the nodes, and counts all findings: wrong groups there
// are.
func (s *status) detail(of map[string]*cluster.NodeReport, wrong int) {
	folded := map[string]int{}
	for i := range s.fleet {
		n := &s.fleet[i]
		if !n.Known {
			continue
		}
		s.findings(&of[n.Name].Object.Status, func(f fleet.Finding, paths, services int, since *metav1.Time) {
			k := detailKey{f.Code, f.Severity == report.Info, f.Service}
			if !k.unknown && f.Service == foldedService {
				folded[f.Code] = max(folded[f.Code], services)
			}
			d := s.details[k]
			if d == nil {
				return
			}
			d.paths += paths
			d.folded = max(d.folded, services)
			if since != nil && !since.IsZero() && (d.since.IsZero() || since.Time.Before(d.since)) {
				d.since, d.node = since.Time, n.Name
			}
		})
	}
	s.out.Summary.Findings = wrong - len(folded)
	for _, services := range folded {
		s.out.Summary.Folded += services
	}
}

// keyOf is the key of a group's details.
func keyOf(p *report.Pattern) detailKey {
	k := detailKey{code: p.Code, unknown: p.Severity == report.Info}
	if p.Service != nil {
		k.service = *p.Service
	}
	return k
}

// nothingBehind says why no endpoint is reached by a Service, on whatever node; "" where some may be.
func nothingBehind(service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) string {
	of := expect.New(expect.Inputs{Services: []*corev1.Service{service}, Slices: endpoints})
	if _, why := of.Ignored(service); why != "" {
		return why
	}
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	for i := range service.Spec.Ports {
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			if slices.ContainsFunc(of.Endpoints(name, &service.Spec.Ports[i], family), func(e expect.Endpoint) bool {
				return e.Ready || e.Serving && e.Terminating
			}) {
				return ""
			}
		}
	}
	return "no endpoint of it is ready: connections to it are refused, or dropped"
}

// add adds a node with what its agent has published; nil: nothing.
func (s *status) add(n *corev1.Node, p *cluster.NodeReport) {
	sum := &s.out.Summary
	sum.Nodes++
	node := report.StatusNode{Node: n.Name, Verdict: report.Unknown}
	known := fleet.Node{Name: n.Name}
	if p != nil && p.Object != nil {
		node.WrittenAt = p.Object.Status.RenewedAt.UTC().Format(time.RFC3339)
		if at := p.Object.Status.JudgedAt; at != nil {
			node.JudgedAt = at.UTC().Format(time.RFC3339)
		}
	}
	if node.Error = s.notKnown(n, p); node.Error == "" {
		o := &p.Object.Status
		known = fleet.Node{
			Name: n.Name, Known: true, Mode: o.Mode.ReportMode(), ModeAt: o.JudgedAt.Time, Unsure: unsureOf(o),
			Findings: s.seq(o),
		}
		node.Verdict = s.verdict(o, known.Findings)
		node.Paths = &report.Summary{
			Paths: o.Paths.Total, Matched: o.Paths.Matched, Mismatched: o.Paths.Mismatched, ByDesign: o.Paths.ByDesign,
			Unknown: o.Paths.Unknown, Warnings: o.Paths.Warnings,
		}
		node.Settling, node.Findings = o.Paths.Settling, o.FindingsTotal
		for i := range o.Folded {
			if o.Folded[i].Severity != report.Info {
				node.Folded += o.Folded[i].Services
			}
		}
		if why := s.doubt(p.Object); why != "" && node.Verdict != report.Mismatch {
			node.Verdict, node.Error = report.Unknown, why
		}
		if s.outdated(p.Object) {
			known.Unsure = func(string, report.ObjectRef) bool { return true }
		}
		sum.Paths += o.Paths.Total
		sum.Settling += o.Paths.Settling
		if sum.OldestJudgedAt == "" || node.JudgedAt < sum.OldestJudgedAt {
			sum.OldestJudgedAt = node.JudgedAt
		}
		for f := range known.Findings {
			if f.Severity != report.Info {
				sum.Affected++
				break
			}
		}
	}
	switch {
	case node.Error != "":
		sum.NotKnown++
	case node.Verdict == report.Mismatch:
		sum.Mismatched++
	case node.Verdict == report.Warning:
		sum.Warnings++
	case node.Verdict == report.Unknown:
		sum.Unknown++
	default:
		sum.Right++
	}
	s.out.Verdict = report.Together(s.out.Verdict, node.Verdict)
	s.out.Nodes = append(s.out.Nodes, node)
	s.fleet = append(s.fleet, known)
}

// notKnown says why nothing is known of a node; "" where something is.
func (s *status) notKnown(n *corev1.Node, p *cluster.NodeReport) string {
	switch {
	case p == nil && n.Labels[corev1.LabelOSStable] == "windows":
		return "it runs Windows, where there is no agent"
	case p == nil:
		return "there is no report of it: no agent of deploy/watch runs there, or it cannot reach the API server"
	case p.Err != nil:
		return p.Err.Error()
	}
	o := p.Object
	if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != n.UID {
		return "its report is of an earlier Node of this name"
	}
	if why := o.Outdated(s.now); why != "" {
		return why
	}
	if s.service != nil && !s.service.CreationTimestamp.Time.Before(o.JudgedBefore()) {
		return "its report is older than the Service"
	}
	return ""
}

// doubt says why the Service that was asked for may be wrong on a node that has no finding about it; "": it is not.
func (s *status) doubt(o *nodereport.Object) string {
	switch {
	case s.service == nil:
	case len(o.Status.Folded) > 0:
		return "its report does not hold all findings, and those that it names are not of the Service"
	case s.outdated(o):
		return fmt.Sprintf("its report is older than the last change of the Service, at %s: a newer one is due within %v, "+
			"and trace reads the node itself", s.changed.UTC().Format(time.RFC3339),
			time.Duration(o.Status.RenewSeconds)*time.Second)
	}
	return ""
}

// outdated tells whether a node was judged before the last change of the Service that was asked for. An agent judges a
// change within seconds, but writes of a node that stays right only every few minutes.
func (s *status) outdated(o *nodereport.Object) bool {
	return s.service != nil && !s.changed.Before(o.JudgedBefore())
}

// unsureOf tells of which findings it is not known whether a node has them: those whose code is folded there, and those
// of a Service that could not be judged.
func unsureOf(o *nodereport.Status) func(code string, of report.ObjectRef) bool {
	folded, unknown := map[string]bool{}, map[report.ObjectRef]bool{}
	for i := range o.Folded {
		folded[o.Folded[i].Code] = true
		if o.Folded[i].Severity == report.Info {
			folded[nodereport.OtherCodes] = true // any Service may be among those that could not be judged
		}
	}
	for i := range o.Findings {
		if f := &o.Findings[i]; f.Severity == report.Info {
			unknown[report.ObjectRef{Namespace: f.Namespace, Name: f.Service}] = true
		}
	}
	return func(code string, of report.ObjectRef) bool {
		return folded[code] || folded[nodereport.OtherCodes] || unknown[of]
	}
}

// findings calls add with those of a node that were asked for, with the paths, the Services that one stands for, and
// since when it is there.
func (s *status) findings(o *nodereport.Status, add func(f fleet.Finding, paths, folded int, since *metav1.Time)) {
	for i := range o.Findings {
		f := &o.Findings[i]
		of := report.ObjectRef{Namespace: f.Namespace, Name: f.Service}
		if s.service != nil && of != (report.ObjectRef{}) && of != *s.out.Service {
			continue
		}
		add(fleet.Finding{Code: f.Code, Severity: f.Severity, Service: of}, f.Paths, 0, f.Since)
	}
	for i := range o.Folded {
		f := &o.Folded[i]
		if s.service != nil {
			break // of which Services they are is not known
		}
		add(fleet.Finding{Code: f.Code, Severity: f.Severity, Service: foldedService}, f.Paths, f.Services, f.Since)
	}
}

// seq are the findings of a node, for those who need nothing else of them.
func (s *status) seq(o *nodereport.Status) iter.Seq[fleet.Finding] {
	return func(yield func(fleet.Finding) bool) {
		more := true
		s.findings(o, func(f fleet.Finding, _, _ int, _ *metav1.Time) { more = more && yield(f) })
	}
}

// verdict is that of a node: of its object, which findings can only make worse, or of the Service that was asked for
// and of the node as a whole.
func (s *status) verdict(o *nodereport.Status, findings iter.Seq[fleet.Finding]) report.Verdict {
	v := o.Verdict
	switch {
	case s.out.ByDesign != "":
		v = report.ByDesign
	case s.service != nil:
		v = report.Match
	}
	for f := range findings {
		v = report.Worse(v, report.AgentVerdict(f.Severity))
	}
	return v
}

// group makes a group of what nodes have in common.
func (s *status) group(p *report.Pattern) report.StatusGroup {
	g := report.StatusGroup{Pattern: *p}
	k := keyOf(p)
	if k.service == foldedService {
		g.Service = nil
	}
	if p.Code != nodereport.OtherCodes {
		g.Page = report.PageOf(p.Code)
	}
	if d := s.details[k]; d != nil {
		g.Paths, g.Folded = d.paths, d.folded
		if !d.since.IsZero() {
			g.Since, g.SinceNode = d.since.UTC().Format(time.RFC3339), d.node
		}
	}
	return g
}
