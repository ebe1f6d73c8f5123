// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// otherMode is what the mode with other names is called.
const otherMode = "acmetables"

// otherChains are the names that it gives to chains which belong to no single Service.
var otherChains = map[string]string{
	kubeproxy.ChainServices: "ACME-ALL", kubeproxy.ChainNodePorts: "ACME-BY-PORT",
	kubeproxy.ChainExternalServices: "ACME-OUTER", kubeproxy.ChainProxyFirewall: "ACME-ALLOWED",
	kubeproxy.ChainMarkMasq: "ACME-SNAT-LATER", kubeproxy.ChainPostrouting: "ACME-LEAVES",
	kubeproxy.ChainForward: "ACME-THROUGH",
}

// otherPrefixes begin its names of the chains of one Service port. Hashes are in lower case.
var otherPrefixes = map[string]string{
	kubeproxy.PrefixCluster: "ACME-P-", kubeproxy.PrefixLocal: "ACME-PL-", kubeproxy.PrefixExternal: "ACME-IN-",
	kubeproxy.PrefixFirewall: "ACME-R-", kubeproxy.PrefixEndpoint: "ACME-E-",
}

var (
	kubeNames  = regexp.MustCompile(`(KUBE-(?:SVC|SVL|EXT|FW|SEP)-)([A-Z2-7]{16})?|KUBE-[A-Z]*(?:-[A-Z]+)*`)
	otherNames = regexp.MustCompile(`(ACME-(?:P|PL|IN|R|E)-)([a-z2-7]{16})?|ACME-[A-Z]*(?:-[A-Z]+)*`)
)

// inverse is a table read the other way round.
func inverse(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[v] = k
	}
	return out
}

// rename gives other names to the chains of iptables mode in a text.
func rename(text string) string {
	return renamed(kubeNames, text, otherPrefixes, otherChains, "KUBE-", "ACME-", strings.ToLower)
}

// renameBack undoes rename, and calls the mode iptables again.
func renameBack(text string) string {
	text = renamed(otherNames, text, inverse(otherPrefixes), inverse(otherChains), "ACME-", "KUBE-", strings.ToUpper)
	return strings.ReplaceAll(text, otherMode, kubeproxy.IPTables)
}

func renamed(
	names *regexp.Regexp, text string, prefixes, chains map[string]string, from, to string, hash func(string) string,
) string {
	return names.ReplaceAllStringFunc(text, func(name string) string {
		if m := names.FindStringSubmatch(name); m[1] != "" {
			return prefixes[m[1]] + hash(m[2])
		}
		if other, ok := chains[name]; ok {
			return other
		}
		return strings.Replace(name, from, to, 1)
	})
}

// modeOfOtherNames is a mode that differs from iptables mode in its names alone: all that registers it is its place in
// modes.
func modeOfOtherNames() mode {
	of := kubeproxy.IPTablesNames
	names := of
	v := reflect.ValueOf(&names).Elem()
	for _, f := range v.Fields() {
		if f.Kind() == reflect.String {
			f.SetString(rename(f.String()))
		}
	}
	names.OfPort = func(svc types.NamespacedName, port string, protocol corev1.Protocol) kubeproxy.Chains {
		c := of.OfPort(svc, port, protocol)
		return kubeproxy.Chains{
			Cluster: rename(c.Cluster), Local: rename(c.Local), External: rename(c.External), Firewall: rename(c.Firewall),
		}
	}
	names.OfEndpoint = func(
		svc types.NamespacedName, port string, protocol corev1.Protocol, endpoint netip.AddrPort,
	) []string {
		out := of.OfEndpoint(svc, port, protocol, endpoint)
		for i := range out {
			out[i] = rename(out[i])
		}
		return out
	}
	return &iptablesMode{otherMode, chainNames{&names}}
}

// rename makes of a node in iptables mode one in the mode of other names.
func (w *capturedNode) rename() {
	for name, data := range w.files {
		text := rename(string(data))
		switch name {
		case snapshot.ProxyModeFile:
			text = strings.Replace(text, kubeproxy.IPTables, otherMode, 1)
		case snapshot.ConfigzFile:
			text = strings.Replace(text, `"mode":"`+kubeproxy.IPTables, `"mode":"`+otherMode, 1)
		}
		w.files[name] = []byte(text)
	}
}

// leftOfIPTables are faults in a node in another mode, in which rules of iptables mode are left.
func leftOfIPTables(t *testing.T) []fault {
	t.Helper()
	services := kubeproxy.ChainServices
	leave := func(table, top, chain, rule string) func(w *capturedNode) {
		return func(w *capturedNode) {
			w.addTable(v4, "*"+table+"\n:"+top+" ACCEPT [0:0]\n:"+chain+" - [0:0]\n-A "+top+" -j "+chain+"\n-A "+chain+" "+
				rule+"\nCOMMIT\n")
			other := map[string]string{"nat": "filter", "filter": "nat"}[table]
			w.addTable(v4, "*"+other+"\nCOMMIT\n")
		}
	}
	const reject = `-d 10.96.77.154/32 -p tcp -m comment --comment "shop/ep3 has no endpoints" -m tcp --dport 80 -j REJECT`
	return []fault{
		{
			name: "rules in nat", base: "nftables",
			do: leave("nat", "PREROUTING", services, "-d 10.96.77.154/32 -p tcp -m tcp --dport 80 -j "+kubeproxy.ChainMarkMasq),
		},
		{name: "refusals of cluster IPs", base: "nftables", do: leave("filter", "FORWARD", services, reject)},
		{
			name: "refusals of other frontends", base: "nftables",
			do: leave("filter", "FORWARD", kubeproxy.ChainExternalServices, reject),
		},
	}
}

// rangesRepeated are Services of which kube-proxy itself writes rules twice.
func rangesRepeated() fault {
	return fault{name: "a source range listed twice", do: func(w *capturedNode) {
		svc := w.service("shop/lb-ranges")
		svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, svc.Spec.LoadBalancerSourceRanges[0])
		chain := kubeproxy.ChainNames("shop/lb-ranges:https", corev1.ProtocolTCP).Firewall
		if !strings.Contains(string(w.files[v4]), chain) {
			chain = kubeproxy.ChainNames("shop/lb-ranges", corev1.ProtocolTCP).Firewall
		}
		w.edit(v4, func(l string) []string {
			if has(l, "-A "+chain, svc.Spec.LoadBalancerSourceRanges[0]) {
				return []string{l, l}
			}
			return []string{l}
		})
	}}
}

// TestAModeOfOtherNames judges faults of iptables mode in a node whose chains have other names, by a mode that is
// nothing but a table of these: the reports must be those of iptables mode, with the other names. A name that is
// written into the judgement fails here.
func TestAModeOfOtherNames(t *testing.T) {
	before := modes
	modes = append(slices.Clone(modes), modeOfOtherNames())
	t.Cleanup(func() { modes = before })
	list := slices.Concat(faults(openCaptured(t, "iptables")), leftOfIPTables(t), []fault{rangesRepeated()})
	for _, base := range []string{"iptables", "iptables-legacy", "real-2node-iptables"} {
		list = append(list, fault{name: "as captured: " + base, base: base, do: func(*capturedNode) {}})
	}
	used := map[string]bool{}
	for _, f := range list {
		base := base(f.base)
		t.Run(f.name, func(t *testing.T) {
			judged := func(change func(w *capturedNode)) string {
				w := openCaptured(t, base)
				f.do(w)
				change(w)
				r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
					Backwards: true, Matching: true, PerPathService: true, Steps: strings.HasPrefix(f.name, "as captured"),
				})
				if len(r.Paths) == 0 {
					t.Fatalf("nothing was judged: %s", r.Error)
				}
				return string(indented(t, &r))
			}
			want := judged(func(*capturedNode) {})
			got := judged((*capturedNode).rename)
			for chain := range otherChains {
				used[chain] = used[chain] || strings.Contains(got, otherChains[chain])
			}
			if at := kubeNames.FindString(got); at != "" {
				t.Errorf("the report of a node without such a name has %s", at)
			}
			firstDifference(t, want, renameBack(got))
		})
	}
	for _, chain := range slices.Sorted(maps.Keys(otherChains)) {
		if !used[chain] {
			t.Errorf("no report names %s: the test does not show whether its name is taken from the mode", chain)
		}
	}
}

func indented(t *testing.T, r *report.NodeReport) []byte {
	t.Helper()
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// firstDifference compares two texts line by line.
func firstDifference(t *testing.T, want, got string) {
	t.Helper()
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("line %d of %d:\nwant %s\ngot  %s", i+1, len(a), a[i], b[i])
			return
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d lines, want %d", len(b), len(a))
	}
}
