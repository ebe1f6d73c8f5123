// SPDX-License-Identifier: Apache-2.0

package faults

// headerFaults are those of rules that ask for fields of headers, and hardening by them that harms nothing.
func headerFaults() []fault {
	const drop = `iptables-nft -I FORWARD `
	return []fault{
		{name: "what has few hops left is dropped", make: drop + `-m ttl --ttl-lt 5 -j DROP`, fails: none},
		{
			name: "what has few hops left is dropped by nftables",
			make: `hook m ip forward 0 "ip ttl < 5 drop"`, fails: none,
		},
		{
			name: "what has few hops left is dropped, IPv6", v6: true,
			make: `hook m ip6 forward 0 "ip6 hoplimit < 5 drop"`, fails: none,
		},
		{
			name: "what has as many hops left as most have is dropped",
			make: drop + `-s $C -m ttl --ttl-eq 63 -j DROP`, fails: some, named: `ttl`,
		},
		{
			name: "what is shorter than any packet is dropped",
			make: drop + `-m length --length 0:39 -j DROP`, fails: none,
		},
		{
			name: "what is shorter than any packet is dropped by nftables",
			make: `hook m ip forward 0 "ip length < 40 drop"`, fails: none,
		},
		{
			name: "what is as short as a SYN is dropped",
			make: drop + `-m length --length 0:100 -j DROP`, fails: all, named: `length`, mismatch: true,
		},
		{
			name: "what is as short as a SYN is dropped by nftables",
			make: `hook m ip forward 0 "meta length < 100 drop"`, fails: all, named: `fault_m`, mismatch: true,
		},
		{
			name: "what is longer than a link's packets is dropped, and nothing long is sent",
			make: drop + `-m length --length 1501:65535 -j DROP`, fails: none, unknownToo: true,
		},
		{
			name: "small segments are dropped",
			make: drop + `-p tcp --tcp-flags SYN,RST SYN -m tcpmss --mss 1:535 -j DROP`, fails: none,
		},
		{
			name: "small segments are dropped by nftables",
			make: `hook m ip forward 0 "tcp option maxseg size < 536 drop"`, fails: none,
		},
		{
			name: "fragments are dropped by nftables",
			make: `hook m ip forward 0 "ip frag-off & 0x1fff != 0 drop" "ip frag-off & 0x2000 != 0 drop"`, fails: none,
		},
		{
			name: "scans are dropped by nftables",
			make: `hook m ip forward 0 "tcp flags fin,syn / fin,syn drop" "tcp flags & (fin|psh|urg) == (fin|psh|urg) drop" \
				"tcp flags syn,rst / syn,rst drop" "ct state new tcp flags != syn / fin,syn,rst,ack drop"`,
			fails: none,
		},
		{
			name: "a class of traffic that nobody sets is dropped",
			make: drop + `-m dscp --dscp 0x2e -j DROP; ` + drop + `-m tos --tos 0x10/0x3f -j DROP
				hook m ip forward 0 "ip dscp ef drop"`,
			fails: none,
		},
		{
			name: "the class of traffic that all has is dropped",
			make: `hook m ip forward 0 "ip dscp cs0 drop"`, fails: all, named: `fault_m`, mismatch: true,
		},
		{
			name: "fields are set to 0 that no packet needs",
			make: `hook m ip forward 0 "ip frag-off set 0" "tcp urgptr set 0"`, fails: none,
		},
		{
			name: "a rule drops the class of traffic that another one sets",
			make: `hook m ip forward 0 "ip dscp set ef" "ip dscp ef drop"`, fails: all, named: `fault_m`, mismatch: true,
		},
		{
			name: "a rule drops a class of traffic that another one sets, and a third takes back",
			make: `hook m ip forward 0 "ip dscp set ef" "ip dscp set cs0" "ip dscp ef drop"`, fails: none,
		},
		{
			name: "what IPsec has transformed is dropped, and there is no policy",
			make: drop + `-m policy --dir in --pol ipsec -j DROP
				hook m ip forward 0 "meta ipsec exists drop"`, fails: none,
		},
		{
			name: "what IPsec has not transformed is dropped, and there is no policy",
			make: drop + `-m policy --dir in --pol none -j DROP`, fails: all, named: `FORWARD rule 1 drops`, mismatch: true,
		},
		{
			name: "what a helper expects is dropped by nftables",
			make: `hook m ip forward 0 "ct helper \"ftp\" drop"`, fails: none,
		},
		{
			name: "interfaces of a group are dropped",
			make: `ip link set eth0 group 7; ` + drop + `-m devgroup --dst-group 7 -j DROP`, fails: some, named: `devgroup`,
			mismatch: true,
		},
		{
			name: "interfaces of a group are dropped by nftables",
			make: `ip link set eth0 group 7; hook m ip forward 0 "oifgroup 7 drop"`, fails: some, named: `fault_m`, mismatch: true,
		},
		{
			name: "interfaces of a group that none has are dropped by nftables",
			make: `hook m ip forward 0 "iifgroup 7 drop"`, fails: none,
		},
		{
			name: "what a socket of the node takes is dropped, which answers of endpoints are not", from: "node",
			make: `iptables-nft -t mangle -A PREROUTING -p tcp -m socket -j DROP`, fails: none,
		},
		{
			name:  "a rule that nobody can follow is ahead of one that drops",
			make:  drop + `-s $C -j DROP; ` + drop + `-m string --algo bm --string x -j DROP`,
			fails: all, named: `filter FORWARD rule 2 drops it`, mismatch: true,
		},
		{
			name:  "a rule that nobody can follow accepts, and a later table drops",
			make:  drop + `-m string --algo bm --string x -j ACCEPT; iptables-nft -t mangle -I POSTROUTING -s $C -j DROP`,
			fails: all, named: `mangle POSTROUTING rule 1 drops it`, mismatch: true,
		},
	}
}

// markFaults are those of kube-proxy's mark, by which its rules know what to masquerade.
func markFaults() []fault {
	const whole = `(?s)WrongMasquerade.*`
	return []fault{
		{
			name: "the mark is taken off behind the translation, of the node's packets, which need it not", from: "node",
			make:  `iptables-nft -t filter -I OUTPUT -j MARK --set-xmark 0/0x4000`,
			fails: none, unknownToo: true,
		},
		{
			name: "the mark is taken off by nftables, of the node's packets, which need it not", from: "node",
			make: `hook m ip output 10 "meta mark set 0"`, fails: none, unknownToo: true,
		},
		{
			name: "the mark is taken off, of a pod that reaches itself", from: "endpoint",
			make:  `iptables-nft -t mangle -A POSTROUTING -j MARK --set-xmark 0/0x4000`,
			fails: some, named: whole + `mangle POSTROUTING rule 1`,
		},
		{
			name: "kube-proxy's chain returns at once, to a pod that reaches itself", from: "endpoint",
			make: `iptables-nft -t nat -I KUBE-POSTROUTING -j RETURN`, fails: some, named: `KUBE-POSTROUTING rule 1 ends`,
		},
	}
}
