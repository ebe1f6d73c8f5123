// SPDX-License-Identifier: Apache-2.0

package program

import "time"

// A plan ends at its time also where the helper that holds it is gone: the kernel takes no new connections then, by
// timeouts of nftables or the match time of iptables. Where it cannot, a process that outlives the helper undoes the
// plan (see expirer_linux.go).

// lastPacket is for how long after the time of a plan packets are masqueraded and let through: one that was translated
// in time may still be on its path through the hooks.
const lastPacket = 5 * time.Second

// lastPackets is the time at which the last packets of a plan have left the node; zero for a plan without a time.
func lastPackets(until time.Time) time.Time {
	if until.IsZero() {
		return until
	}
	return until.Add(lastPacket)
}

// remaining is how long a record has still to go, in the kernel's resolution of milliseconds. It is never 0, which the
// kernel takes for no timeout.
func remaining(r *Record) time.Duration { return max(time.Until(r.Expires), time.Millisecond) }

// end has the rest of a chain pass packets over from a time on; zero: never. The match has a resolution of seconds, and
// compares with UTC (net/netfilter/xt_time.c): the second is rounded up.
func (t *iptTable) end(chain string, at time.Time) {
	if at.IsZero() {
		return
	}
	t.add(chain, "-m time --datestart %s -j RETURN", at.Add(time.Second-1).UTC().Format("2006-01-02T15:04:05"))
}

// noMoreTimes is when rules with the match time are no longer written: its last date is 2038-01-19T03:14:07 (INT_MAX in
// extensions/libxt_time.c), and a rule that has none of its own ends then.
var noMoreTimes = time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)

// fits tells whether rules with the match time can express a record's time.
func fits(r *Record) bool { return r.Expires.Before(noMoreTimes) }
