// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// API is a Source that reads the objects of a cluster.
type API struct {
	client   kubernetes.Interface
	fallback string
	// namespace is the only one whose Services may be read; metav1.NamespaceAll: all may.
	namespace string
	narrowed  error
}

// FromAPI makes a Source of a cluster. Where the Services of all namespaces may not be listed, it makes do with those
// of the namespace fallback, unless that is empty.
func FromAPI(client kubernetes.Interface, fallback string) *API {
	return &API{client: client, fallback: fallback, namespace: metav1.NamespaceAll}
}

// Narrowed says why only one namespace's Services were read; nil when all were.
func (a *API) Narrowed() error { return a.narrowed }

// Objects lists what is needed to judge Services. What may be missing (Nodes, kube-proxy's ConfigMap) and may not be
// read is in Missing; a ConfigMap that cannot be read for another reason is in Unread, too. Services and EndpointSlices
// have to be readable.
func (a *API) Objects(ctx context.Context) (*snapshot.Cluster, error) {
	ctx = counted(ctx)
	c := &snapshot.Cluster{Missing: []string{"pods", kindEndpoints}}
	var nodes, configMaps error
	err := together(
		func() error {
			err := a.proxied(ctx, c)
			if apierrors.IsForbidden(err) && a.fallback != "" {
				a.namespace, a.narrowed = a.fallback, err
				err = a.proxied(ctx, c)
			}
			return err
		},
		func() error {
			c.Nodes, _, nodes = list(ctx, "nodes", metav1.ListOptions{},
				func(ctx context.Context, o metav1.ListOptions) (p page[corev1.Node], err error) {
					l, err := a.client.CoreV1().Nodes().List(ctx, o)
					if err == nil {
						p = pageOf(l, l.Items)
					}
					return p, err
				})
			return nil
		},
		func() error {
			m, err := a.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kube-proxy", metav1.GetOptions{})
			if err == nil {
				c.ConfigMaps = []*corev1.ConfigMap{m}
			}
			configMaps = err
			return nil
		},
	)
	if err != nil {
		return nil, err
	}
	for _, may := range []struct {
		kind string
		err  error
	}{{"nodes", nodes}, {"configmaps", configMaps}} {
		switch {
		case may.err == nil:
		case apierrors.IsForbidden(may.err), apierrors.IsNotFound(may.err):
			c.Missing = append(c.Missing, may.kind)
		case may.kind == "configmaps" && !fatal(may.err): // evidence beside what the nodes tell
			c.Missing = append(c.Missing, may.kind)
			unread(c, may.kind, may.err)
		default:
			return nil, denied(may.err)
		}
	}
	return c, nil
}

// Proxied lists Services and EndpointSlices anew.
func (a *API) Proxied(ctx context.Context, objects *snapshot.Cluster) (*snapshot.Cluster, error) {
	c := *objects
	if err := a.proxied(ctx, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

func (a *API) proxied(ctx context.Context, c *snapshot.Cluster) error {
	err := together(
		func() (err error) {
			c.Services, c.Listed.Services, err = list(ctx, "Services", metav1.ListOptions{},
				func(ctx context.Context, o metav1.ListOptions) (p page[corev1.Service], err error) {
					l, err := a.client.CoreV1().Services(a.namespace).List(ctx, o)
					if err == nil {
						p = pageOf(l, l.Items)
					}
					return p, err
				})
			return denied(err)
		},
		func() (err error) {
			c.EndpointSlices, c.Listed.EndpointSlices, err = list(ctx, "EndpointSlices", metav1.ListOptions{},
				func(ctx context.Context, o metav1.ListOptions) (p page[discoveryv1.EndpointSlice], err error) {
					l, err := a.client.DiscoveryV1().EndpointSlices(a.namespace).List(ctx, o)
					if err == nil {
						p = pageOf(l, l.Items)
					}
					return p, err
				})
			return denied(err)
		},
	)
	if err != nil {
		return err
	}
	return a.mirrored(ctx, c)
}

// kindEndpoints is in Missing as long as no Endpoints were read.
const kindEndpoints = "endpoints"

// mostMirrored is of how many Services Endpoints are read: that much is by hand.
const mostMirrored = 100

// mirrored reads the Endpoints that the slices of Services without a selector mirror. Where they may not be read they
// go on being missing.
func (a *API) mirrored(ctx context.Context, c *snapshot.Cluster) error {
	names := c.Mirrored()
	if len(names) == 0 || len(names) > mostMirrored {
		return nil
	}
	found := make([]*snapshot.Endpoints, len(names))
	read := make([]func() error, len(names))
	for i, name := range names {
		read[i] = func() error {
			e, err := a.client.CoreV1().Endpoints(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
			if err == nil {
				found[i] = e
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
	}
	if err := together(read...); apierrors.IsForbidden(err) {
		return nil
	} else if err != nil {
		return denied(err)
	}
	c.Endpoints = slices.DeleteFunc(found, func(e *snapshot.Endpoints) bool { return e == nil })
	c.Missing = slices.DeleteFunc(slices.Clone(c.Missing), func(k string) bool { return k == kindEndpoints })
	return nil
}

// Pods lists pods. Where they may not or cannot be read, the objects go on saying that they are missing: a trace needs
// their names only. Not so for a pod that is asked for by its name.
func (a *API) Pods(ctx context.Context, objects *snapshot.Cluster, which Pods) error {
	known := make(map[types.UID]int, len(objects.Pods))
	for i, p := range objects.Pods {
		known[p.UID] = i
	}
	add := func(pods []*corev1.Pod) {
		for _, p := range pods {
			if i, ok := known[p.UID]; ok {
				objects.Pods[i] = p
			} else {
				known[p.UID] = len(objects.Pods)
				objects.Pods = append(objects.Pods, p)
			}
		}
		objects.Missing = slices.DeleteFunc(objects.Missing, func(k string) bool { return k == "pods" })
		a.mounted(ctx, objects, pods)
	}
	listed := func(selector fields.Selector) error {
		pods, _, err := list(ctx, "pods", metav1.ListOptions{FieldSelector: selector.String()},
			func(ctx context.Context, o metav1.ListOptions) (p page[corev1.Pod], err error) {
				l, err := a.client.CoreV1().Pods(which.Namespace).List(ctx, o)
				if err == nil {
					p = pageOf(l, l.Items)
				}
				return p, err
			})
		if err == nil {
			add(pods)
		}
		return err
	}
	var err error
	switch {
	case which.All, which.Namespace != "" && which.Name == "":
		err = listed(fields.Everything())
	case which.Name != "":
		var p *corev1.Pod
		if p, err = a.client.CoreV1().Pods(which.Namespace).Get(ctx, which.Name, metav1.GetOptions{}); err == nil {
			add([]*corev1.Pod{p})
		} else if apierrors.IsNotFound(err) {
			add(nil)
		} else {
			return denied(err)
		}
	case which.Address.IsValid():
		err = listed(fields.OneTermEqualSelector("status.podIP", which.Address.String()))
	case len(which.Nodes) > manyNodes:
		err = listed(fields.Everything())
	default:
		for _, n := range which.Nodes {
			if err = listed(fields.OneTermEqualSelector("spec.nodeName", n)); err != nil {
				break
			}
		}
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil
	case err != nil && !fatal(err):
		unread(objects, "pods", err)
		return nil
	}
	return denied(err)
}

// mostConfigMaps is how many ConfigMaps are read because pods of kube-proxy mount them.
const mostConfigMaps = 16

// mounted adds the ConfigMaps that pods of kube-proxy mount: nodes may run kube-proxy by several DaemonSets, each with
// a configuration of its own. One that may not be read stays out, and the nodes that need it say so.
func (a *API) mounted(ctx context.Context, objects *snapshot.Cluster, pods []*corev1.Pod) {
	asked := map[types.NamespacedName]bool{}
	for _, m := range objects.ConfigMaps {
		asked[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = true
	}
	for _, p := range pods {
		if !kubeproxy.RunsIn(p) {
			continue
		}
		for _, name := range kubeproxy.MountedConfigMaps(p) {
			key := types.NamespacedName{Namespace: p.Namespace, Name: name}
			if asked[key] || len(asked) == mostConfigMaps {
				continue
			}
			asked[key] = true
			m, err := a.client.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if err == nil {
				objects.ConfigMaps = append(objects.ConfigMaps, m)
			}
		}
	}
}

// fatal tells whether an error is not about one kind of objects only: nothing else can be read either, or it is that of
// a limit.
func fatal(err error) bool {
	return bounds.Is(err) || apierrors.IsUnauthorized(err) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// unread notes why a kind of objects that is evidence could not be read.
func unread(c *snapshot.Cluster, kind string, err error) {
	if c.Unread == nil {
		c.Unread = map[string]string{}
	}
	c.Unread[kind] = strings.Join(strings.Fields(err.Error()), " ")
}

// manyNodes is from how many nodes on one list of all pods costs less than one list for each.
const manyNodes = 20

// denied says in one sentence what the API server refused, or why it does not answer.
func denied(err error) error {
	switch {
	case err == nil:
		return nil
	case bounds.Is(err):
		limit, _ := errors.AsType[*bounds.Error](err) // without advice to try again
		return limit
	case apierrors.IsForbidden(err):
		return refusal(err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept your credentials: "+
			"log in again, or choose another --context: %w", err)
	}
	return fmt.Errorf("cannot read the cluster's objects: %w", err)
}

// refusal names what RBAC does not grant. The API server's own text holds verb, resource and user.
func refusal(err error) error {
	return fmt.Errorf("%w (deploy/rbac.yaml of kubectl svcproxy grants it)", err)
}

// together runs functions side by side, and returns the first error in their order.
func together(do ...func() error) error {
	errs := make([]error, len(do))
	var wg sync.WaitGroup
	for i, f := range do {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
