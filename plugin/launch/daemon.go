// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"
)

// daemonSelector finds the pods of the DaemonSet in deploy/.
const daemonSelector = labelName + "=" + nameHelper + "," + labelComponent + "=" + componentDaemon

// findDaemon returns the node's pod of the DaemonSet; nil: there is none that is ready.
func (l *Launcher) findDaemon(ctx context.Context, node string) *corev1.Pod {
	if l.o.OwnPod {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	list, err := l.pods.List(ctx, metav1.ListOptions{
		LabelSelector: daemonSelector,
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		// Making an own pod will tell what is wrong, if it matters.
		klog.V(2).InfoS("Cannot look for a DaemonSet", "node", node, "err", err)
		return nil
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName == node && p.DeletionTimestamp == nil && isReady(p) && byDaemonSet(p) {
			return p
		}
	}
	return nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// byDaemonSet keeps a pod out that merely bears the labels.
func byDaemonSet(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "DaemonSet"
}

// openDaemon runs the helper in the pod of the DaemonSet.
func (l *Launcher) openDaemon(ctx context.Context, node string, pod *corev1.Pod) (*Helper, error) {
	l.o.Say(node, "connecting to the DaemonSet's pod")
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	c, err := connect(ctx, func(ctx context.Context, s streams) error {
		return l.stream(ctx, pod, serveCommand(l.o), s)
	}, l.o.Build, l.o.Timeout, l.o.Timeout)
	if err != nil {
		return nil, l.streamRefused(err)
	}
	h := l.newHelper(node, pod, c, func(context.Context) error { return nil })
	h.waits = true
	return h, nil
}

// isNews tells whether a build of helpers is a new one: what is true of the helpers of many nodes is said once.
func (l *Launcher) isNews(build string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.builds[build] {
		return false
	}
	if l.builds == nil {
		l.builds = map[string]bool{}
	}
	l.builds[build] = true
	return true
}

// newHelper returns the Helper for a connection to a pod.
func (l *Launcher) newHelper(node string, pod *corev1.Pod, c *conn, remove func(context.Context) error) *Helper {
	if peer := c.client.Peer; peer.Build != l.o.Build && l.isNews(peer.Build) {
		l.o.Note(node, "the helper in "+pod.Namespace+"/"+pod.Name+" is of build "+peer.Build+", the plugin of "+l.o.Build)
	}
	return &Helper{
		node: node, build: l.o.Build, conn: c, say: l.o.Say, remove: remove,
		why: func(err error) error { return l.why(pod, err) },
		forget: func(s *Helper) {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.helpers, s)
		},
	}
}
