// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// keptChains is in which versions a kube-proxy that starts does not write the chain of an endpoint in nftables mode
// where there is one of its name, whatever it holds (pkg/proxy/nftables/proxier.go, epChainSkipUpdate).
var keptChains = lifetime{since: 33, fixed: 36}

// beforeRestart is what has to go before kube-proxy is restarted, so that it writes the chain that an issue is about.
// The note says why, and what it does to the node.
func (n *node) beforeRestart(i *issue) (first []report.Command, note string) {
	c := i.where.Chain
	if c == nil || c.Table.Backend != netfilter.BackendNative ||
		!strings.HasPrefix(c.Name, kubeproxy.NFTPrefixEndpoint) {
		return nil, ""
	}
	from := n.values.sources[kubeproxy.SettingVersion].source
	known := from == kubeproxy.FromMetrics || from == kubeproxy.FromImage
	if known && !keptChains.includes(n.config.Version) {
		return nil, ""
	}
	family := "ip"
	if c.Table.Family == netfilter.IPv6 {
		family = "ip6"
	}
	remove := report.Command{Line: report.ShellLine("nft", "delete", "table", family, c.Table.Name), Node: n.Name}
	if !known {
		remove.When = "where kube-proxy is 1.33 to 1.35"
	}
	return []report.Command{remove}, "kube-proxy 1.33 to 1.35 keeps the chains of endpoints that it finds when it " +
		"starts: it rewrites them only without its table, and no Service works on " + n.Name + " until it has"
}
