// SPDX-License-Identifier: Apache-2.0

package faults

// routed has each pod on a link of its own, without a bridge, as Calico has it: the node has
// a route to the pod, and answers for the gateway that the pod asks for.
const routed = `for p in "$CV $CPID $C $C6" "$LV $LPID $L $L6"; do set -- $p
	ip link set $1 nomaster; sysctl -qw net.ipv4.conf.$1.proxy_arp=1 net.ipv4.neigh.$1.proxy_delay=0
	ip route replace $3 dev $1 scope link; ip -6 route replace $4 dev $1 metric 1024
	n="nsenter --net=/proc/$2/ns/net"
	$n ip addr flush dev eth0 scope global; $n ip addr add $3/32 dev eth0; $n ip -6 addr add $4/128 dev eth0 nodad
	$n ip route add 169.254.1.1 dev eth0 scope link; $n ip route replace default via 169.254.1.1 dev eth0
	for i in 1 2 3 4 5 6 7 8 9 10; do
		ll=$(ip -6 -br addr show dev $1 scope link | awk '{print $3}'); [ -n "$ll" ] && break; sleep 0.2
	done
	$n ip -6 route replace default via ${ll%/*} dev eth0
done; ip link del cni0
`

// calico is routed, with Calico's names of the links.
const calico = routed + `for p in "$CV cali1" "$LV cali2"; do set -- $p
	ip link set $1 down; ip link set $1 name $2; ip link set $2 up
done; CV=cali1; LV=cali2
ip route replace $C dev $CV scope link; ip -6 route replace $C6 dev $CV metric 1024
ip route replace $L dev $LV scope link; ip -6 route replace $L6 dev $LV metric 1024
`

// plugin is routed as the CNI plugin ptp has it: all links have the gateway's address.
const plugin = routed + `for p in "$CV $CPID" "$LV $LPID"; do set -- $p
	sysctl -qw net.ipv4.conf.$1.proxy_arp=0; ip addr add 10.245.1.1/32 dev $1
	n="nsenter --net=/proc/$2/ns/net"; $n ip route add 10.245.1.1 dev eth0; $n ip route replace default via 10.245.1.1
done
`

// pairFaults are of pods on links of their own.
func pairFaults() []fault {
	return []fault{
		{name: "pods on links of their own", make: routed + `forget`, fails: none},
		{name: "pods of Calico", make: calico + `forget`, fails: none},
		{name: "pods of Calico, IPv6", v6: true, make: calico + `forget`, fails: none},
		{name: "pods of Calico, from the node", from: "node", make: calico + `forget`, fails: none},
		{name: "pods of Calico, from outside", from: "outside", nodePort: true, make: calico + `forget`, fails: none},
		{name: "pods of the plugin ptp", make: plugin + `forget`, fails: none},
		{
			name: "pods of Calico, and the gateway's network is by the uplink", fails: none,
			make: calico + `ip route add 169.254.0.0/16 dev eth0; forget`,
		},
		{
			name: "the route to an endpoint on a link of its own is gone", make: routed + `ip route del $L dev $LV`,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "Calico's route to an endpoint is gone", make: calico + `ip route del $L`, fails: some,
			named: `10\.245\.1\.5`,
		},
		{
			name: "Calico's route to an endpoint is gone, IPv6", v6: true, make: calico + `ip -6 route del $L6`, fails: some,
			named: `fd00:10:245:1::5`,
		},
		{
			name: "Calico's route to an endpoint is gone, from the node", from: "node", make: calico + `ip route del $L`,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "Calico's route to an endpoint is gone, from outside", from: "outside", nodePort: true,
			make: calico + `ip route del $L`, fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "Calico's route to the client is gone, and its entry", make: calico + `ip route del $C`, then: forgetAll,
			fails: all, named: `10\.245\.1\.6`,
		},
		{
			name: "Calico's route to an endpoint is by another pod, and its entry is gone", fails: some,
			make: calico + `ip route replace $L dev $CV scope link`, then: forgetAll, named: `10\.245\.1\.5`,
		},
		{
			name: "Calico's gateway, and no default route", make: calico + `ip route del default; forget`, fails: all,
			named: `169\.254\.1\.1`,
		},
		{
			name: "Calico's gateway is on the client's own link", fails: all, named: `169\.254\.0\.0/16 dev cali1`,
			make: calico + `ip route add 169.254.0.0/16 dev $CV; forget`,
		},
		{
			name: "a route refuses Calico's gateway", make: calico + `ip route add blackhole 169.254.0.0/16; forget`,
			fails: all, named: `blackhole 169\.254\.0\.0/16`,
		},
		{
			name: "the default route refuses Calico's gateway", fails: all, named: `unreachable default`,
			make: calico + `ip route replace unreachable default; forget`,
		},
		{
			name: "the table of the client's link has no route to Calico's gateway", fails: all, named: `lookup 77`,
			make: calico + `ip rule add pref 20 iif $CV lookup 77; ip route add $L dev $LV table 77
				ip route add $RCIDR via $RNODE table 77; ip route add 10.245.2.0/24 via $QNODE table 77
				ip route add unreachable default table 77; forget`,
		},
		{
			name: "a rule refuses Calico's gateway", fails: all, named: `20: from all to 169\.254\.0\.0/16 blackhole`,
			make: calico + `ip rule add pref 20 to 169.254.0.0/16 blackhole; forget`,
		},
		{
			name: "medium_id keeps the node from answering for Calico's gateway", fails: all, named: `medium_id=-1`,
			make: calico + `sysctl -qw net.ipv4.conf.$CV.medium_id=-1; forget`,
		},
		{
			name: "the links of pods have lost the gateway's address, and their routes", fails: all,
			make:  plugin + `ip addr del 10.245.1.1/32 dev $CV; ip addr del 10.245.1.1/32 dev $LV; forget`,
			named: `10\.245\.1\.`,
		},
		{
			name: "the client's link has lost the gateway's address", fails: all, named: `10\.245\.1\.6`,
			make: plugin + `ip addr del 10.245.1.1/32 dev $CV; sysctl -qw net.ipv4.conf.all.arp_ignore=1; forget`,
		},
	}
}
