// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/svcproxy/kubectl-svcproxy/internal/apiraw"
	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The agent publishes what it finds as the NodeReport of its node. It is written by a goroutine of its own: what the
// API server does about it delays no pass.

// How often the object is written.
const (
	publishPause = 10 * time.Second // at most
	publishRenew = 3 * time.Minute  // at least
	publishRetry = 2 * time.Minute  // at most from one attempt that fails to the next
	publishTime  = 10 * time.Second // for one request
)

// Reports writes NodeReports. An error is that of the API.
type Reports interface {
	Get(ctx context.Context, name string) (*nodereport.Object, error)
	Create(ctx context.Context, o *nodereport.Object) (*nodereport.Object, error)
	Update(ctx context.Context, o *nodereport.Object) (*nodereport.Object, error)
}

// NewReports makes the Reports of a cluster.
func NewReports(client kubernetes.Interface) Reports {
	return &reports{client.Discovery().RESTClient()}
}

type reports struct{ client rest.Interface }

func (r *reports) Get(ctx context.Context, name string) (*nodereport.Object, error) {
	return answered(ctx, r.client.Get().AbsPath(nodereport.Path, name))
}

func (r *reports) Create(ctx context.Context, o *nodereport.Object) (*nodereport.Object, error) {
	return sent(ctx, r.client.Post().AbsPath(nodereport.Path), o)
}

func (r *reports) Update(ctx context.Context, o *nodereport.Object) (*nodereport.Object, error) {
	return sent(ctx, r.client.Put().AbsPath(nodereport.Path, o.Name), o)
}

// sent sends a request with an object.
func sent(ctx context.Context, r *rest.Request, o *nodereport.Object) (*nodereport.Object, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return answered(ctx, r.SetHeader("Content-Type", "application/json").Body(data))
}

// answered sends a request, and returns the object that answers it.
func answered(ctx context.Context, r *rest.Request) (*nodereport.Object, error) {
	data, err := apiraw.Body(r.SetHeader("Accept", "application/json").Do(ctx))
	if err != nil {
		return nil, err
	}
	o := &nodereport.Object{}
	return o, json.Unmarshal(data, o)
}

// publisher keeps the NodeReport of the node as the last pass has shown the node.
type publisher struct {
	api   Reports
	name  string
	agent peer.Peer // the agent itself
	// node returns the Node; nil while it is not known.
	node func() *corev1.Node
	// silence is after how long without a pass the node counts as not judged any more.
	silence time.Duration
	// away returns the kind of the API's objects that could not be read for the longest time, and since when; "" for none.
	away func() (kind string, since time.Time)
	// done is told of each attempt to write; why is a label of its metric, "" where it succeeded.
	done func(why string, err error)

	mu       sync.Mutex
	findings []nodereport.Finding
	status   *nodereport.Status  // of the last pass, without findings; nil: there was none
	failure  string              // why the node could not be judged since
	first    time.Time           // when the first pass began
	settled  bool                // what the first passes have found has settled
	waiting  map[findingKey]bool // findings of the last pass that do not count yet
	changed  chan struct{}

	// Of the goroutine that writes.
	known    *nodereport.Object       // as the API server has it; nil: to be read
	written  *nodereport.Object       // what was sent last; nil: nothing
	due      time.Time                // when it is to be written again
	tried    time.Time                // when it was last tried
	failures int                      // since it was last written
	earlier  map[findingKey]time.Time // since when findings were there by an earlier process
	read     bool                     // earlier is set
}

// findingKey is a finding as objects have it.
type findingKey struct {
	code, namespace, service string
	severity                 report.Severity
}

func keyOf(f *nodereport.Finding) findingKey {
	return findingKey{f.Code, f.Namespace, f.Service, f.Severity}
}

// newPublisher makes a publisher; nil where nothing is to be published.
func newPublisher(a *Agent) *publisher {
	if a.Reports == nil {
		return nil
	}
	p := &publisher{
		api: a.Reports, name: a.Node, agent: peer.Peer{Protocol: peer.Protocol, Build: a.Build},
		silence: 3 * a.Full, changed: make(chan struct{}, 1), earlier: map[findingKey]time.Time{},
	}
	p.node = func() *corev1.Node {
		for _, n := range listed[*corev1.Node](a.objects.informers[kindNodes]) {
			if n.Name == a.Node {
				return n
			}
		}
		return nil
	}
	p.away = a.objects.awaySince
	p.done = func(why string, err error) {
		if err == nil {
			a.metrics.published.Inc()
			a.metrics.publishedAt.SetToCurrentTime()
			a.ended("report")
			return
		}
		a.metrics.publishFailures.WithLabelValues(why).Inc()
		a.say("report", fmt.Errorf("the node's report was not written: %w", err))
	}
	return p
}

// judged takes what a pass has shown.
func (p *publisher) judged(r *report.NodeReport, v *view, s *settler) {
	if p == nil {
		return
	}
	if p.settles(v) {
		return
	}
	findings := publishedOf(r, s)
	at := metav1.Time{Time: v.at}
	status := &nodereport.Status{
		JudgedAt: &at, Mode: nodereport.ModeOf(r.Mode), UnreadFiles: v.unread,
		Paths: nodereport.Paths{
			Matched: v.paths[report.Match], Mismatched: v.paths[report.Mismatch], ByDesign: v.paths[report.ByDesign],
			Warnings: v.paths[report.Warning], Unknown: v.paths[report.Unknown], Settling: v.paths[settling],
		},
	}
	for _, n := range v.paths {
		status.Paths.Total += n
	}
	status.Verdict = nodereport.VerdictOf(&status.Paths, findings)
	p.mu.Lock()
	p.findings, p.status, p.failure, p.waiting = findings, status, "", waitingOf(r, s)
	p.mu.Unlock()
	p.wake()
}

// startTime is how long after the first pass nothing is published while something does not count yet; longer where
// kube-proxy is given longer, as what is wrong counts after that.
const startTime = time.Minute

// settles tells whether this process has started just now and findings do not count yet: of a node that is wrong the
// first passes would say that it is right.
func (p *publisher) settles(v *view) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		p.first = v.at
	}
	p.settled = p.settled || v.settling == 0 || v.at.Sub(p.first) >= max(startTime, v.grace)
	return !p.settled
}

// failed takes why a pass could not judge the node.
func (p *publisher) failed(err error) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.failure = err.Error()
	p.mu.Unlock()
	p.wake()
}

func (p *publisher) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run writes until the context ends.
func (p *publisher) run(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(p.step(ctx, time.Now()))
		select {
		case <-timer.C:
		case <-p.changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// step writes the object if it is time to, and returns how long nothing is to be done unless something changes.
func (p *publisher) step(ctx context.Context, now time.Time) time.Duration {
	if wait := p.tried.Add(p.pause()).Sub(now); !p.tried.IsZero() && wait > 0 {
		return wait
	}
	status, findings := p.current(now)
	if status == nil {
		return publishRenew // a pass will wake it
	}
	node := p.node()
	if node != nil && p.same(node, status, findings, now) {
		return p.due.Sub(now)
	}
	p.tried = now
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	written, err := p.write(ctx, node, status, findings)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return publishPause // this process ends
	case err != nil:
		p.failures++
		p.done(reasonOf(err), err)
		return p.pause()
	}
	p.failures, p.written = 0, written
	// Before it is due by what the object says; agents that have started together shall not write together.
	p.due = now.Add(publishRenew - time.Duration(rand.Float64()*0.1*float64(publishRenew))) //nolint:gosec // no secret
	p.done("", nil)
	return publishPause
}

// pause is the least time from one attempt to the next: longer after each that failed.
func (p *publisher) pause() time.Duration {
	return min(publishPause<<min(p.failures, 8), publishRetry)
}

// current is what is to be published at a time; nil: nothing yet.
func (p *publisher) current(now time.Time) (*nodereport.Status, []nodereport.Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == nil && p.failure == "" {
		return nil, nil
	}
	out := nodereport.Status{Verdict: report.Unknown}
	if p.status != nil {
		out = *p.status
		if m := out.Mode; m != nil {
			mode := *m
			out.Mode = &mode // of which values may be left out
		}
		if age := now.Sub(out.JudgedAt.Time); p.failure == "" && age > p.silence {
			out.Error = "the node was last judged at " + out.JudgedAt.UTC().Format(time.RFC3339)
		}
	}
	if kind, since := p.away(); kind != "" && now.Sub(since) > awayGrace {
		out.Error = "the node is judged by " + kind + " of the API as they were at " + since.UTC().Format(time.RFC3339) +
			": they could not be read since"
	}
	if p.failure != "" {
		out.Error = "the node could not be judged: " + p.failure
	}
	if out.Error != "" {
		out.Verdict = report.Unknown
	}
	out.RenewedAt = nodereport.TimeOf(now)
	out.RenewSeconds = int(publishRenew / time.Second)
	return &out, p.findings
}

// since is when a finding began: by an earlier process, if it has been there since.
func (p *publisher) since(f *nodereport.Finding) *metav1.Time {
	if at, ok := p.earlier[keyOf(f)]; ok && f.Since != nil && at.Before(f.Since.Time) {
		return &metav1.Time{Time: at}
	}
	return f.Since
}

// same tells whether an object would say nothing new, and is not due: the times of passes and of kube-proxy's syncs,
// and the counts of paths, are as of the moment in which it is written.
func (p *publisher) same(
	node *corev1.Node, status *nodereport.Status, findings []nodereport.Finding, now time.Time,
) bool {
	if p.written == nil || !now.Before(p.due) {
		return false
	}
	o := p.objectOf(node, status, findings)
	return equality.Semantic.DeepEqual(lasting(&o.Status), lasting(&p.written.Status)) &&
		equality.Semantic.DeepEqual(o.OwnerReferences, p.written.OwnerReferences)
}

// lasting is a status without what changes all the time.
func lasting(s *nodereport.Status) *nodereport.Status {
	out := *s
	out.RenewedAt, out.JudgedAt, out.Paths = metav1.Time{}, nil, nodereport.Paths{}
	if out.Mode != nil {
		mode := *out.Mode
		mode.LastSync = nil
		out.Mode = &mode
	}
	return &out
}

// objectOf makes the object of the node.
func (p *publisher) objectOf(
	node *corev1.Node, status *nodereport.Status, findings []nodereport.Finding,
) *nodereport.Object {
	o := &nodereport.Object{
		TypeMeta: metav1.TypeMeta{APIVersion: nodereport.APIVersion, Kind: nodereport.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name:            p.name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Status: *status,
	}
	o.Status.Agent = p.agent
	findings = slices.Clone(findings)
	for i := range findings {
		findings[i].Since = p.since(&findings[i])
	}
	o.Fit(findings)
	return o
}

// errNoNode: an object without an owner would outlive its node.
var errNoNode = errors.New("the API does not have the Node")

// write writes the object, and returns it as it was sent.
func (p *publisher) write(
	ctx context.Context, node *corev1.Node, status *nodereport.Status, findings []nodereport.Finding,
) (o *nodereport.Object, err error) {
	if node == nil {
		return nil, errNoNode
	}
	if p.known == nil {
		if err := p.readBack(ctx, node, status.RenewedAt.Time); err != nil {
			return nil, err
		}
	}
	p.forget(findings)
	o = p.objectOf(node, status, findings)
	if p.known == nil {
		p.known, err = p.api.Create(ctx, o)
	} else {
		o.ResourceVersion, o.UID = p.known.ResourceVersion, p.known.UID
		p.known, err = p.api.Update(ctx, o)
	}
	if err != nil {
		p.known = nil // somebody else has written or removed it, or nobody knows
		return nil, err
	}
	return o, nil
}

// readBack reads the object as the API server has it; there may be none. The first time it takes from it since when
// findings are there that an earlier process has found, unless that has been silent for so long that they may have been
// gone meanwhile.
func (p *publisher) readBack(ctx context.Context, node *corev1.Node, now time.Time) error {
	o, err := p.api.Get(ctx, p.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	p.known = o
	if p.read {
		return nil
	}
	p.read = true
	ours := len(o.OwnerReferences) == 1 && o.OwnerReferences[0].UID == node.UID
	if !ours || o.Outdated(now) != "" {
		return nil
	}
	for i := range o.Status.Findings {
		if f := &o.Status.Findings[i]; f.Since != nil {
			p.earlier[keyOf(f)] = f.Since.Time
		}
	}
	return nil
}

// forget forgets since when findings were there that are gone.
func (p *publisher) forget(findings []nodereport.Finding) {
	if len(p.earlier) == 0 {
		return
	}
	p.mu.Lock()
	waiting := p.waiting // by an earlier process they counted, and they are there still
	p.mu.Unlock()
	now := map[findingKey]bool{}
	for i := range findings {
		now[keyOf(&findings[i])] = true
	}
	for k := range p.earlier {
		if !now[k] && !waiting[k] {
			delete(p.earlier, k)
		}
	}
}

// The reasons why the object was not written, as the metric has them.
const (
	whyRefused  = "refused"  // by RBAC, by the admission policy, by the schema
	whyAbsent   = "absent"   // the cluster has no such kind
	whyConflict = "conflict" // somebody else has written it
	whyNoNode   = "node"     // the API does not have the Node
	whyOther    = "other"    // the API server cannot be reached, or does not answer in time
)

var publishWhy = []string{whyRefused, whyAbsent, whyConflict, whyNoNode, whyOther}

// reasonOf says why an object was not written.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, errNoNode):
		return whyNoNode
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err),
		apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return whyRefused
	case apierrors.IsNotFound(err):
		return whyAbsent
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return whyConflict
	}
	return whyOther
}
