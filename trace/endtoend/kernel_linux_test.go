// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

type topology struct {
	t      *testing.T
	names  map[string]*testutil.Namespace
	key    map[string]netip.Addr        // an address by which a namespace is found
	files  map[string]map[string][]byte // what was read, by namespace
	tunnel string
	mu     sync.Mutex // of files
	close  func()     // ends what listens
	view
}

// run runs lines "NAMESPACE COMMAND…"; those of one namespace that follow one another at once, as each process takes
// its time in a virtual machine.
func (n *topology) run(lines ...string) {
	n.t.Helper()
	at, script := "", ""
	flush := func() {
		if at != "" {
			n.names[at].Run(n.t, "sh", "-ec", script)
		}
	}
	for _, l := range lines {
		if n.v6 {
			l = six.Replace(l)
		}
		words := strings.Fields(keys.Replace(l))
		for i, w := range words {
			if other := n.names[strings.TrimPrefix(w, "@")]; strings.HasPrefix(w, "@") && other != nil {
				words[i] = other.PID
			}
		}
		if words[0] != at {
			flush()
			at, script = words[0], ""
		}
		script += strings.Join(words[1:], " ") + "\n"
	}
	flush()
}

func newTopology(t *testing.T, vxlan, v6 bool) *topology {
	t.Helper()
	n := &topology{
		t: t, names: map[string]*testutil.Namespace{}, files: map[string]map[string][]byte{},
		key: map[string]netip.Addr{"client": client, "endpoint": endpoint.Addr()},
	}
	n.view = view{read: n.read, v6: v6}
	maps.Copy(n.key, nodeNames)
	pods := maps.Clone(n.key)
	for name, a := range n.key {
		n.key[name] = n.as(a)
	}
	for _, name := range []string{"client", "node1", "node2", "endpoint", "outside"} {
		n.names[name] = testutil.NewNamespace(t)
		if v6 { // a link-local address that is tentative cannot ask for neighbours
			n.run(name + " sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")
		}
		n.run(name + " ip link set lo up")
	}
	n.run("node1 ip link add eth0 type veth peer name eth0 netns @node2",
		"node1 ip addr add 192.168.50.1/24 dev eth0", "node2 ip addr add 192.168.50.2/24 dev eth0",
		"node1 ip link set eth0 up", "node2 ip link set eth0 up")
	n.run("outside ip addr add 203.0.113.9/32 dev lo")
	for i := 1; i <= 2; i++ {
		n.run(fmt.Sprintf("node%d ip link add eth1 type veth peer name eth%d netns @outside", i, i),
			fmt.Sprintf("node%d ip addr add 192.168.6%d.1/24 dev eth1", i, i-1), fmt.Sprintf("node%d ip link set eth1 up", i),
			fmt.Sprintf("outside ip addr add 192.168.6%d.2/24 dev eth%d", i-1, i),
			fmt.Sprintf("outside ip link set eth%d up", i),
			fmt.Sprintf("node%d ip route add default via 192.168.6%d.2", i, i-1))
	}
	for i, pod := range []string{"client", "endpoint"} {
		node := fmt.Sprintf("node%d", i+1)
		n.run(node+" ip link add cni0 type bridge", fmt.Sprintf("%s ip addr add 10.244.%d.1/24 dev cni0", node, i+1),
			node+" ip link set cni0 up",
			node+" ip link add vethpod type veth peer name eth0 netns @"+pod,
			node+" ip link set vethpod master cni0", node+" ip link set vethpod up",
			fmt.Sprintf("%s ip addr add %s/24 dev eth0", pod, pods[pod]), pod+" ip link set eth0 up",
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
// net/core/link_watch.c). One that is dormant has a carrier.
func (n *topology) carrier() {
	n.t.Helper()
	missing := func(line string) bool {
		return strings.Contains(line, "NO-CARRIER") && !strings.Contains(line, "LOWER_UP")
	}
	for name, of := range n.names {
		for slices.ContainsFunc(strings.Split(of.Run(n.t, "ip", "-o", "link"), "\n"), missing) {
			if n.t.Context().Err() != nil {
				n.t.Fatalf("%s has a link without a carrier", name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
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
		n.t.Errorf("%s: %v", name, err)
	}
	if strings.HasPrefix(name, "node") {
		if n.tunnel == "wireguard" {
			files[snapshot.WireGuardFile] = []byte(n.names[name].Run(n.t, "wg", "show", "all"))
		}
		files[snapshot.BridgeFDBFile] = []byte(n.names[name].Run(n.t, "bridge", "-j", "fdb", "show"))
	}
	files[snapshot.UnreadFile] = snapshot.EncodeUnread(unread)
	n.mu.Lock()
	n.files[name] = files
	n.mu.Unlock()
	s, err := nodestate.Load(snapshot.NewNode(name, files))
	if err != nil {
		n.t.Errorf("%s: %v", name, err)
	}
	return s
}

// readAll reads all namespaces side by side.
func (n *topology) readAll() {
	n.t.Helper()
	names := []string{"client", "node1", "node2", "endpoint"}
	states := make([]*nodestate.State, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { states[i] = n.read(name) })
	}
	wg.Wait()
	n.view.read = func(name string) *nodestate.State { return states[slices.Index(names, name)] }
}

// record writes what was read as a snapshot, where somebody asks for that.
func (n *topology) record(of *fault) {
	n.t.Helper()
	dir := os.Getenv("SVCPROXY_RECORD_TOPOLOGIES")
	if dir == "" {
		return
	}
	out, err := os.Create(filepath.Join(dir, of.file()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer out.Close()
	made := time.Now().UTC().Truncate(time.Second)
	w, err := snapshot.NewWriter(out, snapshot.Meta{Version: snapshot.Version, CreatedAt: made}, &snapshot.Cluster{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, node := range []string{"node1", "node2"} {
		pod, files := recordedPods[node], map[string]snapshot.Packed{}
		for name, data := range n.files[pod.namespace] {
			files[name] = snapshot.Pack(data)
		}
		all, err := snapshot.NewNode(node, n.files[node]).WithPod(pod.name, files)
		if err == nil {
			err = w.Node(all)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		n.t.Fatal(err)
	}
}

// What the kernel does with a connection and what is said of it agree: healthy, and with each fault made for real; the
// segment is the one that the fault is in, and those before it are right.
func TestAgainstTheKernel(t *testing.T) { againstTheKernel(t, faults) }

func TestMoreAgainstTheKernel(t *testing.T) { againstTheKernel(t, moreFaults) }

func TestPodsAgainstTheKernel(t *testing.T) { againstTheKernel(t, podFaults) }

func TestVXLANAgainstTheKernel(t *testing.T) { againstTheKernel(t, vxlanFaults) }

func TestFurtherAgainstTheKernel(t *testing.T) { againstTheKernel(t, furtherFaults) }

func TestLinksAgainstTheKernel(t *testing.T) { againstTheKernel(t, linkFaults) }

func TestPacketsAgainstTheKernel(t *testing.T) { againstTheKernel(t, packetFaults) }

func TestInterfacesAgainstTheKernel(t *testing.T) { againstTheKernel(t, interfaceFaults) }

func TestNeighboursAgainstTheKernel(t *testing.T) { againstTheKernel(t, neighbourFaults) }

func TestGatewaysAgainstTheKernel(t *testing.T) { againstTheKernel(t, gatewayFaults) }

func TestUplinksAgainstTheKernel(t *testing.T) { againstTheKernel(t, uplinkFaults) }

func TestSizesAgainstTheKernel(t *testing.T) { againstTheKernel(t, sizeFaults) }

func TestSocketsAgainstTheKernel(t *testing.T) { againstTheKernel(t, socketFaults) }

func TestBridgesAgainstTheKernel(t *testing.T) { againstTheKernel(t, bridgeFaults) }

func TestCNIAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	againstTheKernel(t, cniFaults, "ipset", "iptables-nft-restore")
}

// isolate is testutil.Isolate with the tools that the topology needs. Processes of others are not seen there: pods are
// found by addresses, and another run of these tests has the same ones.
func isolate(t *testing.T, tools ...string) bool {
	t.Helper()
	tools = append(tools, "ip", "bridge", "iptables-nft", "nsenter", "sysctl")
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWPID|unix.CLONE_NEWNS, tools...) {
		return false
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

func TestMain(m *testing.M) {
	if at := os.Getenv(listenAt); at != "" {
		listenAlone(at)
		return
	}
	testutil.SideBySide(m, 6)
}

// sampled is how many of the faults of a list are made: one in so many, in CI.
const sampled = 6

func againstTheKernel(t *testing.T, all []fault, tools ...string) {
	t.Helper()
	for i := range all {
		for _, v6 := range []bool{false, true} {
			c := &all[i]
			name := c.name
			if v6 && !c.six && !c.only6 || !v6 && c.only6 || !testutil.OneIn(sampled, i) {
				continue
			}
			if v6 {
				name += ", IPv6"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if isolate(t, append([]string{"nft"}, tools...)...) {
					newTopology(t, c.vxlan, v6).measure(c)
				}
			})
		}
	}
}

// measure makes a fault, measures the connection, and compares what is said of it; takes it back, and compares that.
func (n *topology) measure(c *fault) {
	n.t.Helper()
	n.prepare(c)
	routes, settings := n.routes(), n.settings(c.do)
	early := !strings.HasPrefix(c.listen, "%") // an interface that the fault makes
	if early {
		n.listens(c)
	}
	n.run(c.do...)
	if !early {
		n.listens(c)
	}
	if c.works { // a link that the fault has made loses packets until its carrier has been noticed
		n.carrier()
	}
	if got := n.connects(c, 0); got != c.works && !c.silent {
		n.t.Fatalf("a connection is accepted: %v", got)
	}
	if got := c.works && n.connects(c, 60_000); got != (c.works && !c.hangs) {
		n.t.Fatalf("large packets come through: %v", got)
	}
	if c.silent && n.connects(c, 1) {
		n.t.Fatal("a connection is answered")
	}
	if c.forgets {
		n.run("client ip neigh flush all", "node1 ip neigh flush all", "node2 ip neigh flush all",
			"endpoint ip neigh flush all")
	}
	n.readAll()
	c.check(n.t, n.segments(c))
	if n.v6 {
		return
	}
	n.record(c)
	if c.segment == "" {
		return
	}
	n.repair(c, routes, settings)
	if !n.worksAgain(c) {
		n.t.Fatal("after the repair connections fail")
	}
	n.readAll()
	right := &fault{outside: c.outside, local: c.local, onNode: c.onNode, udp: c.udp}
	right.check(n.t, n.segments(right))
}

// prepare makes of the topology what a fault is made in.
func (n *topology) prepare(c *fault) {
	if c.onNode || c.udp {
		n.run(fmt.Sprintf("node1 iptables-nft -t nat -I PREROUTING -d %s -p %s --dport %d -j DNAT --to-destination %s",
			frontend.Addr(), c.protocol(), frontend.Port(), c.at()))
	}
	if c.routed {
		n.run(routedPod...)
	}
	if !c.shared {
		return
	}
	for i, name := range []string{"client", "node1", "node2", "endpoint"} {
		a := netip.AddrFrom4([4]byte{10, 255, 0, byte(i + 1)})
		n.run(fmt.Sprintf("%s ip addr add %s/32 dev lo", name, a))
		n.key[name] = a
	}
}

// routedPod are the lines that put the endpoint's pod behind a route of its own.
var routedPod = []string{
	"node2 ip link set vethpod nomaster", "node2 ip link del cni0",
	"node2 sysctl -qw net.ipv4.conf.vethpod.proxy_arp=1",
	"node2 ip route add 10.244.2.9/32 dev vethpod scope link", "node2 ip route add blackhole 10.244.2.0/24",
	"endpoint ip addr flush dev eth0", "endpoint ip addr add 10.244.2.9/32 dev eth0",
	"endpoint ip route add 169.254.1.1 dev eth0 scope link", "endpoint ip route add default via 169.254.1.1 dev eth0",
}

// listens has a process listen as a fault says.
func (n *topology) listens(c *fault) {
	n.t.Helper()
	if list, ok := strings.CutPrefix(c.listen, "sockets "); ok {
		n.sockets(c, list)
		return
	}
	switch c.listen {
	case "":
	case "full":
		n.full()
	case "udp unread":
		n.unread(c)
	case "full beside another":
		n.fullBeside(c)
	case "udp":
		testutil.Echo(n.t, testutil.NewThread(n.t, n.names[c.namespace()].Path), "udp", c.at().String())
	case "stopped":
		n.stopped(c)
	case "frozen":
		n.frozen(c)
	case "stopped, full", "frozen, full":
		n.run("endpoint sysctl -qw net.core.somaxconn=1") // of sockets that begin to listen from now on
		if c.listen == "stopped, full" {
			n.stopped(c)
		} else {
			n.frozen(c)
		}
		n.fill()
	default:
		n.listen(c, c.listen)
	}
}
