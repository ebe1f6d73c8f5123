// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TwoProxies says that another program serves Services on the node beside a kube-proxy that runs.
const TwoProxies = "TwoProxies"

var _ = register(kind{
	code: TwoProxies, severity: warning, scope: onNode, by: twoProxies,
	issues: []string{"projectcalico/calico#10538", "projectcalico/calico#10748"},
})

// second is a program that serves Services in place of kube-proxy, and an interface that it makes for that alone.
// Others of replacements also make theirs where they leave Services to kube-proxy, not a fault: Cilium, Antrea,
// OVN-Kubernetes.
type second struct{ name, link, remedy string }

var seconds = []second{
	{
		"Calico's eBPF dataplane", "bpfin.cali",
		"have one of the two serve Services: run no kube-proxy beside it; where kube-proxy cannot be removed, set " +
			"bpfKubeProxyIptablesCleanupEnabled: false in Calico's FelixConfiguration, or it removes the rules that " +
			"kube-proxy writes, again and again",
	},
	{
		"kube-router", "kube-dummy-if",
		"have one of the two serve Services: run no kube-proxy, or kube-router with --run-service-proxy=false",
	},
}

// twoProxies finds a second program that serves Services while kube-proxy runs: what becomes of a packet is decided by
// whichever meets it first.
var twoProxies = &detector{stage: stageStatus, node: func(n *node) []issue {
	_, pod := n.cluster.proxyPods[n.Name]
	if n.Proxy.Down() || !n.Proxy.Responds && n.Proxy.Processes[kubeproxy.Process] == 0 && !pod {
		return nil
	}
	var out []issue
	for _, s := range seconds {
		if has, known := n.net.HasLink(s.link); !has || !known {
			continue
		}
		out = append(out, issue{
			code: TwoProxies, subject: s.name, expected: "one program that serves Services", actual: "kube-proxy and " + s.name,
			evidence: say("interface " + s.link),
			message: fmt.Sprintf(
				"kube-proxy runs, and so does %s, which serves Services as well: findings about kube-proxy's rules only apply to "+
					"packets that the other program leaves to them",
				s.name,
			),
			remedy: n.advise(advice(s.remedy, command{
				line: "kubectl -n kube-system get daemonset kube-proxy", when: "where kube-proxy is a DaemonSet",
			}), &issue{}),
		})
	}
	return out
}}
