// SPDX-License-Identifier: Apache-2.0

package faults

// queueFaults are those of queues of tc (net/sched), their classes and their filters. What this kernel has not is in
// TestQueuesThatLosePackets of trace/nodestate.
func queueFaults() []fault {
	const add = `tc qdisc add dev eth0 root `
	const sink = `ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up; `
	return []fault{
		{
			name: "a queue for no packet",
			make: add + `pfifo limit 0`, fails: some, named: `qdisc pfifo`,
		},
		{name: "a queue for one packet", make: add + `pfifo limit 1`, fails: none},
		{
			name: "a queue for few bytes",
			make: add + `bfifo limit 10`, fails: some, named: `qdisc bfifo`,
		},
		{name: "a queue for bytes of many packets", make: add + `bfifo limit 64k`, fails: none},
		{
			name: "a queue for no packet, whose first is dropped",
			make: add + `pfifo_head_drop limit 0`, fails: some, named: `qdisc pfifo_head_drop`,
		},
		{
			name: "a queue that is a hole",
			make: add + `blackhole`, fails: some, named: `qdisc blackhole`,
		},
		{
			name: "a queue that is a hole, of the port of an endpoint",
			make: `tc qdisc add dev $LV root blackhole`, fails: some, named: `qdisc blackhole`,
		},
		{
			name: "a queue that is a hole, of the client's port",
			make: `tc qdisc add dev $CV root blackhole`, fails: all, named: `qdisc blackhole`,
		},
		{
			name: "a queue that is a hole, of the bridge",
			make: `tc qdisc add dev cni0 root blackhole`, fails: all, named: `qdisc blackhole`,
		},
		{
			name: "a queue that is a hole, of an interface that is not on the path",
			make: sink + `tc qdisc add dev d0 root blackhole`, fails: none,
		},
		{
			name: "a rate of a few bytes a second, whose first packets pass",
			make: add + `tbf rate 2kbit burst 4kb limit 300000`, fails: some, named: `qdisc tbf`,
		},
		{
			name:  "a rate of a few bytes a second of which nobody is told by its size",
			make:  add + `handle 1: tbf rate 100mbit burst 32kb limit 300000; tc qdisc add dev eth0 parent 1:1 handle 2: blackhole`,
			fails: some, named: `qdisc blackhole`,
		},
		{
			name: "packets that a queue takes for larger than its burst",
			make: `tc qdisc add dev $CV root stab mtu 65535 tsize 512 mpu 60000 linklayer ethernet \
				tbf rate 1gbit burst 50000 limit 300000`,
			fails: all, named: `qdisc tbf`,
		},
		{
			name:  "classes, and no room for what has none",
			make:  `tc qdisc add dev $CV root handle 1: htb direct_qlen 0`,
			fails: all, named: `qdisc htb`,
		},
		{
			name: "classes with a default that has no room",
			make: `tc qdisc add dev $CV root handle 1: htb default 1; ip link set $CV txqueuelen 0
				tc class add dev $CV parent 1: classid 1:1 htb rate 1gbit`,
			fails: all, named: `qdisc pfifo`,
		},
		{name: "classes without a default", make: add + `handle 1: htb`, fails: none},
		{name: "classes with a default that is not there", make: add + `handle 1: htb default 99`, fails: none},
		{
			name: "classes with a default that passes",
			make: add + `handle 1: htb default 10; tc class add dev eth0 parent 1: classid 1:10 htb rate 100mbit`, fails: none,
		},
		{
			name: "classes with a default that passes a few bytes",
			make: add + `handle 1: htb default 10
				tc class add dev eth0 parent 1: classid 1:10 htb rate 8bit burst 100 cburst 100`,
			fails: some, named: `class htb`, varies: true,
		},
		{
			name: "classes with a default that is a hole",
			make: add + `handle 1: htb default 10; tc class add dev eth0 parent 1: classid 1:10 htb rate 100mbit
				tc qdisc add dev eth0 parent 1:10 handle 10: blackhole`,
			fails: some, named: `qdisc blackhole`,
		},
		{
			name:  "a filter of a queue redirects packets of the path",
			make:  sink + add + `handle 1: htb; tc filter add dev eth0 parent 1: protocol ip u32 match u32 0 0 action mirred egress redirect dev d0`,
			fails: some, named: `tc eth0 egress`,
		},
		{
			name: "a filter of a class redirects packets of the path",
			make: sink + add + `handle 1: htb; tc class add dev eth0 parent 1: classid 1:1 htb rate 1gbit
				tc class add dev eth0 parent 1:1 classid 1:10 htb rate 1gbit
				tc filter add dev eth0 parent 1: protocol ip u32 match u32 0 0 flowid 1:1
				tc filter add dev eth0 parent 1:1 protocol ip u32 match u32 0 0 action mirred egress redirect dev d0`,
			fails: some, named: `tc eth0 egress`,
		},
		{
			name: "a filter of a queue chooses a class",
			make: add + `handle 1: htb; tc class add dev eth0 parent 1: classid 1:10 htb rate 1gbit
				tc filter add dev eth0 parent 1: protocol ip u32 match ip dst $R/32 flowid 1:10`,
			fails: none,
		},
		{
			name: "a filter of a queue chooses a class that passes a few bytes",
			make: add + `handle 1: htb; tc class add dev eth0 parent 1: classid 1:10 htb rate 8bit burst 100 cburst 100
				tc filter add dev eth0 parent 1: protocol ip u32 match ip dst $R/32 flowid 1:10`,
			fails: some, named: `class htb`, varies: true,
		},
		{
			name: "a filter of what comes in redirects packets of the path",
			make: sink + `tc qdisc add dev $CV ingress
				tc filter add dev $CV parent ffff: protocol ip u32 match ip dst $S/32 action mirred egress redirect dev d0`,
			fails: all, named: `tc vethfad0f8b0 ingress`,
		},
		{
			name: "a filter of what comes in by another interface",
			make: sink + `tc qdisc add dev d0 ingress
				tc filter add dev d0 parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev d1`,
			fails: none,
		},
	}
}

// arptablesFaults are rules of the kernel's own arptables: those of nftables are among resolutionFaults.
func arptablesFaults() []fault {
	const rule = `arptables-legacy -A `
	return []fault{
		{
			name:  "arptables-legacy: replies are dropped, of the uplink",
			make:  rule + `INPUT -i eth0 --opcode 2 -j DROP; forget`,
			fails: some, named: `arptables filter INPUT`, mismatch: true,
		},
		{
			name:  "arptables-legacy: replies of one node are dropped",
			make:  rule + `INPUT -s $RNODE --opcode 2 -j DROP; forget`,
			fails: some, named: `arptables filter INPUT`, mismatch: true,
		},
		{
			name: "arptables-legacy: a policy drops", from: "node",
			make:  `arptables-legacy -P INPUT DROP; forget`,
			fails: all, named: `arptables filter INPUT`, mismatch: true,
		},
		{
			name: "arptables-legacy: requests of the node are dropped", from: "node",
			make:  rule + `OUTPUT -o eth0 --opcode 1 -j DROP; forget`,
			fails: some, named: `arptables filter OUTPUT`, mismatch: true,
		},
		{
			name:  "arptables-legacy: requests of pods are dropped",
			make:  rule + `INPUT -i cni0 --opcode 1 -j DROP; forget`,
			fails: all, named: `arptables filter INPUT`,
		},
		{
			name:  "arptables-legacy: answers to pods are dropped",
			make:  rule + `OUTPUT -o cni0 --opcode 2 -j DROP; forget`,
			fails: all, named: `arptables filter OUTPUT`,
		},
		{
			name:  "arptables-legacy: replies of a link-layer address are dropped",
			make:  rule + `INPUT --src-mac $RMAC -j DROP; forget`,
			fails: some, named: `arptables filter INPUT`,
		},
		{
			name:  "arptables-legacy: a chain of its own drops",
			make:  `arptables-legacy -N mine; ` + rule + `mine -i eth0 -j DROP; ` + rule + `INPUT -j mine; forget`,
			fails: some, named: `arptables filter INPUT`,
		},
		{
			name:  "arptables-legacy: what bridges pass on is dropped",
			make:  `sysctl -qw net.bridge.bridge-nf-call-arptables=1; ` + rule + `FORWARD -j DROP; forget`,
			fails: some, named: `arptables filter FORWARD`,
		},
		{
			name:  "arptables-legacy: what bridges pass on would be dropped, and they do not ask",
			make:  `sysctl -qw net.bridge.bridge-nf-call-arptables=0; ` + rule + `FORWARD -j DROP; forget`,
			fails: none,
		},
		{
			name:  "arptables-legacy: an address that is not on the path, as load balancers have it",
			make:  rule + `INPUT -d 192.0.2.80 -j DROP; ` + rule + `OUTPUT -s 192.0.2.80 -j mangle --mangle-ip-s 10.79.0.11; forget`,
			fails: none, unknownToo: true,
		},
		{
			name:  "arptables-legacy: another interface",
			make:  rule + `INPUT -i eth7 -j DROP; forget`,
			fails: none,
		},
		{
			name:  "arptables-legacy: what is dropped was accepted before",
			make:  rule + `INPUT -i eth0 -j ACCEPT; ` + rule + `INPUT -i cni0 -j ACCEPT; ` + rule + `INPUT -j DROP; forget`,
			fails: none,
		},
		{
			name: "arptables-legacy: all is dropped, which IPv6 does not need", v6: true,
			make:  `arptables-legacy -P INPUT DROP; arptables-legacy -P OUTPUT DROP; forget`,
			fails: none,
		},
	}
}
