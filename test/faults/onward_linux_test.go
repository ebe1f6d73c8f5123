// SPDX-License-Identifier: Apache-2.0

package faults

// onwardFaults are those of packets behind the handshake, and of what packets leave for those behind them.
func onwardFaults() []fault {
	const (
		drop   = `iptables-nft -I FORWARD `
		reply  = ` -m conntrack --ctdir REPLY `
		client = ` -m conntrack --ctdir ORIGINAL `
		seen   = `ipset create seen hash:ip; `
		table  = `nft add table inet t; nft add chain inet t c '{ type filter hook forward priority -10; }'; `
		flush  = `ipset flush seen`
		empty  = `nft flush set inet t seen`
		native = table + `nft add set inet t seen '{ type ipv4_addr; flags dynamic; size 1000; }'; `
	)
	return []fault{
		{
			name: "the endpoint's packets without SYN are dropped",
			make: drop + `-p tcp` + reply + `-m tcp ! --tcp-flags SYN SYN -j DROP`, fails: all, named: `FORWARD rule 1 drops`,
			mismatch: true,
		},
		{
			name: "the endpoint's packets with ACK alone are dropped",
			make: drop + `-p tcp` + reply + `-m tcp --tcp-flags SYN,ACK ACK -j DROP`, fails: all,
			named: `FORWARD rule 1 drops`, mismatch: true,
		},
		{
			name: "the endpoint's packets without SYN are dropped where the node connects", from: "node",
			make: `iptables-nft -I INPUT -p tcp` + reply + `-m tcp ! --tcp-flags SYN SYN -j DROP`, fails: all,
			named: `INPUT rule 1 drops`, mismatch: true,
		},
		{
			name: "the endpoint's packets without SYN are dropped by nftables, IPv6", v6: true,
			make: `hook m ip6 forward 0 "ct direction reply tcp flags & (syn|ack) == ack drop"`, fails: all, named: `fault_m`,
			mismatch: true,
		},
		{
			name: "what goes to the endpoint's port is dropped once it is established",
			make: drop + `-p tcp --dport 8080 -m conntrack --ctstate ESTABLISHED -j DROP`, fails: all,
			named: `FORWARD rule 1 drops`, mismatch: true,
		},
		{
			name: "what goes to the endpoint's port is dropped by nftables once it is established",
			make: `hook m ip forward 0 "tcp dport 8080 ct state established drop"`, fails: all, named: `fault_m`,
			mismatch: true,
		},
		{
			name: "what is long and comes from the endpoint is dropped", large: true,
			make: drop + `-p tcp` + reply + `-m length --length 100:65535 -j DROP`, fails: all, named: `length`,
		},
		{
			name: "what is long and comes from the endpoint is dropped by nftables", large: true,
			make: `hook m ip forward 0 "ct direction reply meta length > 100 drop"`, fails: all, named: `length`,
		},
		{
			name: "what is longer than the answer is dropped",
			make: drop + `-p tcp` + reply + `-m length --length 1000:65535 -j DROP`, fails: none, unknownToo: true,
		},
		{
			name: "what ends connections is dropped, and clients read to the end", toEnd: true,
			make: drop + `-p tcp -m tcp --tcp-flags FIN FIN -j DROP`, fails: all, named: `FIN`,
		},
		{
			name: "what ends the answer is dropped, and clients read to the end", toEnd: true,
			make: `hook m ip forward 0 "ct direction reply tcp flags & fin == fin drop"`, fails: all, named: `FIN`,
		},
		{
			name: "the answer marks the connection, and what has the mark is dropped",
			make: `iptables-nft -t mangle -A PREROUTING` + reply + `-j CONNMARK --set-mark 2
				` + drop + client + `-m connmark --mark 2 -j DROP`, fails: all, named: `connmark`, mismatch: true,
		},
		{
			name: "the answer marks the connection, and what has the mark is dropped by nftables",
			make: `hook m inet prerouting -150 "ct direction reply ct mark set 2"
				hook d inet forward 0 "ct mark 2 ct direction original drop"`, fails: all, named: `ct mark`, mismatch: true,
		},
		{
			name: "the answer marks the connection, and what has the mark is swallowed by a route",
			make: `iptables-nft -t mangle -A PREROUTING -i cni0 -j CONNMARK --restore-mark
				iptables-nft -t mangle -A PREROUTING -i eth0 -j CONNMARK --set-mark 2
				ip route add blackhole default table 200; ip rule add pref 100 fwmark 2 lookup 200`, fails: some,
			named: `blackhole`, mismatch: true,
		},
		{
			name: "the client's ACK takes the mark away that the request has left, and what has none is dropped",
			make: `iptables-nft -t mangle -A PREROUTING -p tcp --syn -j CONNMARK --set-mark 2
				iptables-nft -t mangle -A PREROUTING -p tcp` + client + `-m tcp ! --tcp-flags SYN SYN -j CONNMARK --set-mark 0
				` + drop + reply + `-m connmark --mark 0 -j DROP`, fails: all, named: `connmark`, mismatch: true,
		},
		{
			name: "the answer marks the connection, and nothing asks for the mark",
			make: `iptables-nft -t mangle -A PREROUTING` + reply + `-j CONNMARK --set-mark 2
				iptables-nft -t mangle -A PREROUTING -j CONNMARK --restore-mark`, fails: none,
		},
		{
			name:  "requests fill a set of sources",
			make:  seen + drop + client + `-j SET --add-set seen src; ` + drop + `-m set --match-set seen src -j DROP`,
			fails: all, named: `seen`,
		},
		{
			name:  "requests fill a set of destinations, which answers come from",
			make:  seen + drop + client + `-j SET --add-set seen dst; ` + drop + `-m set --match-set seen src -j DROP`,
			fails: all, named: `seen`,
		},
		{
			name: "requests fill a set that is in a list of sets",
			make: seen + `ipset create list list:set; ipset add list seen
				` + drop + client + `-j SET --add-set seen dst; ` + drop + `-m set --match-set list src -j DROP`,
			then: flush, fails: all, named: `seen|list`,
		},
		{
			name: "requests fill a set of nftables, which answers come from",
			make: native + `nft add rule inet t c ip saddr @seen drop
				nft add rule inet t c ct direction original add @seen '{ ip daddr }'`, then: empty, fails: all, named: `@seen`,
		},
		{
			name: "requests fill a map of nftables, by which answers are marked, and what is marked is dropped",
			make: table + `nft add map inet t m '{ type ipv4_addr : mark; flags dynamic; size 1000; }'
				nft add rule inet t c meta mark set ip saddr map @m
				nft add rule inet t c meta mark 5 drop
				nft add rule inet t c ct direction original update @m '{ ip daddr : 5 }'`, fails: all, named: `@m`,
		},
		{
			name: "answers put the client into a list, whose packets are dropped",
			make: drop + reply + `-m recent --name x --rdest --set
				` + drop + client + `-m recent --name x --rsource --rcheck -j DROP`, fails: all, named: `recent`,
		},
		{
			name: "a connection puts the client into a set, and the next one is dropped",
			make: seen + drop + `-p tcp --syn -j SET --add-set seen src
				` + drop + `-p tcp --syn -m set --match-set seen src -j DROP`, then: flush,
			fails: some, named: `seen`, varies: true,
		},
		{
			name: "a connection puts the client into a set of nftables, and the next one is dropped",
			make: native + `nft add rule inet t c tcp flags syn ip saddr @seen drop
				nft add rule inet t c tcp flags '& (fin|syn) == fin' add @seen '{ ip saddr }'`, then: empty,
			fails: some, named: `@seen`, varies: true,
		},
		{
			name: "requests fill a set that nothing asks for",
			make: seen + drop + client + `-j SET --add-set seen src`, then: flush, fails: none,
		},
		{
			name: "IPv6: what finds neighbours has a zone behind connection tracking", v6: true,
			make: `hook m inet prerouting -150 "ct zone set 5"; hook o inet output -150 "ct zone set 5"`, fails: none,
		},
		{
			name: "IPv6: what finds neighbours has a zone, and what is untracked is dropped", v6: true,
			make: `hook m inet prerouting -150 "ct zone set 5"; hook i inet input 0 "ct state untracked drop"`, fails: none,
		},
	}
}
