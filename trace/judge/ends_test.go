// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// TestEveryWayIsAskedOfAnEndThatAWalkReplaces: a check may walk, and the walk's outcomes take the place of those that
// the ends are of.
func TestEveryWayIsAskedOfAnEndThatAWalkReplaces(t *testing.T) {
	list := []netfilter.Outcome{{
		Packet: netfilter.Packet{Out: "eth0"}, Hops: []netfilter.Hop{{Out: "eth1"}, {Out: "eth2"}},
	}}
	var asked []string
	got := byEveryHop(&list[0], func(end *netfilter.Outcome) obstacle {
		asked = append(asked, end.Packet.Out)
		list[0] = netfilter.Outcome{Packet: netfilter.Packet{Out: "of another walk"}}
		if end.Packet.Out == "eth1" {
			return obstacle{}
		}
		return stoppedBy(end.Packet.Out + " is off")
	})
	if want := []string{"eth0", "eth1", "eth2"}; !slices.Equal(asked, want) {
		t.Errorf("asked of %q, want %q", asked, want)
	}
	if want := []string{"eth0 is off", "eth2 is off"}; !slices.Equal(got.evidence, want) || !got.may {
		t.Errorf("%+v, want %q on some of the ways", got, want)
	}
}
