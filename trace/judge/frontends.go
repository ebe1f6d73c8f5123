// SPDX-License-Identifier: Apache-2.0

package judge

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// frontends returns the frontends that a Service has under any of the values that kube-proxy may have.
func (n *node) frontends(svc *corev1.Service) []expect.Frontend {
	out := n.exp.Frontends(svc)
	var seen map[expect.Frontend]bool
	n.variations(func(w *node) {
		if seen == nil {
			seen = make(map[expect.Frontend]bool, len(out))
			for _, f := range out {
				seen[f] = true
			}
		}
		for _, f := range w.exp.Frontends(svc) {
			if !seen[f] {
				out, seen[f] = append(out, f), true
			}
		}
	})
	return out
}

// ignored returns why kube-proxy leaves a Service alone, whatever values it has; the code is empty where it does not.
func (n *node) ignored(svc *corev1.Service) (reason, why string) {
	reason, why = n.exp.Ignored(svc)
	n.variations(func(w *node) {
		if r, _ := w.exp.Ignored(svc); r == "" {
			reason, why = "", ""
		}
	})
	return reason, why
}

// variations calls f with the node under every other answer to one of the open questions.
func (n *node) variations(f func(w *node)) {
	answers := make([]uint8, len(n.values.open))
	for i := range n.values.open {
		for a := 1; a < len(n.values.open[i].answers); a++ {
			answers[i] = uint8(a)
			f(n.world(answers))
		}
		answers[i] = 0
	}
}
