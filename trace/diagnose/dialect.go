// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
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
	mode: expect.NFTables, rules: "nft table " + nftTable, services: "services",
	cluster: "service-", local: "local-", external: "external-", firewall: "firewall-", endpoint: "endpoint-", marks: "sets the mark for masquerade",
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
	return t.Name == "nat"
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
