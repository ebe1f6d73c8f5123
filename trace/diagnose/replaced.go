// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// replacement is a program that can serve Services in kube-proxy's place, and what it leaves on a node by which it is known. Where it
// leaves both Services to kube-proxy and the same traces, kube-proxy runs: that is asked first.
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

// replacedBy finds what serves Services on a node that kube-proxy has neither rules nor a process on; nil where nothing does.
func (n *node) replacedBy() *replacement {
	p := &n.proxy
	if p.answers || p.processes[proxyProcess] != 0 || n.proxyPod || n.programs() {
		return nil
	}
	// Chains stay behind long after the program is gone: they only count where nothing better was collected.
	sure := p.listed || n.net.HasLinks()
	for i := range replacements {
		r := &replacements[i]
		if len(n.running(r)) > 0 || !sure && n.chainOf(r) != "" {
			return r
		}
	}
	return nil
}

// programs tells whether the kernel holds rules of kube-proxy's of any mode.
func (n *node) programs() bool {
	return n.holds(&iptablesDialect) || n.holds(&nftDialect)
}

// running cites what a replacement has on a node while it runs there.
func (n *node) running(r *replacement) []string {
	var out []string
	for _, name := range r.processes {
		if pid := n.proxy.processes[name]; pid != 0 {
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
	for _, t := range n.rules.Tables {
		if i := slices.IndexFunc(t.Chains, func(c *netfilter.Chain) bool { return strings.HasPrefix(c.Name, r.chains) }); i >= 0 {
			return "chain " + chainName(t.Chains[i])
		}
	}
	return ""
}

// replaced is the answer for a node whose Services another program serves.
func (n *node) replaced(r *replacement) report.Finding {
	n.mode.ReplacedBy = r.name
	evidence := n.running(r)
	if c := n.chainOf(r); c != "" {
		evidence = append(evidence, c)
	}
	return n.finding(Replaced, r.name, issue{
		expected: "kube-proxy's rules", actual: "none, and no kube-proxy",
		message:  "Services on this node are not handled by kube-proxy but by " + r.name + ", whose own tools tell what becomes of a packet",
		evidence: evidence,
	})
}
