// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func TestSetContents(t *testing.T) {
	rs := ruleset(t, "ip", "filter", "forward", 0, `{"map":{IN,"name":"m","type":["ipv4_addr","inet_proto","inet_service"],
		"map":"verdict","elem":[
		[{"elem":{"val":{"concat":["10.96.0.1","udp",53]},"comment":"x"}},{"goto":{"target":"a"}}],
		[{"concat":["10.96.0.2","tcp",80]},{"drop":null}]]}},
		{"set":{IN,"name":"s","type":"ipv4_addr","flags":["interval"],"elem":[{"prefix":{"addr":"10.0.0.0","len":8}},
		{"elem":{"val":"10.96.0.1","timeout":60,"expires":5}}]}}`)
	var got []netfilter.SetElement
	rs.Tables[0].Set("m").Each(func(e netfilter.SetElement) { got = append(got, e) })
	rs.Tables[0].Set("s").Each(func(e netfilter.SetElement) { got = append(got, e) })
	a := netip.MustParseAddr
	want := []netfilter.SetElement{
		{Addr: a("10.96.0.1"), Proto: netfilter.UDP, Port: 53, Kind: netfilter.Goto, Chain: "a"},
		{Addr: a("10.96.0.2"), Proto: netfilter.TCP, Port: 80, Kind: netfilter.Drop},
		{},
		{Addr: a("10.96.0.1")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if rs.Tables[0].Set("none") != nil {
		t.Error("there is a set that was not declared")
	}
}

func BenchmarkLargeMap(b *testing.B) {
	for _, n := range []int{20, 20000} {
		var elems []string
		for i := range n {
			elems = append(elems, fmt.Sprintf(`[{"concat":["10.%d.%d.%d","tcp",80]},{"drop":null}]`, 100+i/65536,
				i/256%256, i%256))
		}
		rs := ruleset(b, "ip", "filter", "forward", 0,
			`{"map":{IN,"name":"m","type":["ipv4_addr","inet_proto","inet_service"],"map":"verdict","elem":[`+strings.Join(elems,
				",")+`]}}`,
			`{"vmap":{"key":{"concat":[`+daddr+`,`+l4+`,`+thDport+`]},"data":"@m"}}`)
		w := netfilter.NewWalker(rs, smallHost(b), nil)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				w.Walk(starts[0], netfilter.Options{})
			}
		})
	}
}
