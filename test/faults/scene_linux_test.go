// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The recorded node, and what its objects name.
const (
	recorded = "../../testdata/faults/iptables-neighbours/healthy"
	nodeName = "node1"
	service  = "faults"

	serviceIP, serviceIP6 = "10.97.199.129", "fd00:10:97::daa8"
)

// pods are those that connections are made from, by the name of the origin.
var pods = map[string]string{"": "faults-client-node1", "endpoint": "faults-54ff54844f-gm94n"}

// host is a namespace beside the node: a pod of it, or another node with an endpoint.
type host struct {
	dev      string    // its interface on the node, or of the network between the nodes
	own      [2]string // its addresses
	endpoint [2]string // of an endpoint in it, where that is another
	*testutil.Namespace
}

// scene is the node, which is the process's own namespace, and the hosts beside it.
type scene struct {
	client, local, remote, third *host
	lan                          *testutil.Namespace
	space                        map[string]string // files of namespaces, by origin
}

func newHost(t *testing.T, dev string, own, endpoint [2]string) *host {
	t.Helper()
	h := &host{dev: dev, own: own, endpoint: endpoint, Namespace: testutil.NewNamespace(t)}
	h.Run(t, "sh", "-ec", "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up")
	return h
}

func sh(t *testing.T, script string) {
	t.Helper()
	testutil.Run(t, "", "sh", "-ec", script)
}

// build makes the node and what is around it.
func build(t *testing.T) *scene {
	t.Helper()
	s := &scene{lan: testutil.NewNamespace(t)}
	s.client = newHost(t, "vethfad0f8b0", [2]string{"10.245.1.6", "fd00:10:245:1::6"}, [2]string{})
	s.local = newHost(t, "veth8f46cb60", [2]string{"10.245.1.5", "fd00:10:245:1::5"}, [2]string{})
	s.remote = newHost(t, "r", [2]string{"10.79.0.12", "fd00:79::12"}, [2]string{"10.245.0.4", "fd00:10:245::4"})
	s.third = newHost(t, "q", [2]string{"10.79.0.13", "fd00:79::13"}, [2]string{"10.245.2.4", "fd00:10:245:2::4"})
	sh(t, `for f in all default; do echo 0 >/proc/sys/net/ipv6/conf/$f/accept_dad; done
		modprobe -q br_netfilter || true
		ip link set lo up
		ip link add cni0 type bridge
		ip link set cni0 up
		ip addr add 10.245.1.1/24 brd + dev cni0; ip addr add fd00:10:245:1::1/64 dev cni0 nodad
		echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
		echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables; echo 1 >/proc/sys/net/bridge/bridge-nf-call-ip6tables
		echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet`)
	s.lan.Run(t, "sh", "-ec", `ip link set lo up; ip link add br0 type bridge; ip link set br0 up
		ip addr add 10.79.0.1/24 dev br0; ip addr add fd00:79::1/64 dev br0 nodad`)
	for _, h := range []*host{s.client, s.local} {
		sh(t, "ip link add "+h.dev+" type veth peer name eth0 netns "+h.PID+"; ip link set "+h.dev+" master cni0 up; "+
			"ip link set "+h.dev+" type bridge_slave hairpin on")
		h.Run(t, "sh", "-ec", "ip link set eth0 up; ip addr add "+h.own[0]+"/24 dev eth0; ip addr add "+h.own[1]+
			"/64 dev eth0 nodad; ip route add default via 10.245.1.1; ip -6 route add default via fd00:10:245:1::1")
	}
	sh(t, `ip link add eth0 type veth peer name node netns `+s.lan.PID+`
		ip link set eth0 up; ip addr add 10.79.0.11/24 dev eth0; ip addr add fd00:79::11/64 dev eth0 nodad
		ip route add default via 10.79.0.1; ip -6 route add default via fd00:79::1
		ip route add 10.245.0.0/24 via 10.79.0.12; ip route add 10.245.2.0/24 via 10.79.0.13
		ip -6 route add fd00:10:245::/64 via fd00:79::12; ip -6 route add fd00:10:245:2::/64 via fd00:79::13`)
	s.lan.Run(t, "ip", "link", "set", "node", "master", "br0", "up")
	for _, h := range []*host{s.remote, s.third} {
		s.lan.Run(t, "sh", "-ec", "ip link add "+h.dev+" type veth peer name eth0 netns "+h.PID+"; ip link set "+h.dev+
			" master br0 up")
		h.Run(t, "sh", "-ec", "ip link set eth0 up; ip addr add "+h.own[0]+"/24 dev eth0; ip addr add "+h.own[1]+
			"/64 dev eth0 nodad; ip addr add "+h.endpoint[0]+"/32 dev lo; ip addr add "+h.endpoint[1]+"/128 dev lo; "+
			"ip route add 10.245.1.0/24 via 10.79.0.11; ip -6 route add fd00:10:245:1::/64 via fd00:79::11")
	}
	for _, tool := range []string{"iptables", "ip6tables"} {
		rules, err := os.ReadFile(filepath.Join(recorded, "nodes", nodeName, tool+"-nft-save.txt"))
		if err != nil {
			t.Fatal(err)
		}
		testutil.Run(t, counters.ReplaceAllString(string(rules), ""), tool+"-nft-restore", "-c")
	}
	s.serve(t)
	s.space = map[string]string{
		"": s.client.Path, "node": "", "endpoint": s.local.Path, "outside": s.lan.Path,
	}
	return s
}

// counters are matches that count packets, which not every kernel has.
var counters = regexp.MustCompile(`-m nfacct --nfacct-name +\S+ `)

func (s *scene) serve(t *testing.T) {
	t.Helper()
	for _, h := range []*host{s.local, s.remote, s.third} {
		for i, a := range h.endpoint {
			if a == "" {
				a = h.own[i]
			}
			testutil.Echo(t, testutil.NewThread(t, h.Path), "tcp", netip.AddrPortFrom(netip.MustParseAddr(a), 8080).String())
			testutil.Echo(t, testutil.NewThread(t, h.Path), "udp", netip.AddrPortFrom(netip.MustParseAddr(a), 8080).String())
		}
	}
}

// How many connections are made, and how many at a time. Of so many to three endpoints none comes to a certain one once
// in 16,000 times; but none takes a certain one of two routes to a certain endpoint once in 80: where some are to fail
// and none does, others are made, five times as many at most.
const (
	connections = 24
	atOnce      = 12
	rounds      = 5
	patience    = 900 * time.Millisecond // a SYN that is lost is sent again after a second, maybe to another endpoint
)

// connect makes connections, and returns how many fail, with what some of them ended in.
func (s *scene) connect(t *testing.T, f *fault) (failed int, why string) {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(serviceIP), 80).String()
	if f.v6 {
		to = netip.AddrPortFrom(netip.MustParseAddr(serviceIP6), 80).String()
	}
	if f.nodePort {
		to = "10.79.0.11:30358"
		if f.v6 {
			to = "[fd00:79::11]:30358"
		}
	}
	if f.udp {
		to = "10.97.108.201:80"
	}
	size := len("hello\n")
	if f.large {
		size = 20_000
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range atOnce {
		th := testutil.NewThread(t, s.space[f.from])
		wg.Go(func() {
			for range connections / atOnce {
				var err error
				switch {
				case f.udp:
					_, err = testutil.Ask(th, "udp", netip.Addr{}, to, patience)
				case f.toEnd:
					_, err = testutil.AskToEnd(th, to, patience)
				default:
					_, err = testutil.AskLarge(th, to, size, patience)
				}
				if err != nil {
					mu.Lock()
					failed, why = failed+1, err.Error()
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed, why
}

// mac is the link-layer address of a host.
func mac(t *testing.T, h *host) string {
	t.Helper()
	return strings.Fields(h.Run(t, "ip", "-br", "link", "show", "dev", "eth0"))[2]
}

// script are variables and functions of the faults' scripts.
func (s *scene) script(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, v := range [][2]string{
		{"S", serviceIP},
		{"S6", serviceIP6},
		{"C", s.client.own[0]},
		{"C6", s.client.own[1]},
		{"L", s.local.own[0]},
		{"L6", s.local.own[1]},
		{"R", s.remote.endpoint[0]},
		{"R6", s.remote.endpoint[1]},
		{"RNODE", s.remote.own[0]},
		{"RNODE6", s.remote.own[1]},
		{"QNODE", s.third.own[0]},
		{"QNODE6", s.third.own[1]},
		{"RCIDR", "10.245.0.0/24"},
		{"RCIDR6", "fd00:10:245::/64"},
		{"CV", s.client.dev},
		{"LV", s.local.dev},
		{"CPID", s.client.PID},
		{"CMAC", mac(t, s.client)},
		{"LMAC", mac(t, s.local)},
		{"RMAC", mac(t, s.remote)},
		{"QMAC", mac(t, s.third)},
		{"LPID", s.local.PID},
		{"RPID", s.remote.PID},
		{"LANPID", s.lan.PID},
		{"QPID", s.third.PID},
	} {
		b.WriteString(v[0] + "=" + v[1] + "\n")
	}
	return b.String() + prelude
}

const prelude = `
set -e
# hook NAME FAMILY HOOK PRIORITY RULE...: a base chain with rules, which count what they drop
hook() {
	local name="fault_$1" family="$2"
	nft add table "$family" "$name"
	nft add chain "$family" "$name" c "{ type filter hook $3 priority $4; }"
	shift 4
	for r in "$@"; do nft add rule "$family" "$name" c "${r/%drop/counter drop}"; done
}
in_pod() { nsenter --net=/proc/$CPID/ns/net "$@"; }
in_local() { nsenter --net=/proc/$LPID/ns/net "$@"; }
in_remote() { nsenter --net=/proc/$RPID/ns/net "$@"; }
in_third() { nsenter --net=/proc/$QPID/ns/net "$@"; }
in_lan() { nsenter --net=/proc/$LANPID/ns/net "$@"; }
# touch_all: everybody has what it needs for connections
touch_all() { for i in $(seq 30); do in_pod timeout 1 bash -c ": </dev/tcp/$S/80" || true; done; }
# wait_for PATTERN COMMAND...: until the command prints it; for ten seconds at most
wait_for() {
	local pattern="$1"
	shift
	for _ in $(seq 100); do
		if "$@" | grep -qE "$pattern"; then return; fi
		sleep 0.1
	done
	echo "never printed by $*: $pattern" >&2
	return 1
}
# nobody ADDRESS: the kernel has found that nobody has it
nobody() {
	echo >"/dev/udp/$1/9"
	wait_for ' FAILED' ip neigh show "$1" dev eth0
}
# forget: nobody knows a neighbour
forget() {
	for at in /proc/self /proc/$CPID /proc/$LPID /proc/$RPID /proc/$QPID; do
		nsenter --net=$at/ns/net ip neigh flush all; nsenter --net=$at/ns/net ip -6 neigh flush all
	done
}
`

// collected are the files of a network namespace that are read anew; all others are those that were recorded.
var collected = []string{
	snapshot.IPTablesNFTFile, snapshot.IP6TablesNFTFile, snapshot.NFTFile, snapshot.IPSetFile,
	snapshot.AddrFile, snapshot.LinkFile, snapshot.RouteFile, snapshot.Route6File, snapshot.RuleFile, snapshot.Rule6File,
	snapshot.NeighbourFile, snapshot.BridgeFDBFile, snapshot.SysctlFile, snapshot.ProgramsFile, snapshot.XfrmFile,
	snapshot.NFTHooksFile, snapshot.ListenFile,
}

// told is what a pod or another node says of its interfaces.
func (s *scene) told(t *testing.T, of judge.Owner) *snapshot.Node {
	t.Helper()
	h := map[judge.Owner]*host{
		{Node: "node2"}: s.remote, {Node: "node3"}: s.third,
		{Node: nodeName, Pod: faultdata.Namespace + "/" + pods[""]}:         s.client,
		{Node: nodeName, Pod: faultdata.Namespace + "/" + pods["endpoint"]}: s.local,
	}[of]
	if h == nil {
		return nil
	}
	return snapshot.NewNode(of.Node, map[string][]byte{
		snapshot.AddrFile: []byte(h.Run(t, "ip", "-j", "addr")),
		snapshot.LinkFile: []byte(h.Run(t, "ip", "-j", "-d", "link")),
	})
}

// judge reads the node, and judges the path.
func (s *scene) judge(t *testing.T, f *fault) *report.NodeReport {
	t.Helper()
	c, n := snap.Node(t, recorded, nodeName)
	files := snap.Files(t, n)
	if err := collect.Collect(t.Context(), collect.Options{Root: "/", Files: collected}, func(x collect.File) error {
		if x.Unread != "" {
			t.Errorf("%s was not read: %s", x.Name, x.Unread)
		}
		files[x.Name] = x.Data
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	from := &judge.From{Kind: expect.FromPod, Pod: faultdata.Namespace + "/" + pods[f.from]}
	if f.from == "node" {
		from = &judge.From{Kind: expect.FromNode}
	}
	if f.from == "outside" {
		a := "10.79.0.1"
		if f.v6 {
			a = "fd00:79::1"
		}
		from = &judge.From{Kind: expect.FromExternal, Address: netip.MustParseAddr(a)}
	}
	ip, name := serviceIP, service
	if f.v6 {
		ip = serviceIP6
	}
	if f.udp {
		ip, name = "10.97.108.201", "faults-udp"
	}
	if f.nodePort {
		ip = "10.79.0.11"
		if f.v6 {
			ip = "fd00:79::11"
		}
	}
	r := judge.Files(c, snapshot.NewNode(nodeName, files), judge.Request{
		Others:   func(of judge.Owner) (*snapshot.Node, error) { return s.told(t, of), nil },
		Services: []types.NamespacedName{{Namespace: faultdata.Namespace, Name: name}}, Matching: true, From: from,
		Select: func(x expect.Frontend) bool { return x.Address.String() == ip },
	})
	return &r
}
