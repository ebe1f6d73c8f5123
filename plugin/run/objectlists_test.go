// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// watchedAPI is an API server whose lists have versions, and whose watches a test controls.
type watchedAPI struct {
	*fake.Clientset
	lists   int      // of Services
	asked   []string // the versions that watches of Services began from
	watches []*watch.RaceFreeFakeWatcher
	refuse  func() error       // to watch
	away    error              // what the smallest question is answered with
	further [][]runtime.Object // what the next lists have, the last one from then on
}

func newWatchedAPI(objects ...runtime.Object) *watchedAPI {
	a := &watchedAPI{Clientset: fake.NewClientset(), refuse: func() error { return nil }}
	version := func() string { return strconv.Itoa(100 + a.lists) }
	a.PrependReactor("list", "services", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if action.(k8stesting.ListActionImpl).ListOptions.Limit == 1 {
			return true, &corev1.ServiceList{}, a.away
		}
		a.lists++
		if len(a.further) > 0 {
			objects = a.further[0]
			a.further = a.further[min(1, len(a.further)-1):]
		}
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

// session is one whose objects were listed.
func (a *watchedAPI) session(t *testing.T) *Session {
	t.Helper()
	source := cluster.FromAPI(a, "")
	objects, err := source.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &Session{
		source: source, Objects: objects, live: true, config: Config{Helper: launch.Options{Timeout: time.Minute}},
	}
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
		}, 2, []string{"101"}, "1"},
		{"it may not be watched", func(a *watchedAPI, n int) {
			if n == 0 {
				a.watches[0].Error(&apierrors.NewResourceExpired("too old").ErrStatus)
				a.refuse = func() error { return forbidden }
			}
		}, 6, []string{"101"}, "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newWatchedAPI(web("1"))
				s := a.session(t)
				var l objectLists
				l.watch(t.Context(), s.source.(cluster.Watcher), s.Objects)
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

// What was judged by a watch that is behind the lists has to be judged again; a watch that is about to follow, or goes
// ahead, is not behind.
func TestAWatchIsBehind(t *testing.T) {
	service := func(name, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: version,
		}}
	}
	for _, tt := range []struct {
		name  string
		lists [][]runtime.Object  // from the second on
		do    func(a *watchedAPI) // while the first pause lasts
		want  bool
	}{
		{"nothing changes", nil, func(*watchedAPI) {}, false},
		{"it is not told of a change", [][]runtime.Object{{service("web", "2")}}, func(*watchedAPI) {}, true},
		{
			"it is not told of a new one",
			[][]runtime.Object{{service("db", "2"), service("web", "1")}},
			func(*watchedAPI) {}, true,
		},
		{"it is not told that one is gone", [][]runtime.Object{{}}, func(*watchedAPI) {}, true},
		{"it is told late", [][]runtime.Object{{service("web", "2")}}, func(a *watchedAPI) {
			a.watches[0].Modify(service("web", "2"))
		}, false},
		{
			"all changes all the time",
			[][]runtime.Object{{service("web", "2")}, {service("web", "3")}, {service("web", "4")}},
			func(a *watchedAPI) { a.watches[0].Modify(service("web", "2")) }, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newWatchedAPI(service("web", "1"))
				s := a.session(t)
				var l objectLists
				defer l.close()
				l.watch(t.Context(), s.source.(cluster.Watcher), s.Objects)
				synctest.Wait()
				if behind, err := l.behind(t.Context(), s); behind || err != nil {
					t.Fatalf("behind before it was asked: %t, %v", behind, err)
				}
				if _, err := l.now(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				a.further = tt.lists
				time.AfterFunc(behindPause/2, func() { tt.do(a) })
				if behind, err := l.behind(t.Context(), s); behind != tt.want || err != nil {
					t.Errorf("behind: %t, %v; want %t", behind, err, tt.want)
				}
				time.Sleep(behindPause)
			})
		})
	}
}

// A watch that has ended may have been dead for a while.
func TestAWatchThatEndedIsInDoubt(t *testing.T) {
	for _, changed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newWatchedAPI(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1"}})
			s := a.session(t)
			var l objectLists
			defer l.close()
			l.watch(t.Context(), s.source.(cluster.Watcher), s.Objects)
			for range 2 {
				synctest.Wait()
				if _, err := l.now(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // a watch may be on its way
				if changed {
					a.further = [][]runtime.Object{{}}
				}
				a.watches[0].Stop()
			}
			synctest.Wait()
			if behind, err := l.behind(t.Context(), s); behind != changed || err != nil {
				t.Errorf("changed: %t; behind: %t, %v", changed, behind, err)
			}
		})
	}
}

// stalled is a cluster whose watch is not told that shop/frontend has lost an endpoint.
type stalled struct {
	*moving
	watched *cluster.API
}

func (s stalled) Watch(ctx context.Context, from *snapshot.Cluster) (*cluster.Watched, error) {
	return s.watched.Watch(ctx, from)
}

func (s stalled) Proxied(ctx context.Context, objects *snapshot.Cluster) (*snapshot.Cluster, error) {
	c, err := scaledDown{}.Proxied(ctx, objects)
	if err != nil {
		return nil, err
	}
	for i, o := range c.EndpointSlices {
		if o != objects.EndpointSlices[i] {
			o.ResourceVersion += "0"
		}
	}
	return c, nil
}

// Rules that are as old as what a watch tells are no MATCH.
func TestNodesAreJudgedAgainWhereTheWatchIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := newMoving(t, []state{{}})
		m.base.Listed = snapshot.Listed{Services: "1", EndpointSlices: "1"}
		s := m.session()
		s.source = stalled{m, cluster.FromAPI(newWatchedAPI(), "")}
		nodes := slices.Repeat([]string{"worker-1"}, FewNodes+1)
		var l objectLists
		l.watch(ctx, s.source.(cluster.Watcher), s.Objects)
		synctest.Wait()
		by, err := l.now(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		files, err := m.Read(ctx, "worker-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		n := loadNode("worker-1", files)
		if got := s.judgeNode(&n, by, frontendOfShop("worker-1")); got.Verdict != report.Match {
			t.Fatalf("by the watch the node is %s", got.Verdict)
		}
		l.close()
		reports, _ := s.judgeLive(ctx, Task{Nodes: nodes, Request: frontendOfShop})
		for i := range reports {
			if reports[i].Verdict != report.Mismatch {
				t.Errorf("node %d: %s", i, reports[i].Verdict)
			}
		}
		// Once by the watch, and, as something is wrong, twice by lists.
		if n := int(m.reads.Load()); n < 1+3*len(nodes) {
			t.Errorf("%d readings", n)
		}
	})
}

// original is a cluster whose watch was not told yet what its lists have.
type original struct {
	stalled
	listed *snapshot.Cluster
}

func (o original) Proxied(context.Context, *snapshot.Cluster) (*snapshot.Cluster, error) {
	return o.listed, nil
}

// What is wrong by a watch is confirmed by a list; and once more, as this was another state than the one before.
func TestWhatIsWrongIsConfirmedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t, []state{{}})
		m.base.Listed = snapshot.Listed{Services: "1", EndpointSlices: "1"}
		s := m.session()
		listed := s.Objects
		var err error
		if s.Objects, err = (stalled{moving: m}).Proxied(t.Context(), listed); err != nil {
			t.Fatal(err)
		}
		s.source = original{stalled{m, cluster.FromAPI(newWatchedAPI(), "")}, listed}
		c := &confirmer{Session: s, pause: confirmPause, reads: confirmReads}
		defer c.lists.close()
		c.lists.watch(t.Context(), s.source.(cluster.Watcher), s.Objects)
		synctest.Wait()
		got := c.judge(t.Context(), "worker-1", frontendOfShop(""), nil)
		if got.Verdict != report.Match || m.reads.Load() != 3 {
			t.Errorf("%s after %d readings, want MATCH after 3", got.Verdict, m.reads.Load())
		}
	})
}
