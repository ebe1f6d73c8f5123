// SPDX-License-Identifier: Apache-2.0

package netfilter_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/netip"
	"os"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// BenchmarkWalk walks packets of a pod to each of 5,000 Services, on a node with a captured set of kube-proxy's rules.
func BenchmarkWalk(b *testing.B) {
	const node = "../../testdata/snapshots/scale-iptables/nodes/node1/"
	file, err := os.Open(node + "iptables-save.txt.gz")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		b.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		b.Fatal(err)
	}
	tables, err := iptables.Parse(bytes.Clone(text), netfilter.IPv4, netfilter.BackendNFT)
	if err != nil {
		b.Fatal(err)
	}
	rs := &netfilter.Ruleset{Tables: tables}
	rs.Link()
	n, errs := host.Parse(host.Files{
		Addr: []byte(`[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
			{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,"scope":"global"}]}]`),
		Route4: []byte(`[{"dst":"default","gateway":"10.0.0.254","dev":"eth0"},
			{"dst":"10.0.0.0/24","dev":"eth0","prefsrc":"10.0.0.1"}]`),
	})
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	var starts []netfilter.Start
	for _, t := range tables {
		if c := t.Chain("KUBE-SERVICES"); c != nil && t.Name == "nat" {
			for _, r := range c.Rules {
				if r.Key.Dst.IsValid() {
					starts = append(starts, netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
						Family: netfilter.IPv4, Proto: r.Key.Proto,
						Src: netip.MustParseAddr("10.244.0.5"), Dst: r.Key.Dst, DstPort: r.Key.DstPort, In: "cni0",
					}})
				}
			}
		}
	}
	for name, opt := range map[string]netfilter.Options{"plain": {}, "steps": {Steps: true}} {
		b.Run(name, func(b *testing.B) {
			w := netfilter.NewWalker(rs, n, nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.Walk(starts[i%len(starts)], opt)
			}
		})
	}
}
