// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The topology: two nodes on one link, each with a bridge and a pod on it.
//
//	client 10.244.1.5 ── cni0 node1 eth0 192.168.50.1 ══ 192.168.50.2 eth0 node2 cni0 ── endpoint 10.244.2.9
var (
	frontend = netip.MustParseAddrPort("10.96.0.10:80")
	endpoint = netip.MustParseAddrPort("10.244.2.9:8080")
	client   = netip.MustParseAddr("10.244.1.5")
)

type topology struct {
	t     *testing.T
	names map[string]*testutil.Namespace
	key   map[string]netip.Addr // an address by which a namespace is found
}

// run runs lines "NAMESPACE COMMAND…".
func (n *topology) run(lines ...string) {
	n.t.Helper()
	for _, l := range lines {
		words := strings.Fields(l)
		for i, w := range words {
			if other := n.names[strings.TrimPrefix(w, "@")]; strings.HasPrefix(w, "@") && other != nil {
				words[i] = other.PID
			}
		}
		n.names[words[0]].Run(n.t, words[1:]...)
	}
}

func newTopology(t *testing.T, vxlan bool) *topology {
	t.Helper()
	n := &topology{t: t, names: map[string]*testutil.Namespace{}, key: map[string]netip.Addr{
		"client": client, "endpoint": endpoint.Addr(), "node1": netip.MustParseAddr("192.168.50.1"),
		"node2": netip.MustParseAddr("192.168.50.2"),
	}}
	for _, name := range []string{"client", "node1", "node2", "endpoint"} {
		n.names[name] = testutil.NewNamespace(t)
		n.run(name + " ip link set lo up")
	}
	n.run("node1 ip link add eth0 type veth peer name eth0 netns @node2",
		"node1 ip addr add 192.168.50.1/24 dev eth0", "node2 ip addr add 192.168.50.2/24 dev eth0",
		"node1 ip link set eth0 up", "node2 ip link set eth0 up")
	for i, pod := range []string{"client", "endpoint"} {
		node := fmt.Sprintf("node%d", i+1)
		n.run(node+" ip link add cni0 type bridge", fmt.Sprintf("%s ip addr add 10.244.%d.1/24 dev cni0", node, i+1),
			node+" ip link set cni0 up",
			node+" ip link add vethpod type veth peer name eth0 netns @"+pod,
			node+" ip link set vethpod master cni0", node+" ip link set vethpod up",
			fmt.Sprintf("%s ip addr add %s/24 dev eth0", pod, n.key[pod]), pod+" ip link set eth0 up",
			fmt.Sprintf("%s ip route add default via 10.244.%d.1", pod, i+1),
			node+" sysctl -qw net.ipv4.ip_forward=1")
	}
	n.run(fmt.Sprintf("node1 iptables-nft -t nat -A PREROUTING -d %s -p tcp --dport %d -j DNAT --to-destination %s",
		frontend.Addr(), frontend.Port(), endpoint))
	n.carrier()
	if !vxlan {
		n.run("node1 ip route add 10.244.2.0/24 via 192.168.50.2", "node2 ip route add 10.244.1.0/24 via 192.168.50.1")
		return n
	}
	for i := 1; i <= 2; i++ {
		n.run(fmt.Sprintf("node%d ip link add flannel.1 address 02:00:00:00:00:%02d type vxlan id 1 local 192.168.50.%d "+
			"dev eth0 dstport 8472 nolearning", i, i, i),
			fmt.Sprintf("node%d ip addr add 10.244.%d.0/32 dev flannel.1", i, i),
			fmt.Sprintf("node%d ip link set flannel.1 up", i))
	}
	for i := 1; i <= 2; i++ {
		o := 3 - i
		n.run(fmt.Sprintf("node%d ip route add 10.244.%d.0/24 via 10.244.%d.0 dev flannel.1 onlink", i, o, o),
			fmt.Sprintf("node%d ip neigh add 10.244.%d.0 lladdr 02:00:00:00:00:%02d dev flannel.1 nud permanent", i, o, o),
			fmt.Sprintf("node%d bridge fdb add 02:00:00:00:00:%02d dev flannel.1 dst 192.168.50.%d", i, o, o))
	}
	return n
}

// carrier waits until the kernel has noticed that both ends of each link are up (linkwatch_event in
// net/core/link_watch.c).
func (n *topology) carrier() {
	n.t.Helper()
	for name, of := range n.names {
		for strings.Contains(of.Run(n.t, "ip", "-o", "link"), "NO-CARRIER") {
			if n.t.Context().Err() != nil {
				n.t.Fatalf("%s has a link without a carrier", name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// listen listens in the endpoint's pod until the test ends; what is accepted is answered by what came.
func (n *topology) listen(address string) {
	n.t.Helper()
	var l net.Listener
	var err error
	testutil.NewThread(n.t, n.names["endpoint"].Path).Do(func() {
		l, err = (&net.ListenConfig{}).Listen(n.t.Context(), "tcp", address)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	testutil.Serve(n.t, l, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// full makes a listener whose process accepts nothing, and fills its queue.
func (n *topology) full() {
	n.t.Helper()
	var fd int
	var err error
	testutil.NewThread(n.t, n.names["endpoint"].Path).Do(func() {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(endpoint.Port())}); err == nil {
			err = unix.Listen(fd, 1)
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = unix.Close(fd) })
	for range 4 {
		n.connects(0)
	}
}

// connects tells whether a connection from the client is accepted, and whether size bytes over it come back.
func (n *topology) connects(size int) bool {
	var c net.Conn
	var err error
	testutil.NewThread(n.t, n.names["client"].Path).Do(func() {
		c, err = (&net.Dialer{Timeout: time.Second}).DialContext(n.t.Context(), "tcp", frontend.String())
	})
	if err != nil {
		return false
	}
	n.t.Cleanup(func() { c.Close() })
	if size == 0 {
		return true
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write(make([]byte, size)); err != nil {
		return false
	}
	got := 0
	for buf := make([]byte, size); got < size; {
		k, err := c.Read(buf)
		if err != nil {
			return false
		}
		got += k
	}
	return true
}

// read reads a namespace as the helper does; a node's also has its forwarding table.
func (n *topology) read(name string) *nodestate.State {
	n.t.Helper()
	files, unread := map[string][]byte{}, map[string]string{}
	err := collect.Pod(n.t.Context(), collect.Options{Root: "/"}, podns.Pod{Addresses: []netip.Addr{n.key[name]}},
		func(f collect.File) error {
			if f.Unread != "" {
				unread[f.Name] = f.Unread
				return nil
			}
			files[f.Name] = f.Data
			return nil
		})
	if err != nil {
		n.t.Fatalf("%s: %v", name, err)
	}
	if strings.HasPrefix(name, "node") {
		files[snapshot.BridgeFDBFile] = []byte(n.names[name].Run(n.t, "bridge", "-j", "fdb", "show"))
	}
	files[snapshot.UnreadFile] = snapshot.EncodeUnread(unread)
	s, err := nodestate.Load(snapshot.NewNode(name, files))
	if err != nil {
		n.t.Fatalf("%s: %v", name, err)
	}
	return s
}

// connection is one of the client's pod to an address and port, over what is read now, without endpoints.
func (n *topology) connection(proto uint8, to netip.AddrPort) *endtoend.Connection {
	n.t.Helper()
	return &endtoend.Connection{
		Start: netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
			Family: netfilter.IPv4, Proto: proto, Src: client, Dst: to.Addr(), DstPort: to.Port(), In: "cni0",
		}},
		Client: &endtoend.Node{State: n.read("node1"), Pods: map[string]*endtoend.Pod{
			"shop/client": {State: n.read("client")},
		}},
		Pod:    "shop/client",
		Walker: func(s *nodestate.State) *netfilter.Walker { return judge.NewWalker(s, s.Host) },
		NodeAt: func(a netip.Addr) string {
			for name, key := range n.key {
				if key == a && strings.HasPrefix(name, "node") {
					return name
				}
			}
			return ""
		},
		Cite: func(r netfilter.Ref) report.Evidence {
			e := report.Evidence{Where: report.RuleRef{Table: r.Chain.Table.Name, Chain: r.Chain.Name}}
			if r.Rule != nil {
				e.Where.Rule, e.Text = r.Rule.Num, r.Rule.Text
			}
			return e
		},
	}
}

// segments follows the connection over what is read now.
func (n *topology) segments() []report.Segment {
	n.t.Helper()
	c := n.connection(netfilter.TCP, frontend)
	c.Endpoints = []endtoend.Endpoint{{At: endpoint, Pod: "shop/web", Node: "node2"}}
	c.Nodes = map[string]*endtoend.Node{"node1": c.Client, "node2": {
		State: n.read("node2"), Pods: map[string]*endtoend.Pod{"shop/web": {State: n.read("endpoint")}},
	}}
	return c.Segments(&report.Segment{
		Segment: report.SegmentClientNode, Place: "node node1", Verdict: report.SegmentRight, Message: "judged elsewhere",
	})
}

// What the kernel does with a connection and what is said of it agree: healthy, and with each fault made for real; the
// segment is the one that the fault is in, and those before it are right.
func TestAgainstTheKernel(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "bridge", "iptables-nft", "nsenter", "sysctl") {
		return
	}
	for _, c := range []struct {
		name    string
		vxlan   bool
		listen  string // "": nobody does; full: the queue is
		do      []string
		segment string // "": all are right
		code    string
		verdict report.SegmentVerdict
		works   bool // small packets come through all the same
	}{
		{name: "healthy, direct routes", listen: ":8080", works: true},
		{name: "healthy, VXLAN", vxlan: true, listen: "10.244.2.9:8080", works: true},
		{
			name: "healthy, the answer's neighbour is not known yet", listen: ":8080", works: true,
			do: []string{"node2 ip neigh flush all"},
		},
		{
			name: "listens on 127.0.0.1", listen: "127.0.0.1:8080",
			segment: report.SegmentEndpointPod, code: endtoend.EndpointListensElse,
		},
		{
			name: "listens on IPv6 only", listen: "[::1]:8080",
			segment: report.SegmentEndpointPod, code: endtoend.EndpointListensElse,
		},
		{
			name: "listens at another port", listen: ":9090", segment: report.SegmentEndpointPod,
			code: endtoend.EndpointListensElse,
		},
		{name: "nothing listens", segment: report.SegmentEndpointPod, code: endtoend.EndpointNotListening},
		{name: "the queue is full", listen: "full", segment: report.SegmentEndpointPod, code: endtoend.BacklogFull},
		{
			name: "the pod's firewall drops", listen: ":8080", segment: report.SegmentEndpointPod, code: endtoend.PodDrops,
			do: []string{"endpoint iptables-nft -A INPUT -p tcp --dport 8080 -j DROP"},
		},
		{
			name: "no route in the client's pod", listen: ":8080", segment: report.SegmentClientPod, code: endtoend.PodNoRoute,
			do: []string{"client ip route del default"},
		},
		{
			name: "the client's pod drops", listen: ":8080", segment: report.SegmentClientPod, code: endtoend.PodDrops,
			do: []string{"client iptables-nft -A OUTPUT -d 10.96.0.0/12 -j DROP"},
		},
		{
			name: "no route in the endpoint's pod", listen: ":8080", segment: report.SegmentAnswer,
			code: endtoend.EndToEndAnswerLost, do: []string{"endpoint ip route del default"},
		},
		{
			name: "no entry of the tunnel's table", vxlan: true, listen: ":8080", segment: report.SegmentNetwork,
			code: endtoend.TunnelPeerMissing, do: []string{"node1 bridge fdb del 02:00:00:00:00:02 dev flannel.1"},
		},
		{
			name: "no entry of the tunnel's table for the answer", vxlan: true, listen: ":8080", segment: report.SegmentAnswer,
			code: endtoend.TunnelPeerMissing, do: []string{"node2 bridge fdb del 02:00:00:00:00:01 dev flannel.1"},
		},
		{
			name: "a firewall drops the tunnel's packets", vxlan: true, listen: ":8080", segment: report.SegmentNetwork,
			code: endtoend.TunnelDropped, do: []string{"node2 iptables-nft -A INPUT -p udp --dport 8472 -j DROP"},
		},
		{
			name: "the tunnel's other end is down", vxlan: true, listen: ":8080", segment: report.SegmentNetwork,
			code: endtoend.TunnelPeerMissing, do: []string{"node2 ip link set flannel.1 down"},
		},
		{
			name: "FORWARD drops on the endpoint's node", listen: ":8080", segment: report.SegmentEndpointNode,
			code: endtoend.EndpointNodeDrops, do: []string{"node2 iptables-nft -A FORWARD -d 10.244.2.9 -j DROP"},
		},
		{
			name: "the endpoint's node does not forward", vxlan: true, listen: ":8080", segment: report.SegmentEndpointNode,
			code: endtoend.EndpointNodeDrops, do: []string{"node2 sysctl -qw net.ipv4.ip_forward=0"},
		},
		{
			name: "the answer is dropped on the endpoint's node", listen: ":8080", segment: report.SegmentAnswer,
			code: endtoend.EndToEndAnswerLost, do: []string{"node2 iptables-nft -A FORWARD -s 10.244.2.9 -j DROP"},
		},
		{
			name: "no route for the answer on the endpoint's node", listen: ":8080", segment: report.SegmentAnswer,
			code: endtoend.EndToEndAnswerLost, do: []string{"node2 ip route del 10.244.1.0/24"},
		},
		{
			name: "a wrong neighbour", listen: ":8080", segment: report.SegmentNetwork, code: endtoend.EndToEndWrongNeighbour,
			do: []string{"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:99:99 dev eth0 nud permanent"},
		},
		{
			name: "a wrong neighbour for the pod", listen: ":8080", segment: report.SegmentEndpointNode,
			code: endtoend.EndToEndWrongNeighbour,
			do:   []string{"node2 ip neigh replace 10.244.2.9 lladdr 02:00:00:00:99:99 dev cni0 nud permanent"},
		},
		{
			name: "the endpoint's node has a smaller MTU", listen: ":8080", segment: report.SegmentNetwork,
			code: endtoend.LinkMTUDiffers, verdict: report.SegmentUnknown, works: true,
			// veth lets packets pass that are still to be cut (is_skb_forwardable), as no hardware does.
			do: []string{"client ip link set eth0 gso_max_segs 1", "node2 ip link set eth0 mtu 1000"},
		},
		{
			name: "trap: a rule for another port, and one for a pod beside it", listen: ":8080", works: true,
			do: []string{
				"endpoint iptables-nft -A INPUT -p tcp --dport 8081 -j DROP",
				"node2 iptables-nft -A FORWARD -d 10.244.2.10 -j DROP",
				"client iptables-nft -A INPUT -p tcp --dport 22 -j DROP",
			},
		},
		{
			name: "trap: only connections that are established pass back", listen: ":8080", works: true, do: []string{
				"node2 iptables-nft -P FORWARD DROP",
				"node2 iptables-nft -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
				"node2 iptables-nft -A FORWARD -d 10.244.2.9 -p tcp --dport 8080 -j ACCEPT",
				"client iptables-nft -P INPUT DROP",
				"client iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
			},
		},
		{
			name: "trap: the client is masqueraded", vxlan: true, listen: ":8080", works: true,
			do: []string{"node1 iptables-nft -t nat -A POSTROUTING -d 10.244.2.9 -j MASQUERADE"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTopology(t, c.vxlan)
			switch c.listen {
			case "":
			case "full":
				n.full()
			default:
				n.listen(c.listen)
			}
			n.run(c.do...)
			if got := n.connects(0); got != c.works {
				t.Fatalf("a connection is accepted: %v", got)
			}
			if c.code == endtoend.LinkMTUDiffers && n.connects(60_000) {
				t.Fatal("large packets come through")
			}
			want := c.verdict
			if want == "" {
				want = report.SegmentWrong
			}
			segments := n.segments()
			at := slices.IndexFunc(segments, func(s report.Segment) bool { return s.Verdict != report.SegmentRight })
			switch {
			case c.segment == "" && at >= 0:
				t.Errorf("%+v", segments[at])
			case c.segment == "" && len(segments) != 6:
				t.Errorf("%d segments: %+v", len(segments), segments)
			case c.segment == "":
			case at < 0:
				t.Errorf("all are right: %+v", segments)
			default:
				s := segments[at]
				if s.Segment != c.segment || s.Code != c.code || s.Verdict != want || s.Lost != (want == report.SegmentWrong) {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}
