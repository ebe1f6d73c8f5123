// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// gather is how long further changes are waited for after a change.
const gather = 200 * time.Millisecond

// Keep waits until the path expires or the context ends, and removes it then. With follow it updates the path after
// changes of the Service and its endpoints.
func (k *PathKeeper) Keep(ctx context.Context, until time.Time, follow bool) error {
	changed := make(chan struct{}, 1)
	if follow {
		stop, err := k.watch(ctx, changed)
		if err != nil {
			return err
		}
		defer stop()
		k.session.Progress.Note("following %s until %s, or until ^C", k.target.Name(), Clock(until))
	} else {
		k.session.Progress.Note("staying until %s, or until ^C, to remove it then", Clock(until))
	}
	over := time.NewTimer(time.Until(until))
	defer over.Stop()
	for {
		why := "its time is over"
		select {
		case <-changed:
			time.Sleep(gather)
			k.keepUp(ctx)
			continue
		case <-over.C:
		case <-ctx.Done():
			why = "removed" // to end it so is how it is meant to end
		}
		if err := k.TakeAway(ctx); err != nil {
			return NotInspected(err)
		}
		k.session.Progress.Note("%s: %s is as kube-proxy has it on node %s again", why, k.target.Name(), k.config.Node)
		return nil
	}
}

// Clock is a time of day, for people.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }

// watch watches the Service and its EndpointSlices.
func (k *PathKeeper) watch(ctx context.Context, changed chan<- struct{}) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	svc := k.target.Service
	factory := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(k.session.client, 0,
			informers.WithNamespace(svc.Namespace), informers.WithTweakListOptions(tweak))
	}
	services := factory(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", svc.Name).String()
	})
	slices := factory(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=" + svc.Name })
	tell := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell,
	}
	for _, informer := range []cache.SharedIndexInformer{
		services.Core().V1().Services().Informer(), slices.Discovery().V1().EndpointSlices().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			cancel()
			return nil, err
		}
	}
	services.Start(ctx.Done())
	slices.Start(ctx.Done())
	return func() {
		cancel()
		services.Shutdown()
		slices.Shutdown()
	}, nil
}

// keepUp programs the current state of the Service. If that is refused, the path stays unchanged, and the reason is
// noted.
func (k *PathKeeper) keepUp(ctx context.Context) {
	note := k.session.Progress.Note
	objects, err := k.session.source.Proxied(ctx, k.session.Objects)
	if err != nil {
		if ctx.Err() == nil {
			note("cannot read the Service (%v): the path stays as it is", err)
		}
		return
	}
	k.session.Objects = objects
	if err := k.readBackends(ctx); err != nil {
		if ctx.Err() == nil {
			note("cannot read the Service's Pods (%v): the path stays as it is", err)
		}
		return
	}
	was := k.plan
	if err := k.planAgain(); err != nil {
		note("%v: the path stays as it is", err)
		return
	}
	if k.plan.Equal(was) {
		return
	}
	r, err := k.Apply(ctx)
	if err != nil {
		if ctx.Err() == nil {
			k.plan = was
			note("%v: the path stays as it was", err)
		}
		return
	}
	said := endpointsOf(k.plan)
	if got, err := k.Verify(ctx); err != nil {
		said += fmt.Sprintf("; whether it is right could not be checked: %v", err)
	} else if got.Verdict != report.Match && got.Verdict != report.ByDesign {
		// It may have changed again meanwhile: then the next iteration begins immediately.
		wrong := got.Summary.Paths - got.Summary.Matched - got.Summary.ByDesign
		said += fmt.Sprintf("; read again, %d of %d paths are not right", wrong, got.Summary.Paths)
	}
	if ctx.Err() == nil {
		note("%s %s: %s", k.target.Name(), r.What, said)
	}
}

// planAgain plans the current state of the Service. The plan keeps its name, mode and backend.
func (k *PathKeeper) planAgain() error {
	for _, svc := range k.session.Objects.Services {
		if svc.Namespace != k.target.Service.Namespace || svc.Name != k.target.Service.Name {
			continue
		}
		k.target.Service = svc
		before, options := k.plan, k.options
		if err := k.makePlan(); err != nil {
			k.plan, k.options = before, options
			if refusal, ok := errors.AsType[plan.RefusalError](err); ok {
				return refusal
			}
			return err
		}
		k.plan.Name, k.options.Mode, k.options.Backend = before.Name, options.Mode, options.Backend
		return nil
	}
	return fmt.Errorf("%s is gone", k.target.Name())
}

// endpointsOf returns the number of a plan's endpoints, for people.
func endpointsOf(p *plan.Plan) string {
	seen := map[string]bool{}
	for i := range p.Frontends {
		for _, w := range p.Frontends[i].Destinations() {
			for _, e := range w.Endpoints {
				seen[e.String()+p.Frontends[i].Protocol] = true
			}
		}
	}
	return counted(len(seen), "endpoint")
}
