// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

var listedFrom = snapshot.Listed{Services: "7", EndpointSlices: "8"}

// After any sequence of changes the objects are those of a list, in its order, and what was returned before is as it
// was returned.
func TestWatchedObjectsAreThoseOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// "a" comes after "a-b" and "a.b" in the keys of the API server, as "/" comes after "-" and ".".
		namespaces, names := []string{"a", "a-b", "b"}, []string{"x", "x-1", "y", "z"}
		random := rand.New(rand.NewPCG(1, 2))
		client := fake.NewClientset()
		a := FromAPI(client, "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		service := func(ns, name, version string) *corev1.Service {
			m := meta(ns, name)
			m.ResourceVersion = version
			return &corev1.Service{ObjectMeta: m}
		}
		slice := func(ns, name, version string) *discoveryv1.EndpointSlice {
			m := meta(ns, name)
			m.ResourceVersion = version
			return &discoveryv1.EndpointSlice{ObjectMeta: m}
		}
		change := func(version string) {
			ns, name := namespaces[random.IntN(len(namespaces))], names[random.IntN(len(names))]
			services, endpoints := client.CoreV1().Services(ns), client.DiscoveryV1().EndpointSlices(ns)
			var err error
			switch _, there := services.Get(ctx, name, metav1.GetOptions{}); {
			case random.IntN(2) == 0 && there == nil && random.IntN(2) == 0:
				err = services.Delete(ctx, name, metav1.DeleteOptions{})
			case random.IntN(2) == 0 && there == nil:
				_, err = services.Update(ctx, service(ns, name, version), metav1.UpdateOptions{})
			case there != nil:
				_, err = services.Create(ctx, service(ns, name, version), metav1.CreateOptions{})
			default:
				if _, there = endpoints.Get(ctx, name, metav1.GetOptions{}); there == nil {
					err = endpoints.Delete(ctx, name, metav1.DeleteOptions{})
				} else {
					_, err = endpoints.Create(ctx, slice(ns, name, version), metav1.CreateOptions{})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			change(fmt.Sprint("first ", i))
		}
		from, err := a.Objects(ctx)
		if err != nil {
			t.Fatal(err)
		}
		from.Listed = listedFrom
		w, err := a.Watch(ctx, from)
		if err != nil {
			t.Fatal(err)
		}
		var before []string
		last := from
		for i := range 500 {
			change(fmt.Sprint(i))
			synctest.Wait()
			got, err := w.Objects(ctx)
			if err != nil {
				t.Fatal(err)
			}
			want, err := a.Proxied(ctx, from)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := versionsOf(got), slices.Sorted(slices.Values(versionsOf(want))); !slices.Equal(got, want) {
				t.Fatalf("change %d: got\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if got.Listed != (snapshot.Listed{}) || len(got.Nodes) != len(from.Nodes) {
				t.Fatalf("listed %+v, %d nodes", got.Listed, len(got.Nodes))
			}
			if i > 0 && !slices.Equal(versionsOf(last), before) {
				t.Fatalf("change %d changed what was returned before", i)
			}
			last, before = got, versionsOf(got)
		}
	})
}

func versionsOf(c *snapshot.Cluster) (out []string) {
	for _, s := range c.EndpointSlices {
		out = append(out, "EndpointSlice "+key(s)+" "+s.ResourceVersion)
	}
	for _, s := range c.Services {
		out = append(out, "Service "+key(s)+" "+s.ResourceVersion)
	}
	return out
}

// What a watch cannot tell is an error, and stays one: the objects have to be listed.
func TestWatchesThatEnd(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old resource version")
	for _, tt := range []struct {
		name string
		do   func(services, endpoints *watch.FakeWatcher)
		want string
	}{
		{
			"the API server ends it", func(services, _ *watch.FakeWatcher) { services.Stop() },
			"the watch ended",
		},
		{
			"of the other kind", func(_, endpoints *watch.FakeWatcher) { endpoints.Stop() },
			"the watch ended",
		},
		{"its events are too old", func(_, endpoints *watch.FakeWatcher) {
			endpoints.Error(&gone.ErrStatus)
		}, "too old resource version"},
		{"events that there are not", func(services, _ *watch.FakeWatcher) {
			services.Action("MOVED", &corev1.Service{})
		}, `an event "MOVED"`},
		{"objects of another kind", func(services, _ *watch.FakeWatcher) {
			services.Add(&discoveryv1.EndpointSlice{})
		}, "an object of type *v1.EndpointSlice"},
		{"too many objects", func(services, _ *watch.FakeWatcher) {
			services.Add(&corev1.Service{})
		}, "more than 200000 objects of type *v1.Service: at most 200000 were expected"},
		{"bookmarks are no news", func(services, _ *watch.FakeWatcher) {
			services.Action(watch.Bookmark, &corev1.Service{})
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				services, endpoints := watch.NewFake(), watch.NewFake()
				var asked []string
				for resource, w := range map[string]*watch.FakeWatcher{"services": services, "endpointslices": endpoints} {
					client.PrependWatchReactor(resource, func(a k8stesting.Action) (bool, watch.Interface, error) {
						asked = append(asked, resource+" "+a.(k8stesting.WatchActionImpl).ListOptions.ResourceVersion)
						return true, w, nil
					})
				}
				from := &snapshot.Cluster{Listed: listedFrom}
				if strings.HasPrefix(tt.name, "too many") {
					m := meta("shop", "web")
					from.Services = slices.Repeat([]*corev1.Service{{ObjectMeta: m}}, bounds.Objects)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				w, err := FromAPI(client, "").Watch(ctx, from)
				if err != nil || !slices.Equal(asked, []string{"services 7", "endpointslices 8"}) {
					t.Fatal(asked, err)
				}
				if _, err := w.Objects(ctx); err != nil {
					t.Fatal(err)
				}
				tt.do(services, endpoints)
				synctest.Wait()
				for range 2 {
					if c, err := w.Objects(ctx); (err == nil) != (tt.want == "") ||
						err != nil && (c != nil || !strings.Contains(err.Error(), tt.want)) {
						t.Errorf("got %v, want %q", err, tt.want)
					}
				}
				services.Stop()
				endpoints.Stop()
			})
		})
	}
}

func TestWatchesThatDoNotBegin(t *testing.T) {
	for _, kind := range []string{"services", "endpointslices"} {
		client := fake.NewClientset()
		client.PrependWatchReactor(kind, func(k8stesting.Action) (bool, watch.Interface, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource(kind), "", errors.New("cannot watch"))
		})
		_, err := FromAPI(client, "").Watch(t.Context(), &snapshot.Cluster{Listed: listedFrom})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	a := FromAPI(fake.NewClientset(), "")
	if _, err := a.Watch(t.Context(), &snapshot.Cluster{}); !errors.Is(err, ErrNotListed) {
		t.Error(err)
	}
}
