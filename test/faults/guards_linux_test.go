// SPDX-License-Identifier: Apache-2.0

package faults

// spoofCheck is what the CNI plugin bridge makes for a pod's port with macspoofchk (pkg/link/spoofcheck.go of
// containernetworking/plugins).
func spoofCheck(port, mac string) string {
	return `nft add table bridge nat
		nft add chain bridge nat PREROUTING '{ type filter hook prerouting priority dstnat; policy accept; }'
		nft add chain bridge nat ` + port + `-mac; nft add chain bridge nat ` + port + `
		nft add rule bridge nat PREROUTING iifname ` + port + ` jump ` + port + `
		nft add rule bridge nat ` + port + ` jump ` + port + `-mac
		nft add rule bridge nat ` + port + `-mac ether saddr ` + mac + ` return
		nft add rule bridge nat ` + port + `-mac drop
		`
}

// guardFaults are rules that go by the link-layer address of the pod.
func guardFaults() []fault {
	const other = "02:00:00:00:00:77"
	return []fault{
		{
			name: "ports are guarded against other link-layer addresses", fails: none,
			make: spoofCheck("$CV", "$CMAC") + spoofCheck("$LV", "$LMAC"),
		},
		{
			name: "ports are guarded against other link-layer addresses, from the node", from: "node", fails: none,
			make: spoofCheck("$CV", "$CMAC") + spoofCheck("$LV", "$LMAC"),
		},
		{
			name: "ports are guarded against other link-layer addresses, IPv6", v6: true, fails: none,
			make: spoofCheck("$CV", "$CMAC") + spoofCheck("$LV", "$LMAC"),
		},
		{
			name: "the client's port is guarded, and knows another link-layer address",
			make: spoofCheck("$CV", other), fails: all, named: `nat \S+-mac rule`,
		},
		{
			name: "the endpoint's port is guarded, and knows another link-layer address",
			make: spoofCheck("$LV", other), fails: some, named: `nat \S+-mac rule`,
		},
		{
			name: "a pod's address has to have its link-layer address", fails: none,
			make: `iptables -t raw -A PREROUTING -s $C -m mac ! --mac-source $CMAC -j DROP`,
		},
		{
			name:  "a pod's address has to have its link-layer address, which is another",
			make:  `iptables -t raw -A PREROUTING -s $C -m mac ! --mac-source ` + other + ` -j DROP`,
			fails: all, named: `mac-source`, mismatch: true,
		},
		{
			name: "a set of link-layer addresses", fails: none,
			make: `nft add table inet f; nft add chain inet f c '{ type filter hook prerouting priority -150; }'
				nft add rule inet f c iifname cni0 ether saddr != "{ $CMAC, $LMAC }" drop`,
		},
		{
			name: "a set of link-layer addresses without the client's",
			make: `nft add table inet f; nft add chain inet f c '{ type filter hook prerouting priority -150; }'
				nft add rule inet f c iifname cni0 ether saddr != "{ $LMAC, ` + other + ` }" drop`,
			fails: all, named: `f c rule 1`, mismatch: true,
		},
		{
			name: "a link-layer address of another network card is dropped", fails: none,
			make: `iptables -t mangle -A FORWARD -m mac --mac-source ` + other + ` -j DROP`, unknownToo: true,
		},
	}
}
