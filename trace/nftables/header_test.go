// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// What opens a connection of TCP: its length, its options, its TTL and its DSCP are in bounds. Each rule drops it.
func TestHeadersOfASYN(t *testing.T) {
	const sent, dropped, both = "100% sent", "100% dropped", "100% dropped?, 100% sent?"
	for _, c := range []struct{ name, op, left, right, want string }{
		{
			"no packet is that short", "<", `{"meta":{"key":"length"}}`,
			`40`, sent,
		},
		{
			"what opens a connection is that short", "<=", `{"meta":{"key":"length"}}`,
			`80`, dropped,
		},
		{
			"some are that short", "<", `{"payload":{"protocol":"ip","field":"length"}}`,
			`60`, both,
		},
		{
			"nobody sends such a TTL", "<", `{"payload":{"protocol":"ip","field":"ttl"}}`,
			`5`, sent,
		},
		{
			"some have that TTL", ">=", `{"payload":{"protocol":"ip","field":"ttl"}}`,
			`64`, both,
		},
		{
			"it is no fragment", "!=", `{"&":[{"payload":{"protocol":"ip","field":"frag-off"}},8191]}`,
			`0`, sent,
		},
		{
			"whether it may be cut", "!=", `{"&":[{"payload":{"protocol":"ip","field":"frag-off"}},16384]}`,
			`0`, both,
		},
		{
			"its segments are not that small", "==", `{"tcp option":{"name":"maxseg","field":"size"}}`,
			`{"range":[1,535]}`, sent,
		},
		{
			"its header is not that short", "<", `{"payload":{"protocol":"tcp","field":"doff"}}`,
			`5`, sent,
		},
		{
			"its DSCP is another", "==", `{"payload":{"protocol":"ip","field":"dscp"}}`,
			`"ef"`, sent,
		},
		{
			"its DSCP is that", "==", `{"payload":{"protocol":"ip","field":"dscp"}}`,
			`"cs0"`, dropped,
		},
		{
			"nothing expected it", "==", `{"ct":{"key":"helper"}}`,
			`"ftp"`, sent,
		},
		{
			"one reading of a mask", "==", `{"&":[{"payload":{"protocol":"tcp","field":"flags"}},["fin","syn"]]}`,
			`["fin","syn"]`, sent,
		},
		{
			"a mask of a SYN", "==", `{"&":[{"payload":{"protocol":"tcp","field":"flags"}},["fin","syn","rst","ack"]]}`,
			`"syn"`, dropped,
		},
	} {
		rs := ruleset(t, "ip", "filter", "forward", 0, "",
			`{"match":{"op":"`+c.op+`","left":`+c.left+`,"right":`+c.right+`}},{"drop":null}`)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
