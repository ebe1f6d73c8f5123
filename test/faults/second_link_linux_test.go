// SPDX-License-Identifier: Apache-2.0

package faults

// secondLink connects the node with that of the remote endpoint once more, and routes by table 100 there.
const secondLink = `ip link add d0 type veth peer name d1 netns $RPID; ip link set d0 up; ip addr add 10.81.0.1/24 dev d0
in_remote ip link set d1 up; in_remote ip addr add 10.81.0.2/24 dev d1
ip route add $RCIDR via 10.81.0.2 dev d0 table 100
ip rule add pref 100 fwmark 0x10/0x10 lookup 100
filter() { for dev in all default eth0 d0; do sysctl -qw net.ipv4.conf.$dev.rp_filter=$1; done; }
# unmarked: what the node sends is not translated
unmarked() { iptables-nft -t nat -I POSTROUTING -m addrtype --src-type LOCAL -j ACCEPT; }
`

// secondLinkFaults are those of packets that rules send by another interface than the routes do.
func secondLinkFaults() []fault {
	marked := func(chain, match string) string {
		return secondLink + `iptables-nft -t mangle -I ` + chain + ` ` + match + ` -j MARK --set-xmark 0x10/0x10
`
	}
	return []fault{
		{
			name: "the node's packets are marked for another interface, which filters answers", from: "node",
			make:  marked("OUTPUT", "-d $S") + `filter 1`,
			fails: some, named: `rp_filter|ReversePathFilter`,
		},
		{
			name: "the node's packets are marked for another interface, whose filter is loose", from: "node",
			make:  marked("OUTPUT", "-d $S") + `filter 2`,
			fails: none,
		},
		{
			name: "the node's packets go untranslated by another interface, answers by the routes", from: "node",
			make:  marked("OUTPUT", "-d $S") + `filter 1; unmarked`,
			fails: none, unknownToo: true,
		},
		{
			name: "the node's packets go untranslated by another interface, answers too", from: "node",
			make:  marked("OUTPUT", "-d $S") + `filter 1; unmarked; in_remote ip route add 10.79.0.11/32 via 10.81.0.1 dev d1`,
			fails: some, named: `rp_filter|ReversePathFilter`,
		},
		{
			name: "the node's packets go untranslated, and answers come back", from: "node",
			make:  secondLink + `filter 1; unmarked`,
			fails: none, unknownToo: true,
		},
		{
			name: "the node's packets are marked for another interface, and answers are filtered by their mark", from: "node",
			make:  marked("OUTPUT", "-d $S") + `filter 1; sysctl -qw net.ipv4.conf.d0.src_valid_mark=1`,
			fails: some, named: `rp_filter|ReversePathFilter`, mismatch: true,
		},
		{
			name: "the node's connections are marked for another interface, and answers have the mark again", from: "node",
			make: secondLink + `filter 1; sysctl -qw net.ipv4.conf.d0.src_valid_mark=1
				iptables-nft -t mangle -A OUTPUT -d $S -j CONNMARK --set-xmark 0x10/0x10
				iptables-nft -t mangle -A OUTPUT -j CONNMARK --restore-mark --nfmask 0x10 --ctmask 0x10
				iptables-nft -t mangle -A PREROUTING -i d0 -j CONNMARK --restore-mark --nfmask 0x10 --ctmask 0x10`,
			fails: none,
		},
		{
			name: "the node's connections are marked for another interface, and answers have no mark", from: "node",
			make: secondLink + `filter 1; sysctl -qw net.ipv4.conf.d0.src_valid_mark=1
				iptables-nft -t mangle -A OUTPUT -d $S -j CONNMARK --set-xmark 0x10/0x10
				iptables-nft -t mangle -A OUTPUT -j CONNMARK --restore-mark --nfmask 0x10 --ctmask 0x10`,
			fails: some, named: `rp_filter|ReversePathFilter`, mismatch: true,
		},
		{
			name: "the node's packets have the address of another interface, which filters answers", from: "node",
			make: marked("OUTPUT", "-d $S") + `filter 1; unmarked
				ip route add $S/32 via 10.81.0.2 dev d0 src 10.81.0.1`,
			fails: some, named: `Shadowed.*POSTROUTING`,
		},
		{
			name:  "a pod's packets are marked for another interface, which filters answers",
			make:  marked("PREROUTING", "-s $C -d $S") + `filter 1; in_remote ip route add $C/32 via 10.81.0.1`,
			fails: some, named: `rp_filter|ReversePathFilter`,
		},
		{
			name: "a pod's packets are marked for another interface, which does not forward answers",
			make: marked("PREROUTING", "-s $C -d $S") + `filter 0; in_remote ip route add $C/32 via 10.81.0.1
				sysctl -qw net.ipv4.conf.d0.forwarding=0`,
			fails: some, named: `forwarding`,
		},
		{
			name: "the node's packets are marked for another interface in nftables, which filters answers", from: "node",
			make:  secondLink + `nft 'add table ip m; add chain ip m o { type route hook output priority -150; }; add rule ip m o ip daddr '$S' meta mark set 0x10'; filter 1`,
			fails: some, named: `rp_filter|ReversePathFilter`,
		},
		{
			name: "the node's packets are marked for another interface, and answers for the routes back", from: "node",
			make: marked("OUTPUT", "-d $S") + `filter 1; sysctl -qw net.ipv4.conf.d0.src_valid_mark=1
				iptables-nft -t mangle -I PREROUTING -i d0 -j MARK --set-xmark 0x10/0x10`,
			fails: none,
		},
		{
			name:  "the node's packets are marked behind the translation, for another interface that filters answers",
			from:  "node",
			make:  marked("OUTPUT", "-d $S") + `iptables-nft -t mangle -F OUTPUT; hook m ip output -90 "ip daddr $R meta mark set 0x10"; filter 1`,
			fails: none, unknownToo: true,
		},
	}
}
