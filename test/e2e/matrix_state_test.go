// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

// emptyTables makes the tables that faults put rules into: they stay when the rules are gone.
const emptyTables = `
for table in raw mangle nat filter; do
	for chain in PREROUTING INPUT FORWARD OUTPUT POSTROUTING; do
		for p in $IPT $IP6T; do
			if $p -w 5 -t $table -A $chain -m comment --comment fault 2>/dev/null; then
				$p -w 5 -t $table -D $chain -m comment --comment fault
			fi
		done # of the chains
	done # of the commands
done # of the tables
`

// stateScript prints what faults change, without what changes by itself, and without iptables-save's warnings, which
// come between the rules.
const stateScript = `
for p in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do
	$p-save 2>/dev/null | sed -e '/^#/d' -e 's/\[[0-9:]*\]//' -e "s/^/$p /"
done
nft -s list ruleset
ipset save
for family in -4 -6; do
	ip $family rule
	ip $family -d route show table all | sed -e 's/ expires [0-9a-z]*//' -e '/ cache/d' | sort
done
ip nexthop
ip neigh show nud permanent
ip -d link | sed -e 's/promiscuity.*minmtu//' -e 's/[a-z_]*timer *[0-9.]*//g' -e 's/state [A-Z]*//' \
	-e 's/ qlen [0-9]*//' -e 's/ *$//'
ip addr | grep inet
bridge fdb | grep -E 'static|permanent' | sort
tc qdisc
for device in $(ls /sys/class/net); do
	tc filter show dev "$device" ingress 2>/dev/null || true
	tc filter show dev "$device" egress 2>/dev/null || true
done
ip xfrm policy
cd /proc/sys/net
grep . ipv4/ip_forward ipv4/fib_multipath_hash_policy \
	ipv4/conf/*/{forwarding,rp_filter,route_localnet,accept_local,arp_ignore,proxy_arp} \
	ipv6/conf/*/{forwarding,force_forwarding} bridge/*
`

func (s *scene) state(t *testing.T) string {
	t.Helper()
	out, err := s.run(t, stateScript, false)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

// settle waits until the node is as before.
func (s *scene) settle(t *testing.T, before string) {
	t.Helper()
	var differs []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if differs = (nodeState{"": s.state(t)}).differs(nodeState{"": before}); len(differs) == 0 {
			return
		}
	}
	t.Errorf("the repair leaves:\n%s", strings.Join(differs, "\n"))
}
