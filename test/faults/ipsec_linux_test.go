// SPDX-License-Identifier: Apache-2.0

package faults

// ipsecFaults are those of which policy of IPsec counts, and of interfaces that ask for none.
func ipsecFaults() []fault {
	const block = `ip xfrm policy add src 10.245.1.6/31 dst 10.0.0.0/8 dir fwd action block priority 10
		`
	return []fault{
		{
			name: "a policy of IPsec allows before one that blocks", fails: none,
			make: block + `ip xfrm policy add src $C dst 10.0.0.0/8 dir fwd action allow priority 5`,
		},
		{
			name: "a policy of IPsec allows behind one that blocks", fails: some, named: `xfrm fwd`, varies: true,
			make: block + `ip xfrm policy add src $C dst 10.0.0.0/8 dir fwd action allow priority 15`,
		},
		{
			name: "a policy of IPsec allows others before one that blocks", fails: some, named: `xfrm fwd`, varies: true,
			make: block + `ip xfrm policy add src $L dst 10.0.0.0/8 dir fwd action allow priority 5`,
		},
		{
			name: "a policy of IPsec allows a port before one that blocks", fails: none, unknownToo: true,
			make: block + `ip xfrm policy add src $C dst 10.0.0.0/8 proto tcp dport 80 dir fwd action allow priority 5`,
		},
		{
			name: "the interface that packets come in by asks for no policy of IPsec", fails: none,
			make: block + `sysctl -qw net.ipv4.conf.cni0.disable_policy=1`,
		},
		{
			name: "the interface that answers come in by asks for no policy of IPsec, and requests meet one", fails: some,
			varies: true, named: `xfrm fwd`, make: block + `sysctl -qw net.ipv4.conf.eth0.disable_policy=1`,
		},
		{
			name: "the interface that packets leave by asks for no policy of IPsec, from the node", from: "node", fails: none,
			make: `ip xfrm policy add src 0.0.0.0/0 dst $R dir out action block; sysctl -qw net.ipv4.conf.eth0.disable_xfrm=1`,
		},
		{
			name: "the interface that packets leave by asks for no policy of IPsec", fails: none,
			make: `ip xfrm policy add src 0.0.0.0/0 dst $R dir out action block; sysctl -qw net.ipv4.conf.eth0.disable_xfrm=1`,
		},
		{
			name: "another interface asks for no policy of IPsec", fails: some, named: `xfrm out`, from: "node",
			make: `ip xfrm policy add src 0.0.0.0/0 dst $R dir out action block; sysctl -qw net.ipv4.conf.cni0.disable_xfrm=1`,
		},
		{
			name: "IPsec refuses by default what leaves, and the uplink asks for no policy", fails: some, varies: true,
			from: "node", named: `default policy: out`,
			make: `ip xfrm policy setdefault out block; sysctl -qw net.ipv4.conf.eth0.disable_xfrm=1`,
		},
		{
			name: "IPsec refuses by default what is forwarded, and no interface asks for a policy", fails: none,
			make: `ip xfrm policy setdefault fwd block
				sysctl -qw net.ipv4.conf.eth0.disable_policy=1 net.ipv4.conf.cni0.disable_policy=1`,
		},
		{
			name: "the interfaces ask for no policy of IPsec, which IPv6 asks for", v6: true, fails: some, named: `xfrm fwd`,
			make: `ip xfrm policy add src fd00:10:245:1::/64 dst fd00::/16 dir fwd action block
				sysctl -qw net.ipv6.conf.cni0.disable_policy=1`,
		},
	}
}
