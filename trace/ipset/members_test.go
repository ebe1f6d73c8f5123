// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"slices"
	"testing"
)

func TestMembers(t *testing.T) {
	for _, x := range []struct {
		name, text string
		want       []string
	}{
		{
			"save",
			"create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1\n" +
				"add KUBE-CLUSTER-IP 10.96.0.1,tcp:443\n" +
				"create ban hash:net family inet6 timeout 600 counters\n" +
				"add ban fd00::/64 timeout 42 packets 7 bytes 420 nomatch comment \"by hand\"\n",
			[]string{
				"KUBE-CLUSTER-IP||hash:ip,port family inet", "KUBE-CLUSTER-IP|10.96.0.1,tcp:443|10.96.0.1,tcp:443",
				"ban||hash:net family inet6", "ban|fd00::/64|fd00::/64 nomatch",
			},
		},
		{
			"list",
			"Name: ports\nType: bitmap:port\nRevision: 3\nHeader: range 0-65535\nSize in memory: 8\nReferences: 1\n" +
				"Number of entries: 2\nMembers:\n30080\n30081 timeout 5\n",
			[]string{"ports||bitmap:port", "ports|30080|30080", "ports|30081|30081"},
		},
		{"nothing", "", nil},
	} {
		var got []string
		Members([]byte(x.text), func(set, member, text string) { got = append(got, set+"|"+member+"|"+text) })
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}
