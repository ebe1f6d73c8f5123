// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// keys are those of WireGuard: the private and the public one of each node, and of a third that is nowhere.
var keys = func() *strings.Replacer {
	var out []string
	for i, name := range []string{"1", "2", "3"} {
		key, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{byte(i + 1)}, 32))
		if err != nil {
			panic(err)
		}
		out = append(out, "PRIVATE"+name, base64.StdEncoding.EncodeToString(key.Bytes()),
			"PUBLIC"+name, base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()))
	}
	return strings.NewReplacer(out...)
}()

// tunnels are how the nodes of the topology are connected, in place of direct routes: what is done on each of them, OWN
// being its number and PEER that of the other one.
var tunnels = map[string][]string{
	"ipip": { // as Calico
		"ip addr add 10.244.OWN.0/32 dev tunl0", "ip link set tunl0 up",
		"ip route replace 10.244.PEER.0/24 via 192.168.50.PEER dev tunl0 onlink",
	},
	"ipip-points": { // as kube-router
		"ip link add tun type ipip local 192.168.50.OWN remote 192.168.50.PEER", "ip link set tun up",
		"ip route replace 10.244.PEER.0/24 dev tun",
	},
	"gre": {
		"ip link add gre7 type gre local 192.168.50.OWN remote 192.168.50.PEER key 7", "ip link set gre7 up",
		"ip route replace 10.244.PEER.0/24 dev gre7",
	},
	"gre-points": { // of many ends, by the table of neighbours
		"ip link add gre7 type gre local 192.168.50.OWN key 7", "ip addr add 10.245.0.OWN/24 dev gre7",
		"ip link set gre7 up", "ip neigh add 10.245.0.PEER lladdr 192.168.50.PEER dev gre7 nud permanent",
		"ip route replace 10.244.PEER.0/24 via 10.245.0.PEER dev gre7",
	},
	"geneve": {
		"ip link add gnv address 02:00:00:00:07:0OWN type geneve id 7 remote 192.168.50.PEER",
		"ip addr add 10.245.0.OWN/24 dev gnv", "ip link set gnv up",
		"ip route replace 10.244.PEER.0/24 via 10.245.0.PEER",
	},
	"wireguard": { // as flannel
		"ip link add flannel-wg type wireguard",
		"echo PRIVATEOWN | wg set flannel-wg private-key /dev/fd/0 listen-port 51820",
		"wg set flannel-wg peer PUBLICPEER endpoint 192.168.50.PEER:51820 allowed-ips 10.244.PEER.0/24",
		"ip addr add 10.244.OWN.0/32 dev flannel-wg", "ip link set flannel-wg up",
		"ip route replace 10.244.PEER.0/24 dev flannel-wg",
	},
}

// tunnelDevs are the interfaces that are made for tunnels.
var tunnelDevs = map[string]string{
	"ipip-points": "tun", "gre": "gre7", "gre-points": "gre7", "geneve": "gnv", "wireguard": "flannel-wg",
}

// tunnelLines are the lines that connect the nodes by a tunnel.
func tunnelLines(kind string) []string {
	var out []string
	for own := 1; own <= 2; own++ {
		out = append(out, onNode(own, tunnels[kind]...)...)
	}
	return out
}

// onNode are lines for one of the two nodes, with its number for OWN, and the other one's for PEER.
func onNode(own int, lines ...string) []string {
	words := strings.NewReplacer("OWN", strconv.Itoa(own), "PEER", strconv.Itoa(3-own))
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = words.Replace("nodeOWN " + l)
	}
	return out
}

// Routes by which the tunnel's packets to the endpoint's node go by the host outside.
var overRouter = []string{
	"node1 ip route add 192.168.50.2/32 via 192.168.60.2", "outside sysctl -qw net.ipv4.ip_forward=1",
	"outside ip route add 192.168.50.2/32 via 192.168.61.1", "outside ip route add 192.168.50.1/32 via 192.168.60.1",
}

// tunnelFaults are made for real by TestTunnelsAgainstTheKernel, on a kernel that has such tunnels, and read from what
// it recorded by TestRecordedTopologies.
var tunnelFaults = []fault{
	{name: "IPIP: healthy", tunnel: "ipip", listen: ":8080", works: true},
	{name: "IPIP: healthy, between points", tunnel: "ipip-points", listen: ":8080", works: true},
	{
		name: "trap: IPIP: the client is masqueraded", tunnel: "ipip", listen: ":8080", works: true,
		do: []string{masquerade},
	},
	{
		name: "trap: IPIP: the answer goes without the tunnel", tunnel: "ipip", listen: ":8080", works: true,
		do: []string{"node2 ip route replace 10.244.1.0/24 via 192.168.50.1"},
	},
	{
		name: "trap: IPIP: a TTL of 1 is enough for a neighbour", tunnel: "ipip-points", listen: ":8080", works: true,
		do: []string{"node1 ip link set tun type ipip local 192.168.50.1 remote 192.168.50.2 ttl 1"},
	},
	{
		name: "IPIP: a TTL of 1, and a router", tunnel: "ipip-points", listen: ":8080",
		do: append([]string{
			"node1 ip link set tun type ipip local 192.168.50.1 remote 192.168.50.2 ttl 1",
		}, overRouter...),
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "IPIP: a router of which nothing is read", tunnel: "ipip-points", listen: ":8080", works: true, do: overRouter,
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown,
	},
	{
		name: "IPIP: the tunnel's packets go into itself", tunnel: "ipip-points", listen: ":8080",
		do:      []string{"node1 ip route add 192.168.50.2/32 dev tun"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "IPIP: the other end is down", tunnel: "ipip", listen: ":8080", do: []string{"node2 ip link set tunl0 down"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "IPIP: the endpoint's node has another remote", tunnel: "ipip-points", listen: ":8080",
		do:      []string{"node2 ip link set tun type ipip local 192.168.50.2 remote 192.168.50.77"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "IPIP: the client's node has a remote that nobody is", tunnel: "ipip-points", listen: ":8080",
		do:      []string{"node1 ip link set tun type ipip local 192.168.50.1 remote 192.168.50.77"},
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown,
	},
	{
		name: "IPIP: the route leads to an address that nobody has", tunnel: "ipip", listen: ":8080",
		do:      []string{"node1 ip route replace 10.244.2.0/24 via 192.168.50.77 dev tunl0 onlink"},
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown,
	},
	{
		name: "IPIP: the client's node drops the tunnel's packets", tunnel: "ipip", listen: ":8080",
		do:      []string{"node1 iptables-nft -A OUTPUT -p 4 -j DROP"},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},
	{
		name: "IPIP: the endpoint's node drops the tunnel's packets", tunnel: "ipip", listen: ":8080",
		do:      []string{"node2 iptables-nft -A INPUT -p 4 -j DROP"},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},
	{
		name: "IPIP: the endpoint's node lets in TCP and UDP alone", tunnel: "ipip", listen: ":8080",
		do: []string{
			"node2 iptables-nft -P INPUT DROP", "node2 iptables-nft -A INPUT -p tcp -j ACCEPT",
			"node2 iptables-nft -A INPUT -p udp -j ACCEPT",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},
	{
		name: "IPIP: the client's node drops the answer's outer packets", tunnel: "ipip", listen: ":8080",
		do:      []string{"node1 iptables-nft -A INPUT -p 4 -j DROP"},
		segment: report.SegmentAnswer, code: endtoend.TunnelDropped,
	},
	{
		name: "IPIP: the answer goes without the tunnel, and the reverse path filter is strict", tunnel: "ipip",
		listen: ":8080", do: []string{
			"node2 ip route replace 10.244.1.0/24 via 192.168.50.1", "node2 sysctl -qw net.ipv4.conf.tunl0.rp_filter=1",
		},
		segment: report.SegmentEndpointNode, code: endtoend.EndpointNodeDrops,
	},
	{
		name: "IPIP: the endpoint's node has a smaller MTU", tunnel: "ipip", listen: ":8080", works: true, hangs: true,
		do:      []string{"client ip link set eth0 gso_max_segs 1", "node2 ip link set eth0 mtu 1000"},
		segment: report.SegmentNetwork, code: endtoend.LinkMTUDiffers, verdict: report.SegmentUnknown,
	},

	{name: "GRE: healthy, with a key", tunnel: "gre", listen: ":8080", works: true},
	{name: "GRE: healthy, by the table of neighbours", tunnel: "gre-points", listen: ":8080", works: true},
	{
		// The kernel makes an entry of its own, with the tunnel's local address, and collects it again (arp_constructor in
		// net/ipv4/arp.c).
		name: "GRE: no neighbour", tunnel: "gre-points", listen: ":8080",
		do:      []string{"node1 ip neigh del 10.245.0.2 dev gre7"},
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown, known: endtoend.TunnelPeerMissing,
	},
	{
		name: "GRE: another key", tunnel: "gre", listen: ":8080",
		do: []string{
			"node2 ip link set gre7 type gre local 192.168.50.2 remote 192.168.50.1 key 8",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "GRE: no key at the other end", tunnel: "gre", listen: ":8080",
		do: []string{
			"node2 ip link del gre7", "node2 ip link add gre7 type gre local 192.168.50.2 remote 192.168.50.1",
			"node2 ip link set gre7 up", "node2 ip route replace 10.244.1.0/24 dev gre7",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "trap: GRE: another key, and the kernel's own interface takes it", tunnel: "gre", listen: ":8080", works: true,
		do: []string{
			"node2 ip link set gre7 type gre local 192.168.50.2 remote 192.168.50.1 ikey 8 okey 7",
			"node2 ip link set gre0 up",
		},
	},
	{
		name: "GRE: the client's node drops the tunnel's packets", tunnel: "gre", listen: ":8080",
		do:      []string{"node1 iptables-nft -A OUTPUT -p gre -j DROP"},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},
	{
		name: "GRE: the endpoint's node drops the tunnel's packets", tunnel: "gre", listen: ":8080",
		do:      []string{"node2 iptables-nft -t raw -A PREROUTING -p gre -j DROP"},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},

	{name: "Geneve: healthy", tunnel: "geneve", listen: ":8080", works: true},
	{
		name: "Geneve: another network", tunnel: "geneve", listen: ":8080",
		do: []string{
			"node2 ip link del gnv", "node2 ip link add gnv address 02:00:00:00:07:02 type geneve id 8 remote 192.168.50.1",
			"node2 ip addr add 10.245.0.2/24 dev gnv", "node2 ip link set gnv up",
			"node2 ip route replace 10.244.1.0/24 via 10.245.0.1",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "Geneve: another port", tunnel: "geneve", listen: ":8080",
		do: []string{
			"node2 ip link del gnv",
			"node2 ip link add gnv address 02:00:00:00:07:02 type geneve id 7 remote 192.168.50.1 dstport 6082",
			"node2 ip addr add 10.245.0.2/24 dev gnv", "node2 ip link set gnv up",
			"node2 ip route replace 10.244.1.0/24 via 10.245.0.1",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "Geneve: the endpoint's node has another remote", tunnel: "geneve", listen: ":8080",
		do:      []string{"node2 ip link set gnv type geneve id 7 remote 192.168.50.77"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "Geneve: the other end is down", tunnel: "geneve", listen: ":8080", do: []string{"node2 ip link set gnv down"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "Geneve: the endpoint's node drops the tunnel's packets", tunnel: "geneve", listen: ":8080",
		do:      []string{"node2 iptables-nft -A INPUT -p udp --dport 6081 -j DROP"},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},
	{
		name: "Geneve: a wrong neighbour", tunnel: "geneve", listen: ":8080",
		do:      []string{"node1 ip neigh replace 10.245.0.2 lladdr 02:00:00:00:99:99 dev gnv nud permanent"},
		segment: report.SegmentNetwork, code: endtoend.EndToEndWrongNeighbour,
	},

	{name: "WireGuard: healthy", tunnel: "wireguard", listen: ":8080", works: true},
	{
		name: "trap: WireGuard: its packets have a mark", tunnel: "wireguard", listen: ":8080", works: true,
		do: []string{
			"node1 wg set flannel-wg fwmark 0x77", "node1 iptables-nft -P OUTPUT DROP",
			"node1 iptables-nft -A OUTPUT -m mark --mark 0x77 -j ACCEPT",
			"node1 iptables-nft -A OUTPUT -p icmp -j ACCEPT", // it tells the pod how large packets may be
		},
	},
	{
		name: "trap: WireGuard: the same preshared key at both", tunnel: "wireguard", listen: ":8080", works: true,
		do: []string{
			"node1 echo PRIVATE3 | wg set flannel-wg peer PUBLIC2 preshared-key /dev/fd/0",
			"node2 echo PRIVATE3 | wg set flannel-wg peer PUBLIC1 preshared-key /dev/fd/0",
		},
	},
	{
		name: "WireGuard: no peer has the endpoint", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node1 wg set flannel-wg peer PUBLIC2 allowed-ips 10.244.2.128/25"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: the endpoint's node does not take the client", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node2 wg set flannel-wg peer PUBLIC1 allowed-ips 10.244.1.128/25"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: the key of nobody", tunnel: "wireguard", listen: ":8080",
		do: []string{
			"node1 wg set flannel-wg peer PUBLIC2 remove",
			"node1 wg set flannel-wg peer PUBLIC3 endpoint 192.168.50.2:51820 allowed-ips 10.244.2.0/24",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: the endpoint's node does not know the key", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node2 wg set flannel-wg peer PUBLIC1 remove"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: a preshared key at one end", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node1 echo PRIVATE3 | wg set flannel-wg peer PUBLIC2 preshared-key /dev/fd/0"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: two preshared keys", tunnel: "wireguard", listen: ":8080",
		do: []string{
			"node1 echo PRIVATE3 | wg set flannel-wg peer PUBLIC2 preshared-key /dev/fd/0",
			"node2 echo PRIVATE1 | wg set flannel-wg peer PUBLIC1 preshared-key /dev/fd/0",
		},
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown,
	},
	{
		name: "WireGuard: the client's node drops the tunnel's packets", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node1 iptables-nft -A OUTPUT -p udp --dport 51820 -j DROP"},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},
	{
		name: "WireGuard: the endpoint's node drops the tunnel's packets", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node2 iptables-nft -A INPUT -p udp --dport 51820 -j DROP"},
		segment: report.SegmentNetwork, code: endtoend.TunnelDropped,
	},
	{
		name: "WireGuard: another port", tunnel: "wireguard", listen: ":8080",
		do: []string{
			"node1 wg set flannel-wg peer PUBLIC2 endpoint 192.168.50.2:51821",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: the peer's address is not known", tunnel: "wireguard", listen: ":8080",
		do: []string{
			"node1 wg set flannel-wg peer PUBLIC2 remove", "node1 wg set flannel-wg peer PUBLIC2 allowed-ips 10.244.2.0/24",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: the peer's address is of nobody", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node1 wg set flannel-wg peer PUBLIC2 endpoint 192.168.50.77:51820"},
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown,
	},
	{
		name: "WireGuard: the other end is down", tunnel: "wireguard", listen: ":8080",
		do:      []string{"node2 ip link set flannel-wg down"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "WireGuard: its packets go into itself", tunnel: "wireguard", listen: ":8080",
		do: []string{
			"node1 wg set flannel-wg peer PUBLIC2 allowed-ips 10.244.2.0/24,192.168.50.2/32",
			"node1 ip route add 192.168.50.2/32 dev flannel-wg",
		},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
}

// notRecorded are those of which there is no snapshot yet: TestTunnelsAgainstTheKernel alone makes them.
var notRecorded = map[string]bool{
	"IPIP: a router of which nothing is read":                                         true,
	"IPIP: the client's node has a remote that nobody is":                             true,
	"IPIP: the route leads to an address that nobody has":                             true,
	"IPIP: the client's node drops the tunnel's packets":                              true,
	"IPIP: the endpoint's node lets in TCP and UDP alone":                             true,
	"IPIP: the client's node drops the answer's outer packets":                        true,
	"IPIP: the answer goes without the tunnel, and the reverse path filter is strict": true,
	"IPIP: the endpoint's node has a smaller MTU":                                     true,
	"GRE: no neighbour":            true,
	"GRE: no key at the other end": true,
	"trap: GRE: another key, and the kernel's own interface takes it": true,
	"GRE: the client's node drops the tunnel's packets":               true,
	"Geneve: another port":                                    true,
	"Geneve: the endpoint's node has another remote":          true,
	"Geneve: the endpoint's node drops the tunnel's packets":  true,
	"Geneve: a wrong neighbour":                               true,
	"trap: WireGuard: its packets have a mark":                true,
	"trap: WireGuard: the same preshared key at both":         true,
	"WireGuard: the client's node drops the tunnel's packets": true,
	"WireGuard: the peer's address is not known":              true,
	"WireGuard: the peer's address is of nobody":              true,
	"WireGuard: the other end is down":                        true,
	"WireGuard: its packets go into itself":                   true,
}
