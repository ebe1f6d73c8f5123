// SPDX-License-Identifier: Apache-2.0

package judge

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// shortCut is a pod of the node, which quietly sends to a frontend for outsiders whose traffic policy is Local: rules
// of their own lead what comes from the cluster itself to all endpoints (kube-proxy, pkg/proxy/iptables/proxier.go, the
// chain KUBE-EXT), and no other origin meets the one for pods. It is reported where nothing else of the Service is
// wrong.
func (n *node) shortCut(svc *corev1.Service, f expect.Frontend, asked *From) []from {
	if asked != nil || f.Kind == expect.ClusterIP || f.Address.IsLoopback() || !policyOf(svc, f.Kind) {
		return nil
	}
	o := n.fromPod(f)
	if !o.Address.IsValid() {
		return nil
	}
	return []from{{Origin: o, quiet: true}}
}

// isShortCut tells whether a path is from such a pod.
func isShortCut(p *judged) bool {
	return p.quiet && p.Origin.Kind == string(expect.FromPod) && p.Frontend.Kind != string(expect.ClusterIP)
}

// wrongServices are those of which another path is wrong.
func wrongServices(paths []judged) map[report.ObjectRef]bool {
	out := map[report.ObjectRef]bool{}
	for i := range paths {
		if p := &paths[i]; p.Verdict == report.Mismatch && !p.quiet {
			out[serviceOf(p)] = true
		}
	}
	return out
}

// serviceOf is the Service of a path; the same for all paths where they are of one Service.
func serviceOf(p *judged) report.ObjectRef {
	if p.Service == nil {
		return report.ObjectRef{}
	}
	return *p.Service
}
