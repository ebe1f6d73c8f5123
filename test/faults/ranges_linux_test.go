// SPDX-License-Identifier: Apache-2.0

package faults

// rangeFaults are those of rules that nft has written into tables of iptables, and that need no set: iptables-save
// (1.8.9) prints ip saddr A-B as -s B.
func rangeFaults() []fault {
	return []fault{
		{
			name: "a rule of nft drops a range of clients in a table of iptables",
			make: `nft insert rule ip filter FORWARD ip saddr 10.245.1.2-10.245.1.9 drop`, fails: all, named: `FORWARD rule 1`,
		},
		{
			name: "a rule of nft drops a range of others in a table of iptables",
			make: `nft insert rule ip filter FORWARD ip saddr 10.245.1.8-10.245.1.9 drop`, fails: none,
		},
		{
			name:  "a rule of nft drops a range of endpoints in a table of iptables",
			make:  `nft add rule ip mangle FORWARD ip daddr 10.245.0.3-10.245.0.200 counter drop`,
			fails: some, named: `FORWARD rule`,
		},
		{
			name: "a rule of nft drops addresses by their order in a table of iptables",
			make: `nft insert rule ip filter FORWARD ip saddr \> 10.245.1.5 ip saddr \< 10.245.1.7 drop`, fails: all,
			named: `FORWARD rule 1`,
		},
		{
			name: "a rule of nft accepts a range in a table of iptables, behind which all is dropped",
			make: `nft insert rule ip filter FORWARD drop
				nft insert rule ip filter FORWARD ip saddr 10.245.0.1-10.245.2.250 accept`,
			fails: none,
		},
		{
			name: "a rule of nft drops a range of clients in a table of iptables, IPv6", v6: true,
			make:  `nft insert rule ip6 filter FORWARD ip6 saddr fd00:10:245:1::2-fd00:10:245:1::9 drop`,
			fails: all, named: `FORWARD rule 1`,
		},
		{
			name: "a rule of nft drops ICMP of some types in a table of iptables",
			make: `nft insert rule ip filter FORWARD icmp type 3-5 drop`, fails: none,
		},
		{
			name: "a rule of nft drops a range of ports in a table of iptables",
			make: `nft insert rule ip filter FORWARD tcp dport 8000-9000 drop`, fails: all, named: `FORWARD rule 1`,
		},
	}
}
