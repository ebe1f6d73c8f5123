// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"context"
	"strings"
)

// The network around the node, which is the machine's first network namespace, as on a node with a router and no
// overlay:
//
//	client ── cni1 ┐
//	pods   ── cni0 ┤ node ── eth0 ── router ── outside
//
// client is a pod that asks, pods has the addresses of all of the node's endpoints, router those of all other nodes'
// endpoints, outside is whoever comes from outside. Those who ask and those who answer stay apart so that every answer
// passes the node. cni1 has the gateway's address, too: with kube-proxy's strictARP an interface answers for its own
// alone.
const layout = `
link add eth0 type veth peer name eth0 netns router
link add cni0 type veth peer name eth0 netns pods
link add cni1 type veth peer name eth0 netns client
address add 10.77.0.11/24 dev eth0
address add fd00:77::11/64 dev eth0 nodad
address add 10.244.1.1/24 dev cni0
address add fd00:10:244:1::1/64 dev cni0 nodad
address add 10.244.1.1/32 dev cni1
address add fd00:10:244:1::1/128 dev cni1 nodad
link set eth0 up
link set cni0 up
link set cni1 up
route add default via 10.77.0.1
route add fd00:77::1/128 dev eth0
route add default via fd00:77::1
route add 10.244.1.254/32 dev cni1
route add fd00:10:244:1:ffff:ffff:ffff:fffe/128 dev cni1
`

// layouts are those of the other namespaces.
var layouts = []struct{ namespace, batch string }{
	{"router", `
link add outside type veth peer name eth0 netns outside
address add 10.77.0.1/24 dev eth0
address add 10.77.0.12/24 dev eth0
address add fd00:77::1/64 dev eth0 nodad
link set lo up
link set eth0 up
link set outside up
address add 172.31.255.1/30 dev outside
address add fd00:ff::1/64 dev outside nodad
route add default via 10.77.0.11
route add default via fd00:77::11
`},
	{"pods", `
link set lo up
link set eth0 up
route add 10.244.1.1/32 dev eth0
route add default via 10.244.1.1
route add fd00:10:244:1::1/128 dev eth0
route add default via fd00:10:244:1::1
`},
	{"client", `
link set lo up
link set eth0 up
address add 10.244.1.254/32 dev eth0
address add fd00:10:244:1:ffff:ffff:ffff:fffe/128 dev eth0 nodad
route add 10.244.1.1/32 dev eth0
route add default via 10.244.1.1
route add fd00:10:244:1::1/128 dev eth0
route add default via fd00:10:244:1::1
`},
	{"outside", `
link set lo up
link set eth0 up
address add 172.31.255.2/30 dev eth0
address add fd00:ff::2/64 dev eth0 nodad
route add default via 172.31.255.1
route add default via fd00:ff::1
`},
}

// forwarding is what node and router have to do.
var forwarding = []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}

func layNetwork(ctx context.Context) error {
	for _, module := range []string{"dummy", "br_netfilter", "nf_conntrack", "sctp"} {
		if _, err := command(ctx, "", "modprobe", module); err != nil {
			return err
		}
	}
	for _, l := range layouts {
		if _, err := command(ctx, "", "ip", "netns", "add", l.namespace); err != nil {
			return err
		}
	}
	if _, err := command(ctx, "", "sysctl", append([]string{"-qw"}, forwarding...)...); err != nil {
		return err
	}
	if _, err := command(ctx, "", "ip", append([]string{"netns", "exec", "router", "sysctl", "-qw"},
		forwarding...)...); err != nil {
		return err
	}
	if _, err := command(ctx, strings.TrimSpace(layout), "ip", "-batch", "-"); err != nil {
		return err
	}
	for _, l := range layouts {
		if _, err := command(ctx, strings.TrimSpace(l.batch), "ip", "-netns", l.namespace, "-batch", "-"); err != nil {
			return err
		}
	}
	return nil
}
