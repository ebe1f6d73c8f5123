// SPDX-License-Identifier: Apache-2.0

package faults

// onLink is a rule at a hook of a device.
func onLink(where, text string) string {
	return "nft add table netdev fault_f; nft add chain netdev fault_f c \"{ type filter hook " + where +
		" priority 0; }\"; nft add rule netdev fault_f c " + text + "\n"
}

// forwarded is a table with objects and sets, and with rules for what is forwarded.
func forwarded(has string, rules ...string) string {
	out := "nft -f - <<X\ntable ip fault_f {\n" + has + "\nchain c { type filter hook forward priority 0;\n"
	for _, r := range rules {
		out += r + "\n"
	}
	return out + "}\n}\nX\n"
}

// fromClient is what the client's pod asks with.
const fromClient = "tcp flags syn / syn,ack ip saddr 10.245.1.0/24 "

// statementFaults are those of rules that change more of a packet than its addresses, send copies, or announce other
// connections.
func statementFaults() []fault {
	const (
		onOpening = "iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN SYN -j TCPOPTSTRIP --strip-options "
		onAnswers = "iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,ACK SYN,ACK -j TCPOPTSTRIP --strip-options "
		expects   = "ct expectation e { protocol tcp; dport 9999; timeout 2h; size 4; l3proto ip; }"
		dummy     = "ip link add d0 type dummy || ip link add d0 type veth peer name d1; ip link set d0 up; touch_all\n"
	)
	return []fault{
		{
			name: "packets are marked as those for others", fails: some, named: `fault_f`,
			make: onLink("ingress device eth0", "ip protocol tcp meta pkttype set other"),
		},
		{
			name: "packets are marked as broadcasts", fails: some, named: `fault_f`,
			make: onLink("ingress device eth0", "ip protocol tcp meta pkttype set broadcast"),
		},
		{
			name: "packets are marked as those for others at the port of a bridge, which looks itself", fails: none,
			make: onLink("ingress device $CV", "ip protocol tcp meta pkttype set other"), unknownToo: true,
		},
		{
			name: "packets are marked as those for the node", fails: none,
			make: onLink("ingress device eth0", "ip protocol tcp meta pkttype set host"),
		},
		{
			name: "the time stamp that is echoed is overwritten", fails: all, named: `fault_f`,
			make: forwarded("", "tcp sport 8080 tcp option timestamp tsecr set 1"),
		},
		{
			name: "the time stamp is overwritten", fails: all, named: `fault_f`,
			make: forwarded("", "tcp option timestamp tsval set 1"),
		},
		{
			name: "the time stamp is taken out", fails: none, large: true,
			make: forwarded("", "reset tcp option timestamp"),
		},
		{
			name: "the window's scale is taken out of answers by nftables", fails: all, named: `fault_f`, large: true,
			make: forwarded("", "tcp flags syn,ack / syn,ack reset tcp option window"),
		},
		{
			name: "the window's scale is taken out of questions and answers by nftables", fails: none, large: true,
			make: forwarded("", "tcp flags & syn == syn reset tcp option window"), unknownToo: true,
		},
		{
			name: "the window's scale is taken out of answers", fails: all, named: `TCPOPTSTRIP`, large: true,
			make: onAnswers + "wscale",
		},
		{
			name: "the window's scale is taken out of questions and answers", fails: none, large: true,
			make: onOpening + "wscale", unknownToo: true,
		},
		{
			name: "other options are taken out of answers", fails: none, large: true,
			make: onAnswers + "mss,sack-permitted,timestamp,md5",
		},
		{
			name: "other options are taken out of all", fails: none, large: true,
			make: "iptables -t mangle -A FORWARD -p tcp -j TCPOPTSTRIP --strip-options mss,sack-permitted,sack,timestamp,md5",
		},
		{
			name: "copies of answers go back to where they came from", fails: some, named: `fault_f`,
			make: "touch_all; " + onLink("ingress device eth0", "ip protocol tcp dup to eth0"),
		},
		{
			name: "copies of answers go to an interface that sends nothing", fails: none,
			make: dummy + onLink("ingress device eth0", "ip protocol tcp dup to d0"), unknownToo: true,
		},
		{
			name: "copies of answers go to lo", fails: none,
			make: "touch_all; " + onLink("ingress device eth0", "ip protocol tcp dup to lo"),
		},
		{
			name: "connections announce others", fails: some, named: `fault_f`,
			make: forwarded(expects, `ct state new ct expectation set "e"`),
		},
		{
			name: "later packets announce no connection, and are dropped", fails: all, named: `fault_f`,
			make: forwarded(expects, `ct expectation set "e" accept`, "drop"),
		},
		{
			name: "untracked packets announce no connection", fails: none,
			make: forwarded(expects, `ct state untracked ct expectation set "e"`),
		},
		{
			name: "an object that counts has a quota, and accepts nothing", fails: all, named: `nfacct`,
			make: quota + `-j ACCEPT; iptables -t mangle -A FORWARD -p tcp --syn -s 10.245.1.0/24 -j DROP`,
		},
		{
			name: "an object that counts has a quota, and drops nothing", fails: none,
			make: quota + `-j DROP`, unknownToo: true,
		},
		{name: "an object counts", fails: none, make: quota},
	}
}

// quota is a match with an accounting object that has a quota.
const quota = `nfacct add q packet 1000000000
	iptables -t mangle -A FORWARD -p tcp --syn -s 10.245.1.0/24 -m nfacct --nfacct-name q `

// missFaults are those of rules that look something up that is not there, and of sets that are full: the rule ends, and
// does not accept.
func missFaults() []fault {
	accepts := func(has, text string) string { return forwarded(has, fromClient+text+" accept", fromClient+"drop") }
	const (
		counter  = `counter k { }`
		helper   = `ct helper h { type "ftp" protocol tcp; }`
		full     = "type ipv4_addr; size 1; flags dynamic; elements = { 192.0.2.1 }"
		fullMap  = "type ipv4_addr : mark; size 1; flags dynamic; elements = { 192.0.2.1 : 1 }"
		affinity = "type ipv4_addr; flags dynamic,timeout; timeout 3h"
	)
	return []fault{
		{
			name: "a map has no counter for the packet", fails: all, named: `fault_f`, mismatch: true,
			make: accepts(counter, `counter name ip saddr map { 192.0.2.1 : "k" }`),
		},
		{
			name: "a map with a name has no counter for the packet", fails: all, named: `fault_f`, mismatch: true,
			make: accepts(counter+"\nmap m { type ipv4_addr : counter; elements = { 192.0.2.1 : k } }",
				`counter name ip saddr map @m`),
		},
		{
			name: "a map has a counter for the packet", fails: none,
			make: accepts(counter, `counter name ip saddr map { 10.245.1.6 : "k" }`),
		},
		{
			name: "a map with a name has a counter for the packet", fails: none,
			make: accepts(counter+"\nmap m { type ipv4_addr : counter; elements = { 10.245.1.6 : k } }",
				`counter name ip saddr map @m`),
		},
		{
			name: "a map has no helper for the packet", fails: all, named: `fault_f`, mismatch: true,
			make: accepts(helper, `ct helper set ip saddr map { 192.0.2.1 : "h" }`),
		},
		{
			name: "a map has no priority for the packet", fails: all, named: `fault_f`, mismatch: true,
			make: accepts("", `meta priority set ip saddr map { 192.0.2.1 : 1:10 }`),
		},
		{
			name: "a map has a priority for the packet", fails: none,
			make: accepts("", `meta priority set ip saddr map { 10.245.1.6 : 1:10 }`),
		},
		{
			name: "a map has no size of segments for the packet", fails: all, named: `fault_f`,
			make: accepts("", `tcp option maxseg size set ip saddr map { 192.0.2.1 : 1000 }`),
		},
		{
			name: "a map has no interface for copies of the packet", fails: some, named: `fault_f`, mismatch: true,
			make: onLink("ingress device eth0", `tcp sport 8080 dup to ip saddr map \{ 192.0.2.1 : \"lo\" \} accept`) +
				"nft add rule netdev fault_f c tcp sport 8080 drop",
		},
		{
			name: "a full set", fails: all, named: `fault_f`, mismatch: true,
			make: accepts("set s { "+full+" }", "add @s { ip saddr }"),
		},
		{
			name: "a full set is to be updated", fails: all, named: `fault_f`, mismatch: true,
			make: accepts("set s { "+full+" }", "update @s { ip saddr }"),
		},
		{
			name: "a full map", fails: all, named: `fault_f`, mismatch: true,
			make: accepts("map s { "+fullMap+" }", "add @s { ip saddr : 0x1 }"),
		},
		{
			name: "connections fill a set", fails: some, named: `fault_f`,
			make: accepts("set s { type inet_service; size 2; flags dynamic; }", "add @s { tcp sport }"),
		},
		{
			name: "a full set has the client", fails: none,
			make: accepts("set s { type ipv4_addr; size 1; flags dynamic; elements = { 10.245.1.6 } }", "add @s { ip saddr }"),
		},
		{
			name: "a full set is to lose an element that it does not have", fails: none,
			make: accepts("set s { "+full+" }", "delete @s { ip saddr }"),
		},
		{
			name: "a set with room", fails: none,
			make: accepts("set s { "+affinity+"; elements = { 192.0.2.1 } }", "update @s { ip saddr }"),
		},
	}
}

// elementFaults are those of statements that stand on an element of a set or a map: each ends the rule that finds the
// element (nft_set_elem_update_expr in include/net/netfilter/nf_tables.h).
func elementFaults() []fault {
	const (
		client = "10.245.1.6"
		once   = "limit rate 1/hour burst 1 packets"
		never  = "limit rate over 10000/second"
		set    = "set s { type ipv4_addr; flags dynamic; "
	)
	accepts := func(has, text string) string { return forwarded(has, text+" accept", "ip saddr "+client+" drop") }
	return []fault{
		{
			name: "an element has a limit, and accepts once", fails: all, named: `fault_f`,
			make: accepts(set+"elements = { "+client+" "+once+" } }", "ip saddr @s"),
		},
		{
			name: "an element has a limit, and drops what is above it", fails: none, unknownToo: true,
			make: forwarded(set+"elements = { "+client+" "+never+" } }", "ip saddr @s drop"),
		},
		{
			name: "the elements of a set have a limit, and accept once", fails: all, named: `fault_f`,
			make: accepts(set+once+"; elements = { "+client+" } }", "ip saddr @s"),
		},
		{
			name: "the elements of a set have a limit, and drop what is above it", fails: none, unknownToo: true,
			make: forwarded(set+never+"; elements = { "+client+" } }", "ip saddr @s drop"),
		},
		{
			name: "an element that a rule adds has a limit, and accepts once", fails: all, named: `fault_f`,
			make: accepts(set+once+"; }", "add @s { ip saddr }"),
		},
		{
			name: "a verdict of a map has a limit, and accepts once", fails: all, named: `fault_f`,
			make: forwarded("map s { type ipv4_addr : verdict; flags dynamic; elements = { "+client+" "+once+" : accept } }",
				"ip saddr vmap @s", "ip saddr "+client+" drop"),
		},
		{
			name: "the elements of a set have a counter", fails: none,
			make: accepts("set s { type ipv4_addr; counter; elements = { "+client+" } }", "ip saddr @s"),
		},
		{
			name: "an element that has a limit is not to be there", fails: none,
			make: forwarded(set+"elements = { "+client+" "+once+" } }", "ip saddr "+client+" ip saddr != @s drop"),
		},
	}
}
