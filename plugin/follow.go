// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

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
)

// gather is how long changes are waited for that come together.
const gather = 200 * time.Millisecond

// stay keeps the path until its time is over or the person ends it, with --follow in step with the Service.
func (w *programming) stay(ctx context.Context, until time.Time) error {
	changed := make(chan struct{}, 1)
	if w.follow {
		stop, err := w.watch(ctx, changed)
		if err != nil {
			return err
		}
		defer stop()
		w.sc.progress.note("following %s until %s, or until ^C", w.target.Name(), when(until))
	} else {
		w.sc.progress.note("staying until %s, or until ^C, to take it away then", when(until))
	}
	over := time.NewTimer(time.Until(until))
	defer over.Stop()
	for {
		select {
		case <-changed:
			time.Sleep(gather)
			w.keepUp(ctx)
		case <-over.C:
			if err := w.takeBack(ctx); err != nil {
				return codeError{ExitNotInspected, err}
			}
			w.sc.progress.note("its time is over: %s is as kube-proxy has it on node %s again", w.target.Name(), w.name)
			return nil
		case <-ctx.Done():
			if err := w.takeBack(ctx); err != nil {
				return codeError{ExitNotInspected, err}
			}
			w.sc.progress.note("taken away: %s is as kube-proxy has it on node %s again", w.target.Name(), w.name)
			return nil // to end it so is how it is meant to end
		}
	}
}

// watch tells of changes of the Service and of its EndpointSlices.
func (w *programming) watch(ctx context.Context, changed chan<- struct{}) (stop func(), err error) {
	client, _, err := w.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	svc := w.target.Service
	factory := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(svc.Namespace), informers.WithTweakListOptions(tweak))
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
	handler := cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell}
	for _, informer := range []cache.SharedIndexInformer{services.Core().V1().Services().Informer(), slices.Discovery().V1().EndpointSlices().Informer()} {
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

// keepUp programs the Service as it is now. What cannot be programmed any more leaves the path as it is, and says so.
func (w *programming) keepUp(ctx context.Context) {
	objects, err := w.sc.source.Proxied(ctx, w.sc.objects)
	if err != nil {
		if ctx.Err() == nil {
			w.sc.progress.note("cannot read the Service (%v): the path stays as it is", err)
		}
		return
	}
	w.sc.objects = objects
	was := w.planned
	if err := w.retarget(); err != nil {
		w.sc.progress.note("%v: the path stays as it is", err)
		return
	}
	if w.planned.Equal(was) {
		return
	}
	r, err := w.send(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.planned = was
			w.sc.progress.note("%v: the path stays as it was", err)
		}
		return
	}
	said := endpointsOf(w.planned)
	if got, err := w.verify(ctx); err != nil {
		said += fmt.Sprintf("; whether it is right could not be seen: %v", err)
	} else if got.Verdict != report.Match && got.Verdict != report.ByDesign {
		// It may have changed once more meanwhile: then the next turn comes at once.
		said += fmt.Sprintf("; read again, %d of %d paths are not right", got.Summary.Paths-got.Summary.Matched-got.Summary.ByDesign, got.Summary.Paths)
	}
	if ctx.Err() == nil {
		w.sc.progress.note("%s %s: %s", w.target.Name(), r.What, said)
	}
}

// retarget plans the Service as it is now.
func (w *programming) retarget() error {
	for _, svc := range w.sc.objects.Services {
		if svc.Namespace == w.target.Service.Namespace && svc.Name == w.target.Service.Name {
			w.target.Service = svc
			return w.replan()
		}
	}
	return fmt.Errorf("%s is gone", w.target.Name())
}

// replan is plan for a plan that keeps its name and way.
func (w *programming) replan() error {
	params, before := w.params, w.planned
	if err := w.plan(); err != nil {
		w.params, w.planned = params, before
		if refusal, ok := errors.AsType[plan.RefusalError](err); ok {
			return refusal
		}
		return err
	}
	w.planned.Name, w.params.Mode, w.params.Backend = before.Name, params.Mode, params.Backend
	return nil
}

// endpointsOf says how many endpoints a plan leads to.
func endpointsOf(p *plan.Plan) string {
	seen := map[string]bool{}
	for i := range p.Frontends {
		for _, way := range p.Frontends[i].Ways() {
			for _, e := range way.Endpoints {
				seen[e.String()+p.Frontends[i].Protocol] = true
			}
		}
	}
	return counted(len(seen), "endpoint")
}
