// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/test/isolate"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

var tools = []string{"ip", "nft", "ipset", "iptables-nft-restore", "iptables-legacy-restore", "ip6tables-nft-restore", "ip6tables-legacy-restore"}

func TestSmoke(t *testing.T) {
	if !isolate.Process(t, syscall.CLONE_NEWNET, tools...) {
		return
	}
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if out, err := run("", "ip", "-6", "route"); err == nil { t.Log(out) }
	rs := &ruleSet{tables: []*table{
		{backend: netfilter.BackendLegacy, family: "ip", name: "nat", chains: []*chain{{name: "PREROUTING", policy: "ACCEPT", rules: []string{"-p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.15:8080"}}}},
		{backend: netfilter.BackendNFT, family: "ip", name: "filter", chains: []*chain{{name: "FORWARD", policy: "ACCEPT", rules: []string{"-p udp -j REJECT"}}}},
		{backend: netfilter.BackendNative, family: "inet", name: "n", chains: []*chain{{name: "x", base: "type filter hook output priority 5;", rules: []string{"meta mark set 0x44 ct mark set 0x55", "udp dport 99 drop"}}}},
	}}
	start := time.Now()
	if err := w.load(rs); err != nil {
		t.Fatal(err)
	}
	t.Log("load", time.Since(start))
	ap := netip.MustParseAddrPort
	for _, p := range []packet{
		{6, ap("192.0.2.7:33000"), ap("10.96.0.10:80"), "eth0"},
		{17, ap("192.0.2.7:33001"), ap("10.96.0.10:80"), "eth0"},
		{17, ap("10.244.1.15:33001"), ap("10.244.1.1:80"), "pod0"},
		{17, ap("10.77.0.11:33001"), ap("10.77.0.21:80"), ""},
		{17, ap("10.77.0.11:33001"), ap("10.77.0.11:80"), ""},
		{17, ap("10.77.0.11:33001"), ap("10.77.0.11:99"), ""},
		{17, ap("10.77.0.11:33001"), ap("10.66.0.11:99"), ""},
		{6, ap("[fd00:77::11]:33001"), ap("[fd00:77::21]:99"), ""},
		{6, ap("[fd00:77::21]:33001"), ap("[fd00:244:1::21]:99"), "eth0"},
		{6, ap("[fd00:77::11]:33001"), ap("[fd00:77::11]:99"), ""},
	} {
		start := time.Now()
		a, err := w.send(p)
		t.Log(p, &a, err, len(a.events), time.Since(start))
		_ = 0
	}
}
