// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// TestALineThatIsNotUnderstoodMakesItsTableUncertain: wherever it stands in its table, nothing is claimed of that
// table's chains; of another table only where the line is outside of all.
func TestALineThatIsNotUnderstoodMakesItsTableUncertain(t *testing.T) {
	lines := []string{
		"*filter", ":INPUT ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", ":mine - [0:0]",
		"-A FORWARD -p udp -j mine", "-A mine -j REJECT --reject-with icmp-port-unreachable", "COMMIT",
		"*nat", ":PREROUTING ACCEPT [0:0]", ":INPUT ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", ":POSTROUTING ACCEPT [0:0]",
		"COMMIT",
	}
	for _, strange := range []string{
		"-I FORWARD 1 -j DROP", "[0:0] -I FORWARD -j DROP", "--append FORWARD -j DROP", "-F", "-X mine",
		"-D FORWARD -p udp -j mine", "-AFORWARD -j DROP", "-E mine yours", "hello world", ":hello",
	} {
		for at := range len(lines) + 1 {
			text := strings.Join(lines[:at], "\n") + "\n" + strange + "\n" + strings.Join(lines[at:], "\n") + "\n"
			d, err := Read([]byte(text), netfilter.IPv4, netfilter.BackendLegacy)
			if err != nil {
				t.Fatalf("%q at %d: %v", strange, at, err)
			}
			outside := at == 0 || at == 8 || at == len(lines)
			for _, table := range d.Tables {
				within := at > 0 && at < 8 && table.Name == "filter" || at > 8 && at < len(lines) && table.Name == "nat"
				want := within || outside && strange != "hello world"
				for _, c := range table.Chains {
					if got := strings.Contains(c.Unread, strange); c.Base != nil && got != want {
						t.Errorf("%q before line %d: %s %s: unread is %t (%s), want %t", strange, at+1, table.Name, c.Name, got, c.Unread,
							want)
					}
				}
			}
		}
	}
}
