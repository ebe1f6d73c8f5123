// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unsafe" // the size of a struct alone

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/svcproxy/kubectl-svcproxy/internal/apiraw"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
)

// ErrNoReports says that the cluster has no kind NodeReport.
var ErrNoReports = errors.New("the cluster has no reports of agents (" + nodereport.Resource + "): install the " +
	"agents with kubectl apply -k deploy and kubectl apply -k deploy/watch, or use kubectl svcproxy verify -A --all-nodes")

// reportPage is how many NodeReports are requested at once: 8 MB where each is as large as an agent may make it.
const reportPage = 500

// reportMemory is what a report takes besides its findings, about.
const reportMemory = 4 << 10

// NodeReport is what the API has of a node's agent.
type NodeReport struct {
	Node   string
	Object *nodereport.Object // nil where Err says why it is not accepted
	Err    error
}

// NodeReports lists what the agents of nodes have published.
func NodeReports(ctx context.Context, client kubernetes.Interface) ([]*NodeReport, error) {
	rest := client.Discovery().RESTClient()
	seen := map[string]string{}
	out, _, err := list(ctx, nodereport.Resource, metav1.ListOptions{},
		func(ctx context.Context, o metav1.ListOptions) (p page[NodeReport], err error) {
			request := rest.Get().AbsPath(nodereport.Path).SetHeader("Accept", "application/json")
			if o.Limit > 0 {
				request.Param("limit", strconv.Itoa(reportPage))
			}
			if o.Continue != "" {
				request.Param("continue", o.Continue)
			}
			data, err := apiraw.Body(request.Do(ctx))
			if err != nil {
				return p, err
			}
			return reportsOf(data, seen)
		})
	switch {
	case err == nil:
		return out, nil
	case apierrors.IsNotFound(err):
		return nil, ErrNoReports
	case apierrors.IsForbidden(err):
		return nil, refusal(err)
	}
	return nil, denied(err)
}

// reportsOf reads a page of the list.
func reportsOf(data []byte, seen map[string]string) (p page[NodeReport], err error) {
	var l struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return p, bounds.Errorf("the API server's list of %s cannot be read: %v", nodereport.Resource, err)
	}
	if l.Kind != nodereport.Kind+"List" {
		return p, bounds.Errorf("the API server's list of %s is of kind %q", nodereport.Resource, l.Kind)
	}
	for _, item := range l.Items {
		o, name, err := nodereport.Read(item)
		if o != nil {
			o.Share(seen)
			p.memory += reportMemory + len(o.Status.Findings)*int(unsafe.Sizeof(nodereport.Finding{}))
		}
		p.items = append(p.items, NodeReport{Node: name, Object: o, Err: err})
	}
	p.more = l.Metadata.Continue
	return p, nil
}

// Nodes lists the nodes that a selector of labels selects; "": all.
func Nodes(ctx context.Context, client kubernetes.Interface, selector string) ([]*corev1.Node, error) {
	out, _, err := list(ctx, "nodes", metav1.ListOptions{LabelSelector: selector},
		func(ctx context.Context, o metav1.ListOptions) (p page[corev1.Node], err error) {
			l, err := client.CoreV1().Nodes().List(ctx, o)
			if err == nil {
				p = pageOf(l, l.Items)
			}
			return p, err
		})
	if err != nil {
		return nil, fmt.Errorf("cannot list the nodes: %w", denied(err))
	}
	return out, nil
}
