// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"strings"
	"syscall"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// Queues, their classes and their filters are listed by what they may lose packets by.
func TestQueuesOfTC(t *testing.T) {
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, "ip", "tc") {
		return
	}
	testutil.Run(t, "", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	for _, c := range []struct{ setup, want string }{
		{"qdisc add dev v0 root pfifo limit 7", "tc v0 egress qdisc pfifo limit 7p\n"},
		{"qdisc add dev v0 root bfifo limit 10", "tc v0 egress qdisc bfifo limit 10b\n"},
		{"qdisc add dev v0 root blackhole", "tc v0 egress qdisc blackhole\n"},
		{
			"qdisc add dev v0 root tbf rate 100mbit burst 32kb limit 300000",
			"tc v0 egress qdisc tbf rate 12500000bps burst 32",
		},
		{
			"qdisc add dev v0 root handle 1: htb; class add dev v0 parent 1: classid 1:5 htb rate 8kbit",
			"class htb 1:5 rate 1000bps ceil 1000bps\n",
		},
		{
			"qdisc add dev v0 root handle 1: htb; class add dev v0 parent 1: classid 1:5 htb rate 8kbit",
			"tc v0 egress qdisc pfifo limit 1000p\n",
		},
		{"qdisc add dev v0 root handle 1: htb direct_qlen 0", "tc v0 egress qdisc htb direct_qlen 0p\n"},
		{
			"qdisc add dev v0 root stab overhead -4 mpu 64 tsize 512 mtu 2047 linklayer ethernet pfifo limit 7",
			"tc v0 egress qdisc pfifo limit 7p overhead -4 mpu 64\n",
		},
	} {
		for line := range strings.SplitSeq(c.setup, "; ") {
			testutil.Run(t, "", strings.Fields("tc "+line)...)
		}
		got, err := readPrograms(t.Context(), &reader{})
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s: %q, %v", c.setup, got, err)
		}
		testutil.Run(t, "", "tc", "qdisc", "del", "dev", "v0", "root")
	}
	for _, line := range []string{
		"qdisc add dev v0 root handle 1: htb",
		"filter add dev v0 parent 1: protocol ip pref 5 u32 match u32 0 0 flowid 1:1",
		"filter add dev v0 parent 1: protocol ip pref 6 u32 match u32 0 0 action mirred egress redirect dev v1",
		"qdisc add dev v1 ingress",
		"filter add dev v1 parent ffff: protocol ip pref 7 u32 match u32 0 0 action mirred egress redirect dev v0",
	} {
		testutil.Run(t, "", strings.Fields("tc "+line)...)
	}
	got, err := readPrograms(t.Context(), &reader{})
	text := string(got)
	if err != nil || strings.Contains(text, "pref 5 ") ||
		!strings.Contains(text, "tc v0 egress filter parent 1:0 protocol ip pref 6 u32") ||
		!strings.Contains(text, "tc v1 ingress filter protocol ip pref 7 u32") ||
		strings.Contains(text, "tc v1 egress filter") {
		t.Errorf("%q, %v", text, err)
	}
}
