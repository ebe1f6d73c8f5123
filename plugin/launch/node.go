// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// checkNode returns an error if a pod would never start on a node. Without permission to read nodes it returns none,
// and the pod's timeout passes.
func (l *Launcher) checkNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	node, err := l.o.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no node %q: kubectl get nodes lists those of the cluster", name)
	case apierrors.IsForbidden(err):
		klog.V(2).InfoS("May not read the node", "node", name, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("cannot read node %s: %w", name, err)
	}
	return nodeTrouble(node)
}

// nodeTrouble says why no pod can start on a node.
func nodeTrouble(node *corev1.Node) error {
	if system := node.Labels[corev1.LabelOSStable]; system != "" && system != "linux" {
		return snapshot.ErrorOf(node.Name, fmt.Errorf("the operating system is %s, and the helper needs Linux", system))
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue {
			continue
		}
		// Without since when: of many nodes that are not ready for the same reason one line is made.
		return snapshot.ErrorOf(node.Name, fmt.Errorf("not ready, so no helper can start there: %s",
			safetext.Line(c.Reason+": "+c.Message, 500)))
	}
	return nil
}
