// SPDX-License-Identifier: Apache-2.0

package faults

// gatewayFaults: the bridge of the pods has no address that could be their gateway.
func gatewayFaults() []fault {
	const (
		noGateway4 = `ip addr del 10.245.1.1/24 dev cni0; ip route add 10.245.1.0/24 dev cni0
			`
		noGateway6 = `ip -6 addr del fd00:10:245:1::1/64 dev cni0; ip -6 route replace fd00:10:245:1::/64 dev cni0
			`
	)
	return []fault{
		{
			name: "the pods' bridge has an address of the link alone, IPv6", v6: true,
			make:  noGateway6 + `forget`,
			fails: all, named: `cni0`,
		},
		{
			name: "the pods' bridge has its address on lo, IPv6", v6: true,
			make:  noGateway6 + `ip -6 addr add fd00:10:245:1::1/128 dev lo; forget`,
			fails: all, named: `cni0`,
		},
		{
			name: "the pods' bridge has its address on another bridge, IPv6", v6: true,
			make: `ip link add b9 type bridge; ip link set b9 up
				` + noGateway6 + `ip -6 addr add fd00:10:245:1::1/128 dev b9 nodad; forget`,
			fails: all, named: `cni0`,
		},
		{
			name: "the pods' bridge has its address on lo, from an endpoint, IPv6", from: "endpoint", v6: true,
			make:  noGateway6 + `ip -6 addr add fd00:10:245:1::1/128 dev lo; forget`,
			fails: all, named: `cni0`,
		},
		{
			name: "the lifetime of the address of the pods' bridge is over, IPv6", v6: true,
			make: `ip -6 addr change fd00:10:245:1::1/64 dev cni0 valid_lft 2 preferred_lft 1
				ip -6 route replace fd00:10:245:1::/64 dev cni0 metric 10; sleep 3.5; forget`,
			fails: all, named: `cni0`,
		},
		{
			name:  "the pods' bridge has no address, and a network is routed to a pod",
			make:  noGateway4 + `ip route add 198.51.100.0/24 via $L dev cni0; forget`,
			fails: all, named: `cni0`,
		},
		{
			name: "the pods' bridge has no address, and a port that is a tunnel",
			make: noGateway4 + `ip link add vx0 type vxlan id 5 dstport 4789 remote 10.79.0.12 dev eth0
				ip link set vx0 master cni0 up; forget`,
			fails: all, named: `cni0`,
		},
		{
			name: "the pods' bridge has no address, and a port whose other end is on the node",
			make: noGateway4 + `ip link add a0 type veth peer name a1; ip link set a0 master cni0 up; ip link set a1 up
				forget`,
			fails: all, named: `cni0`,
		},
		{
			name:  "the pods' bridge has an address of the link alone",
			make:  noGateway4 + `ip addr add 169.254.1.1/32 dev cni0; forget`,
			fails: all, named: `cni0`,
		},
	}
}
