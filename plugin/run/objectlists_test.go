// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// watchedAPI is an API server whose lists have versions, and whose watches a test controls.
type watchedAPI struct {
	*fake.Clientset
	lists   int      // of Services
	asked   []string // the versions that watches of Services began from
	watches []*watch.RaceFreeFakeWatcher
	refuse  func() error // to watch
	away    error        // what the smallest question is answered with
}

func newWatchedAPI(objects ...runtime.Object) *watchedAPI {
	a := &watchedAPI{Clientset: fake.NewClientset(), refuse: func() error { return nil }}
	version := func() string { return strconv.Itoa(100 + a.lists) }
	a.PrependReactor("list", "services", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if action.(k8stesting.ListActionImpl).ListOptions.Limit == 1 {
			return true, &corev1.ServiceList{}, a.away
		}
		a.lists++
		l := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: version()}}
		for _, o := range objects {
			l.Items = append(l.Items, *o.(*corev1.Service))
		}
		return true, l, nil
	})
	a.PrependReactor("list", "endpointslices", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: version()}}, nil
	})
	a.PrependWatchReactor("*", func(action k8stesting.Action) (bool, watch.Interface, error) {
		if err := a.refuse(); err != nil {
			return true, nil, err
		}
		w := watch.NewRaceFreeFake()
		if action.GetResource().Resource == "services" {
			a.asked = append(a.asked, action.(k8stesting.WatchActionImpl).ListOptions.ResourceVersion)
			a.watches = append(a.watches, w)
		}
		return true, w, nil
	})
	return a
}

// Of many nodes the objects are listed once, and again only where the watch cannot go on.
func TestObjectsAreWatchedBetweenLists(t *testing.T) {
	web := func(version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "web", ResourceVersion: version,
		}}
	}
	forbidden := apierrors.NewForbidden(corev1.Resource("services"), "", errors.New("cannot watch"))
	for _, tt := range []struct {
		name string
		// before each of five questions something happens
		before func(a *watchedAPI, n int)
		lists  int // with the first
		asked  []string
		last   string // version of the Service
	}{
		{"nothing changes", func(*watchedAPI, int) {}, 1, []string{"101"}, "1"},
		{"the Service changes", func(a *watchedAPI, n int) {
			a.watches[0].Modify(web("1" + strconv.Itoa(n)))
		}, 1, []string{"101"}, "14"},
		{"the watch ends", func(a *watchedAPI, n int) {
			if n == 2 {
				a.watches[0].Stop()
			}
		}, 2, []string{"101", "102"}, "1"},
		{"the events are too old", func(a *watchedAPI, n int) {
			if n == 2 {
				a.watches[0].Error(&apierrors.NewResourceExpired("too old").ErrStatus)
			}
		}, 2, []string{"101", "102"}, "1"},
		{"the API server does not answer on the watch's connection", func(a *watchedAPI, n int) {
			a.away = nil
			if n == 2 {
				a.away = errors.New("connection reset")
			}
		}, 2, []string{"101", "102"}, "1"},
		{"it may not be watched", func(a *watchedAPI, n int) {
			if n == 0 {
				a.watches[0].Error(&apierrors.NewResourceExpired("too old").ErrStatus)
				a.refuse = func() error { return forbidden }
			}
		}, 6, []string{"101"}, "1"},
		{"it cannot be watched for a while", func(a *watchedAPI, n int) {
			a.refuse = func() error { return nil }
			switch n {
			case 0:
				a.watches[0].Stop()
				fallthrough
			case 1:
				a.refuse = func() error { return errors.New("connection refused") }
			}
		}, 4, []string{"101", "104"}, "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newWatchedAPI(web("1"))
				source := cluster.FromAPI(a, "")
				objects, err := source.Objects(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s := &Session{
					source: source, Objects: objects, live: true, config: Config{Helper: launch.Options{Timeout: time.Minute}},
				}
				var l objectLists
				l.watch(t.Context(), source, objects)
				var last *snapshot.Cluster
				for n := range 5 {
					synctest.Wait()
					tt.before(a, n)
					synctest.Wait()
					got, err := l.now(t.Context(), s)
					if err != nil {
						t.Fatal(err)
					}
					if same := got == last; n > 0 && same != (tt.last == "1") {
						t.Errorf("question %d: the objects are the last ones: %t", n, same)
					}
					last = got
				}
				l.close()
				synctest.Wait()
				for i, w := range a.watches {
					if !w.IsStopped() {
						t.Errorf("watch %d goes on", i)
					}
				}
				if v := last.Services[0].ResourceVersion; a.lists != tt.lists || !slices.Equal(a.asked, tt.asked) || v != tt.last {
					t.Errorf("%d lists, watched from %q, version %s; want %d, %q, %s", a.lists, a.asked, v, tt.lists, tt.asked,
						tt.last)
				}
			})
		})
	}
}
