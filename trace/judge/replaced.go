// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// replacement is a program that can serve Services in kube-proxy's place, and what it leaves on a node by which it is
// known. Where it leaves both Services to kube-proxy and the same traces, kube-proxy runs: that is asked first.
type replacement struct {
	name      string
	processes []string
	links     []string // interfaces
	chains    string   // the prefix of its iptables chains
}

var replacements = []replacement{
	{"Cilium", []string{"cilium-agent"}, []string{"cilium_host", "cilium_net"}, "CILIUM_"},
	{"kube-router", []string{"kube-router"}, []string{"kube-dummy-if"}, "KUBE-ROUTER-"},
	{"Antrea Proxy", []string{"antrea-agent"}, []string{"antrea-gw0"}, "ANTREA-"},
	{"OVN-Kubernetes", []string{"ovnkube"}, []string{"ovn-k8s-mp0"}, "OVN-KUBE-"},
	{"Calico's eBPF dataplane", nil, []string{"bpfin.cali", "bpfout.cali"}, ""},
}

// replacedBy finds what serves Services on a node that kube-proxy has neither rules nor a process on; nil where nothing
// does.
func (n *node) replacedBy() *replacement {
	p := &n.Proxy
	if _, pod := n.cluster.proxyPods[n.Name]; pod || p.Responds || p.Processes[kubeproxy.Process] != 0 ||
		len(held(n.State)) > 0 {
		return nil
	}
	// Chains stay behind long after the program is gone: they only count where nothing better was collected.
	sure := p.Listed || n.net.HasLinks()
	for i := range replacements {
		r := &replacements[i]
		if len(n.running(r)) > 0 || !sure && n.chainOf(r) != "" {
			return r
		}
	}
	return nil
}

// running cites what a replacement has on a node while it runs there.
func (n *node) running(r *replacement) []string {
	var out []string
	for _, name := range r.processes {
		if pid := n.Proxy.Processes[name]; pid != 0 {
			out = append(out, fmt.Sprintf("process %d %s", pid, name))
		}
	}
	for _, dev := range r.links {
		if has, known := n.net.HasLink(dev); has && known {
			out = append(out, "interface "+dev)
		}
	}
	return out
}

// chainOf cites a chain of a replacement's; "" where there is none.
func (n *node) chainOf(r *replacement) string {
	if r.chains == "" {
		return ""
	}
	for _, t := range n.Rules.Tables {
		if i := slices.IndexFunc(
			t.Chains,
			func(c *netfilter.Chain) bool { return strings.HasPrefix(c.Name, r.chains) },
		); i >= 0 {
			return "chain " + chainName(t.Chains[i])
		}
	}
	return ""
}

// Replaced says that another program serves Services in kube-proxy's place.
const Replaced = "Replaced"

var _ = register(kind{
	code: Replaced, severity: note, scope: onNode, by: refusal,
	remedy: advice("ask the program that serves Services on {node}; if kube-proxy should, find out why it does not run " +
		"there"),
	issues: []string{"kubernetes/kubernetes#119265"},
})

// replacedError is for a node of which nothing is claimed, as another program serves Services on it.
type replacedError struct{ by *replacement }

func (e replacedError) Error() string { return e.by.message() }

func (r *replacement) message() string {
	return "Services on this node are not served by kube-proxy but by " + r.name + ", whose own tools show what happens " +
		"to a packet"
}

// replaced is the answer for such a node.
func (n *node) replaced(r *replacement) issue {
	evidence := n.running(r)
	if c := n.chainOf(r); c != "" {
		evidence = append(evidence, c)
	}
	return issue{
		code:     Replaced,
		subject:  r.name,
		expected: "kube-proxy's rules",
		actual:   "none, and no kube-proxy",
		message:  r.message(),
		evidence: say(evidence...),
	}
}
