// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// dialect is how kube-proxy's rules look in a mode: the places that findings look at, and speak of.
type dialect struct {
	mode     string // as kube-proxy calls it
	rules    string // where its rules are, for people
	services string // the chain from which the ways to all frontends part
	// Chains of one Service port begin with these.
	cluster, local, external, firewall, endpoint string
	marks                                        string // how a rule marks for masquerade, for people
}

// iptablesDialect is pkg/proxy/iptables/proxier.go.
var iptablesDialect = dialect{
	mode: "iptables", rules: "table nat", services: "KUBE-SERVICES",
	cluster: "KUBE-SVC-", local: "KUBE-SVL-", external: "KUBE-EXT-", firewall: "KUBE-FW-", endpoint: "KUBE-SEP-", marks: "jumps to KUBE-MARK-MASQ",
}

// nftTable is the table of nftables mode.
const nftTable = "kube-proxy"

// nftDialect is pkg/proxy/nftables/proxier.go.
var nftDialect = dialect{
	mode: kubeproxy.NFTables, rules: "nft table " + nftTable, services: "services",
	cluster: "service-", local: "local-", external: "external-", firewall: "firewall-", endpoint: "endpoint-", marks: "sets the mark for masquerade",
}

// ipvsDialect is pkg/proxy/ipvs/proxier.go. It has no chains of single Services.
var ipvsDialect = dialect{
	mode: kubeproxy.IPVS, rules: "the virtual servers of IPVS, table nat", services: "KUBE-SERVICES", marks: "jumps to KUBE-MARK-MASQ",
}

// ipvsTable is the name of the table of virtual servers where they are kube-proxy's.
const ipvsTable = "kube-proxy"

// isIPVS tells whether a node is judged as one in ipvs mode.
func (n *node) isIPVS() bool { return n.dialect == &ipvsDialect }

// isIPVSKube tells whether a table is that of kube-proxy's virtual servers.
func isIPVSKube(t *netfilter.Table) bool {
	return t.Backend == netfilter.BackendIPVS && t.Name == ipvsTable
}

// dialectOf returns the dialect of a mode; iptables' for one that is not known.
func dialectOf(mode string) *dialect {
	for _, d := range []*dialect{&nftDialect, &ipvsDialect} {
		if d.mode == mode {
			return d
		}
	}
	return &iptablesDialect
}

// isNFT tells whether a node is judged as one in nftables mode.
func (n *node) isNFT() bool { return n.dialect == &nftDialect }

// isNFTKube tells whether a table is that of kube-proxy's nftables mode.
func isNFTKube(t *netfilter.Table) bool {
	return t.Backend == netfilter.BackendNative && t.Name == nftTable && t.Family != netfilter.Inet
}

// baseChain names the base chain that leads to the chain of all Services, for people.
func (d *dialect) baseChain(h netfilter.Hook) string {
	if d == &nftDialect {
		return "nft " + nftTable + " nat-" + strings.ToLower(h.String())
	}
	return "nat " + h.String()
}

// home tells whether kube-proxy's chains of Services are in a table.
func (d *dialect) home(t *netfilter.Table) bool {
	if d == &nftDialect {
		return isNFTKube(t)
	}
	return t.Name == "nat" && t.Backend != netfilter.BackendNative && t.Backend != netfilter.BackendIPVS
}

// holds tells whether the kernel has kube-proxy's rules of a mode. The chain of all Services has one name in iptables and in ipvs mode;
// in ipvs mode it leads to a chain that iptables mode has not.
func (n *node) holds(d *dialect) bool {
	for _, t := range n.rules.Tables {
		c := t.Chain(d.services)
		if !d.home(t) || c == nil || len(c.Rules) == 0 {
			continue
		}
		byIPVS := slices.Contains(slices.Collect(c.LeadsTo()), ipvsNodePorts)
		if d == &nftDialect || byIPVS == (d == &ipvsDialect) {
			return true
		}
	}
	return false
}

// ipvsNodePorts is the chain of NodePorts in ipvs mode.
const ipvsNodePorts = "KUBE-NODE-PORT"

// held are the modes whose rules the kernel has.
func (n *node) held() []*dialect {
	var out []*dialect
	for _, d := range []*dialect{&iptablesDialect, &nftDialect, &ipvsDialect} {
		if n.holds(d) {
			out = append(out, d)
		}
	}
	return out
}

// ofService tells whether a chain belongs to a Service port: in nftables mode these have a "/" in their names, and no other has
// (isServiceChainName).
func (d *dialect) ofService(c *netfilter.Chain, prefix string) bool {
	return strings.HasPrefix(c.Name, prefix) && (d != &nftDialect || strings.Contains(c.Name, "/"))
}

// chainName names a chain for people: "nat KUBE-SVC-…", "nft kube-proxy service-…".
func chainName(c *netfilter.Chain) string {
	if c.Table.Backend == netfilter.BackendNative {
		return "nft " + c.Table.Name + " " + c.Name
	}
	return c.Table.Name + " " + c.Name
}
