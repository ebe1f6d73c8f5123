// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// nftTable is a table kube-proxy as nft -j lists it: chains ("NAME" or "NAME HOOK PRIORITY"), with the chains that they
// jump to behind a colon, and names of sets.
func nftTable(chains []string, sets ...string) []byte {
	objects := []string{`{"table":{"family":"ip","name":"kube-proxy","handle":1}}`}
	var rules []string
	for _, c := range chains {
		head, jumps, _ := strings.Cut(c, ":")
		words := strings.Fields(head)
		base := ""
		if len(words) > 1 {
			base = fmt.Sprintf(`,"type":"filter","hook":%q,"prio":%s,"policy":"accept"`, words[1], words[2])
		}
		objects = append(objects, fmt.Sprintf(`{"chain":{"family":"ip","table":"kube-proxy","name":%q,"handle":1%s}}`,
			words[0], base))
		for to := range strings.FieldsSeq(jumps) {
			rules = append(rules, fmt.Sprintf(
				`{"rule":{"family":"ip","table":"kube-proxy","chain":%q,"handle":1,"expr":[{"jump":{"target":%q}}]}}`,
				words[0], to))
		}
	}
	for _, s := range sets {
		objects = append(objects, fmt.Sprintf(
			`{"set":{"family":"ip","table":"kube-proxy","name":%q,"type":"ipv4_addr","handle":1}}`, s))
	}
	return []byte(`{"nftables":[` + strings.Join(append(objects, rules...), ",") + `]}`)
}

// The layout is read from what the rules do, not from the names of the base chains: filter-output is before nat-output
// until 1.32, and behind it from 1.34 on.
func TestLayout(t *testing.T) {
	const external = "-A KUBE-IPVS-FILTER -m set --match-set KUBE-EXTERNAL-IP dst,dst -j RETURN\n"
	ipvs := func(family, rules string) map[string][]byte {
		return map[string][]byte{
			family: []byte("*filter\n:INPUT ACCEPT [0:0]\n:KUBE-IPVS-FILTER - [0:0]\n" + rules + "COMMIT\n"),
		}
	}
	nft := func(sets []string, chains ...string) map[string][]byte {
		return map[string][]byte{snapshot.NFTFile: nftTable(chains, sets...)}
	}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  kubeproxy.Layout
	}{
		{"nothing", nil, kubeproxy.Layout{}},
		{"another's table", nft(nil, "filter-output output -110:check", "check"), kubeproxy.Layout{}},
		{
			"nftables mode of 1.29",
			nft(nil, "filter-output output -101:endpoints-check", "endpoints-check",
				"endpoint-ABC-shop/web/tcp/__10.244.1.5/80:mark-for-masquerade", "mark-for-masquerade"),
			kubeproxy.Layout{NFTFilter: kubeproxy.NFTFilterAlpha, NFTHairpin: kubeproxy.NFTHairpinRules},
		},
		{
			"of 1.32, without an endpoint",
			nft(nil, "filter-output output -110:service-endpoints-check", "filter-output-post-dnat output -90:cluster-ips-check",
				"service-endpoints-check", "cluster-ips-check"),
			kubeproxy.Layout{NFTFilter: kubeproxy.NFTFilterPreDNAT},
		},
		{
			"of 1.37",
			nft([]string{"hairpin-connections"}, "filter-output-pre-dnat output -110:firewall-check",
				"filter-output output 0:service-endpoints-check cluster-ips-check", "firewall-check",
				"service-endpoints-check", "cluster-ips-check"),
			kubeproxy.Layout{NFTFilter: kubeproxy.NFTFilterPostDNAT, NFTHairpin: kubeproxy.NFTHairpinSet},
		},
		{
			"ipvs mode of 1.28.0", ipvs(snapshot.IPTablesFile, external),
			kubeproxy.Layout{IPVSExternalIPs: kubeproxy.IPVSExternalIPsRefused},
		},
		{
			"of 1.28.15", ipvs(snapshot.IPTablesFile, external+strings.Replace(external, "-IP ", "-IP-LOCAL ", 1)),
			kubeproxy.Layout{IPVSExternalIPs: kubeproxy.IPVSExternalIPsPass},
		},
		{
			"of 1.28.15, IPv6", ipvs(snapshot.IP6TablesFile,
				strings.Replace(external, "KUBE-EXTERNAL-IP ", kubeproxy.IPVSSetName("KUBE-EXTERNAL-IP-LOCAL", true)+" ", 1)),
			kubeproxy.Layout{IPVSExternalIPs: kubeproxy.IPVSExternalIPsPass},
		},
	} {
		s, err := Load(snapshot.NewNode("node1", c.files))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := s.Layout(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
