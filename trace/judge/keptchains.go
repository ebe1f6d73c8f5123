// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// keptChains is in which versions a kube-proxy that starts does not write the chain of an endpoint in nftables mode
// where there is one of its name, whatever it holds (pkg/proxy/nftables/proxier.go, epChainSkipUpdate).
var keptChains = lifetime{since: 33, fixed: 36}

// keptChain is what repairs the chain of an endpoint that an issue is about, and no other, where a restart of
// kube-proxy does not; nothing elsewhere. known is false where the version, and with it whether a restart does, is not
// known.
func (n *node) keptChain(i *issue) (r report.Remedy, known bool) {
	c := i.where.Chain
	if c == nil || c.Table.Backend != netfilter.BackendNative ||
		!strings.HasPrefix(c.Name, kubeproxy.NFTPrefixEndpoint) {
		return report.Remedy{}, false
	}
	from := n.values.sources[kubeproxy.SettingVersion].source
	known = from == kubeproxy.FromMetrics || from == kubeproxy.FromImage
	if known && !keptChains.includes(n.config.Version) {
		return report.Remedy{}, false
	}
	const keeps = "kube-proxy 1.33 to 1.35 keeps the chains of endpoints that it finds when it starts, so that a " +
		"restart does not write this one"
	line := rewritten(c)
	switch {
	case line == "":
		return report.Remedy{Text: "delete the pod of the endpoint, so that its controller makes one with another " +
			"address and chain: " + keeps}, known
	case known:
		return report.Remedy{
			Text:     "write the endpoint's chain as kube-proxy does, which touches nothing else: " + keeps,
			Commands: []report.Command{{Line: line, Node: n.Name}},
		}, true
	}
	return report.Remedy{Text: keeps, Commands: []report.Command{{
		Line: line, Node: n.Name, When: "where kube-proxy is 1.33 to 1.35",
	}}}, false
}

// rewritten is the command that makes the chain of an endpoint what kube-proxy writes, in one transaction
// (pkg/proxy/nftables/proxier.go, writeServiceToNFTables…); "" where its name does not tell the endpoint.
func rewritten(c *netfilter.Chain) string {
	_, of, _ := strings.Cut(strings.TrimPrefix(c.Name, kubeproxy.NFTPrefixEndpoint), "-")
	name, at, _ := strings.Cut(of, "__")
	host, portText, _ := strings.Cut(at, "/")
	family, part := "ip", strings.Split(name, "/")
	if c.Table.Family == netfilter.IPv6 {
		family, host = "ip6", strings.ReplaceAll(host, ".", ":")
	}
	a, err := netip.ParseAddr(host)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil || len(part) != 4 { //nolint:mnd // namespace/name/protocol/port
		return ""
	}
	to := netip.AddrPortFrom(a, uint16(port))
	chain, affinity := kubeproxy.NFTEndpointNames(types.NamespacedName{Namespace: part[0], Name: part[1]}, part[3],
		corev1.Protocol(strings.ToUpper(part[2])), to)
	if chain != c.Name || !plainName(c.Name) {
		return ""
	}
	in := family + " " + c.Table.Name + " " + c.Name
	script := "flush chain " + in
	add := func(format string, args ...any) { script += "; add rule " + in + " " + fmt.Sprintf(format, args...) }
	marks := func(x *netfilter.Chain) bool { return x.Name == kubeproxy.NFTChainMarkMasq }
	if slices.ContainsFunc(c.Table.Chains, marks) { // until 1.35; later the masquerading chain has a set for it
		add("%s saddr %s jump %s", family, a, kubeproxy.NFTChainMarkMasq)
	}
	if c.Table.Set(affinity) != nil {
		add("update @%s { %s saddr }", affinity, family)
	}
	add("meta l4proto %s dnat to %s", part[2], to)
	return report.ShellLine("nft", script)
}

// plainName reports whether nft takes a name without quotes.
func plainName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}
