// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}
}

func forbid(c *fake.Clientset, verb, resource, namespace string) {
	c.PrependReactor(verb, resource, func(a k8stesting.Action) (bool, runtime.Object, error) {
		if namespace != "*" && a.GetNamespace() != namespace {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "",
			errors.New(`User "u" cannot `+verb+` resource "`+resource+`"`))
	})
}

// selectable makes the fake do what the API server does with field selectors on pods.
func selectable(c *fake.Clientset, pods []*corev1.Pod) {
	c.PrependReactor("list", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		list := &corev1.PodList{}
		for _, p := range pods {
			set := fields.Set{"spec.nodeName": p.Spec.NodeName, "status.podIP": p.Status.PodIP}
			if a.(k8stesting.ListAction).GetListRestrictions().Fields.Matches(set) {
				list.Items = append(list.Items, *p)
			}
		}
		return true, list, nil
	})
}

func TestAPI(t *testing.T) {
	pods := []*corev1.Pod{
		{
			ObjectMeta: meta("shop", "web-1"), Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{PodIP: "10.0.0.1"},
		},
		{
			ObjectMeta: meta("shop", "web-2"), Spec: corev1.PodSpec{NodeName: "n2"}, Status: corev1.PodStatus{PodIP: "10.0.0.2"},
		},
	}
	objects := []runtime.Object{
		&corev1.Service{ObjectMeta: meta("shop", "web")}, &corev1.Service{ObjectMeta: meta("other", "db")},
		&discoveryv1.EndpointSlice{ObjectMeta: meta("shop", "web-x")}, &corev1.Node{ObjectMeta: meta("", "n1")},
		&corev1.ConfigMap{ObjectMeta: meta("kube-system", "kube-proxy")}, pods[0], pods[1],
	}
	for _, tt := range []struct {
		name     string
		fallback string
		prepare  func(*fake.Clientset)
		services int
		missing  []string
		narrowed string
		unread   string // of configmaps
		err      string
	}{
		{name: "all may be read", fallback: "shop", services: 2, missing: []string{"pods"}},
		{
			name: "nodes and configuration may not be read", services: 2, missing: []string{"pods", "nodes", "configmaps"},
			prepare: func(c *fake.Clientset) { forbid(c, "list", "nodes", "*"); forbid(c, "get", "configmaps", "*") },
		},
		{
			name: "only one namespace may be read", fallback: "shop", services: 1, missing: []string{"pods"},
			prepare:  func(c *fake.Clientset) { forbid(c, "list", "services", "") },
			narrowed: `User "u" cannot list resource "services"`,
		},
		{
			name:    "only one namespace may be read, and all are asked for",
			err:     `cannot list resource "services" (deploy/rbac.yaml`,
			prepare: func(c *fake.Clientset) { forbid(c, "list", "services", "") },
		},
		{
			name: "nothing may be read", fallback: "shop", err: `cannot list resource "endpointslices" (deploy/rbac.yaml`,
			prepare: func(c *fake.Clientset) { forbid(c, "list", "endpointslices", "*") },
		},
		{
			name: "the credentials are not good", fallback: "shop", err: "does not accept your credentials",
			prepare: func(c *fake.Clientset) {
				c.PrependReactor("*", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewUnauthorized("expired")
				})
			},
		},
		{
			name: "the ConfigMap cannot be read", fallback: "shop", services: 2, missing: []string{"pods", "configmaps"},
			unread: "etcd is away",
			prepare: func(c *fake.Clientset) {
				c.PrependReactor("get", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("etcd is\naway")
				})
			},
		},
		{
			name: "the API server breaks down over the nodes", err: "cannot read the cluster's objects: etcd is away",
			prepare: func(c *fake.Clientset) {
				c.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("etcd is away")
				})
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset(objects...)
			if tt.prepare != nil {
				tt.prepare(client)
			}
			a := FromAPI(client, tt.fallback)
			c, err := a.Objects(t.Context())
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Services) != tt.services || !slices.Equal(c.Missing, tt.missing) {
				t.Errorf("%d Services, missing %v; want %d, %v", len(c.Services), c.Missing, tt.services, tt.missing)
			}
			if c.Unread["configmaps"] != tt.unread || len(c.Unread) > 1 {
				t.Errorf("not read: %q, want %q", c.Unread, tt.unread)
			}
			if n := a.Narrowed(); (n == nil) != (tt.narrowed == "") || n != nil && !strings.Contains(n.Error(), tt.narrowed) {
				t.Errorf("narrowed by %v, want %q", n, tt.narrowed)
			}
			again, err := a.Proxied(t.Context(), c)
			if err != nil || len(again.Services) != tt.services || len(again.Nodes) != len(c.Nodes) {
				t.Errorf("read again: %d Services, %d Nodes, %v", len(again.Services), len(again.Nodes), err)
			}
		})
	}
}

func TestAPIPods(t *testing.T) {
	pods := []*corev1.Pod{
		{
			ObjectMeta: meta("shop", "web-1"), Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{PodIP: "10.0.0.1"},
		},
		{
			ObjectMeta: meta("shop", "web-2"), Spec: corev1.PodSpec{NodeName: "n2"}, Status: corev1.PodStatus{PodIP: "10.0.0.2"},
		},
	}
	for _, tt := range []struct {
		name   string
		which  []Pods
		want   []string
		forbid string // verb
		err    string
	}{
		{name: "of a node", which: []Pods{{Nodes: []string{"n2"}}}, want: []string{"web-2"}},
		{
			name: "of two nodes, twice", which: []Pods{{Nodes: []string{"n1", "n2"}}, {Nodes: []string{"n1"}}},
			want: []string{"web-1", "web-2"},
		},
		{name: "all", which: []Pods{{All: true}}, want: []string{"web-1", "web-2"}},
		{name: "by name", which: []Pods{{Namespace: "shop", Name: "web-1"}}, want: []string{"web-1"}},
		{name: "by a name that there is not", which: []Pods{{Namespace: "shop", Name: "nope"}}},
		{name: "by address", which: []Pods{{Address: netip.MustParseAddr("10.0.0.2")}}, want: []string{"web-2"}},
		{name: "may not be listed", which: []Pods{{All: true}}, forbid: "list"},
		{
			name: "may not be got", which: []Pods{{Namespace: "shop", Name: "web-1"}}, forbid: "get",
			err: `cannot get resource "pods"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset(pods[0], pods[1])
			selectable(client, pods)
			if tt.forbid != "" {
				forbid(client, tt.forbid, "pods", "*")
			}
			a := FromAPI(client, "")
			c, err := a.Objects(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, which := range tt.which {
				if err = a.Pods(t.Context(), c, which); err != nil {
					break
				}
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range c.Pods {
				got = append(got, p.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if missing := slices.Contains(c.Missing, "pods"); missing != (tt.forbid != "") {
				t.Errorf("pods are missing: %t", missing)
			}
		})
	}
}

// What a dump holds of a pod is enough to judge with, and nothing that its owner would rather keep.
// TestPodsThatCannotBeRead: an API server that breaks down over pods costs their names, and says so.
func TestPodsThatCannotBeRead(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("<html>502</html>")
	})
	a := FromAPI(client, "")
	c, err := a.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Pods(t.Context(), c, Pods{All: true}); err != nil || c.Unread["pods"] != "<html>502</html>" ||
		!slices.Contains(c.Missing, "pods") || len(Lean(c).Unread) != 1 {
		t.Errorf("%v %v %v", err, c.Missing, c.Unread)
	}
}

func TestLean(t *testing.T) {
	secret := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Annotations: map[string]string{"a": "s3cret"},
			Labels: map[string]string{"k8s-app": "kube-proxy"},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", HostNetwork: true,
			Containers: []corev1.Container{{
				Name: "c", Env: []corev1.EnvVar{{Name: "P", Value: "s3cret"}}, Args: []string{"--password=s3cret"},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
			}},
		},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", Phase: corev1.PodRunning},
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{
		"service.kubernetes.io/topology-mode": "Auto", "kubectl.kubernetes.io/last-applied-configuration": "s3cret",
	}}}
	out := Lean(&snapshot.Cluster{Services: []*corev1.Service{svc}, Pods: []*corev1.Pod{secret}})
	data, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{"kube-proxy", "n1", "10.0.0.1", "http", "topology-mode"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is lost", want)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Error("a secret is left")
	}
	if secret.Spec.Containers[0].Env == nil || len(svc.Annotations) != 2 {
		t.Error("the objects themselves were changed")
	}
}

// Endpoints are read of Services that have them mirrored, and of no others; that they may not be read is no error.
func TestMirroredEndpoints(t *testing.T) {
	selected, named := &corev1.Service{ObjectMeta: meta("shop", "web")}, &corev1.Service{ObjectMeta: meta("shop", "named")}
	selected.Spec.Selector, named.Spec.Type = map[string]string{"app": "x"}, corev1.ServiceTypeExternalName
	own := &discoveryv1.EndpointSlice{ObjectMeta: meta("shop", "own-x")}
	own.Labels = map[string]string{discoveryv1.LabelServiceName: "own", discoveryv1.LabelManagedBy: "me"}
	mirror := &discoveryv1.EndpointSlice{ObjectMeta: meta("shop", "old-x")}
	mirror.Labels = map[string]string{
		discoveryv1.LabelServiceName: "old", discoveryv1.LabelManagedBy: "endpointslicemirroring-controller.k8s.io",
	}
	objects := []runtime.Object{
		selected, named, own, mirror,
		&corev1.Service{ObjectMeta: meta("shop", "own")}, &corev1.Service{ObjectMeta: meta("shop", "old")},
		&corev1.Service{ObjectMeta: meta("shop", "bare")}, &snapshot.Endpoints{ObjectMeta: meta("shop", "old")},
		&snapshot.Endpoints{ObjectMeta: meta("shop", "web")}, &snapshot.Endpoints{ObjectMeta: meta("shop", "own")},
	}
	for _, x := range []struct {
		name    string
		prepare func(*fake.Clientset)
		want    []string
		missing bool
	}{
		{name: "all may be read", want: []string{"old"}},
		{
			name: "they may not be read", missing: true,
			prepare: func(c *fake.Clientset) { forbid(c, "get", "endpoints", "*") },
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			client := fake.NewClientset(objects...)
			if x.prepare != nil {
				x.prepare(client)
			}
			c, err := FromAPI(client, "").Objects(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got, asked []string
			for _, e := range c.Endpoints {
				got = append(got, e.Name)
			}
			for _, a := range client.Actions() {
				if get, ok := a.(k8stesting.GetAction); ok && a.GetResource().Resource == "endpoints" {
					asked = append(asked, get.GetName())
				}
			}
			slices.Sort(asked)
			if !slices.Equal(got, x.want) || slices.Contains(c.Missing, "endpoints") != x.missing {
				t.Errorf("got %v, missing %v; want %v, missing %v", got, c.Missing, x.want, x.missing)
			}
			if !slices.Equal(asked, []string{"bare", "old"}) {
				t.Errorf("asked for %v", asked)
			}
		})
	}
}
