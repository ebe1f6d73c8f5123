// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// readNodes reads the other Nodes, of which no judgement needs more than their addresses. They are not watched: each of
// thousands of agents would be told of each heartbeat of thousands of Nodes. The answer is the API server's cache's.
func (o *objects) readNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodesTime)
	defer cancel()
	var others []*corev1.Node
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return o.client.CoreV1().Nodes().List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{ResourceVersion: "0"}, func(object runtime.Object) error {
		if len(others) > bounds.Nodes {
			return bounds.Errorf("the API server lists more than %d Nodes: fewer were expected", bounds.Nodes)
		}
		if n, ok := object.(*corev1.Node); ok && n.Name != o.node {
			others = append(others, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
			})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the other Nodes: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.others = others
	o.version++
	return nil
}

// knowsOthers tells whether other Nodes were read.
func (o *objects) knowsOthers() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.others != nil
}

// nodesTime is how long readNodes may take.
const nodesTime = 10 * time.Second
