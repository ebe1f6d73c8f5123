// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// What stops packets on one way only may stop them, where that of another way was not read; and what a check has for
// all paths stays as it is.
func TestWhatStopsPacketsOnOneWayIsNotCertainWhereAnotherWasNotRead(t *testing.T) {
	end := netfilter.Outcome{
		Packet: netfilter.Packet{Out: "eth0"}, Hops: []netfilter.Hop{{Out: "eth1"}, {Out: "eth2"}},
	}
	off := map[string]*obstacle{
		"eth0": {unread: "forwarding"}, "eth1": stoppedBy("eth1 is off"), "eth2": stoppedBy("eth2 is off"),
	}
	got := byEveryHop(&end, func(end *netfilter.Outcome) *obstacle { return off[end.Packet.Out] })
	if want := []string{"eth1 is off", "eth2 is off"}; !slices.Equal(got.evidence, want) || got.certain() {
		t.Errorf("%+v, want %q on some of the ways", got, want)
	}
	for dev, o := range off {
		if o.may {
			t.Errorf("what stops packets at %s has become uncertain for others", dev)
		}
	}
}
