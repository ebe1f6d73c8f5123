// SPDX-License-Identifier: Apache-2.0

package rpfilter

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
)

// reverseRules translate one address, mark what goes to port 81, and note the source port of each datagram that
// gets as far as INPUT or FORWARD.
const reverseRules = `table ip t {
	chain marks { type filter hook prerouting priority mangle; udp dport 81 meta mark set 0x10; }
	chain translates { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 dnat to 10.244.1.7; }
}
table ip back {
	set fell { type inet_service; size 65535; flags dynamic; }
	chain drops { type filter hook prerouting priority -140; }
}
table ip watcher {
	set local { type inet_service; size 65535; flags dynamic; }
	set forwarded { type inet_service . ifname; size 65535; flags dynamic; }
	chain input { type filter hook input priority 300; meta l4proto udp add @local { udp sport }; }
	chain forward { type filter hook forward priority 300; meta l4proto udp add @forwarded { udp sport . oifname }; }
}
`

// lookups are rules that drop what the kernel's filter would: fib, which looks up with the mark and for the interface
// where it is told to. What they drop they note, too.
var lookups = []string{
	"fib saddr . iif oif missing", "fib saddr . mark . iif oif missing", "fib saddr oif missing",
	"fib saddr . mark oif missing",
}

const lookupRule = "add rule ip back drops %s meta l4proto udp add @fell { udp sport } drop\n"

// reverseLinks are the node's interfaces: two uplinks, one where pods are, and one without an address. eth0 has the
// default route.
var reverseLinks = []string{
	"addr add 10.77.0.11/24 dev eth0", "addr add 10.88.0.11/24 dev eth1", "addr add 10.244.1.1/24 dev pod0",
	"route add default via 10.77.0.1", "route add 10.99.0.0/24 dev bare0",
	"route add default via 10.88.0.1 dev eth1 table 100", "route add 10.244.1.0/24 dev pod0 table 100",
}

// reversePaths are what routes and rules there are besides, each undone after its turn.
var reversePaths = []struct {
	name string
	open bool // the walk does not know the routes of some: it claims nothing of them
	add  []string
}{
	{"plain routes", false, nil},
	{"one that refuses", false, []string{"route add unreachable 198.51.100.0/24"}},
	{"one that swallows", false, []string{"route add blackhole 198.51.100.0/24"}},
	{"one that throws, back to the default route", false, []string{
		"route add throw 198.51.100.0/24 table 100", "rule add priority 100 to 198.51.100.0/24 lookup 100",
	}},
	{"a more specific one", false, []string{"route add 192.0.2.0/24 via 10.88.0.1"}},
	{"several hops", false, []string{"route add 192.0.2.0/24 nexthop via 10.77.0.1 nexthop via 10.88.0.1"}},
	{"no default route", false, []string{"route del default via 10.77.0.1"}},
	{
		"several hops, by one interface", false,
		[]string{"route add 192.0.2.0/24 nexthop via 10.77.0.1 nexthop via 10.77.0.2"},
	},
	{"pods have a default route of their own", false, []string{"rule add priority 100 from 10.244.0.0/16 lookup 100"}},
	{"all but pods", false, []string{"rule add priority 100 not from 10.244.0.0/16 lookup 100"}},
	{"the mark decides", false, []string{"rule add priority 100 fwmark 0x10/0xf0 lookup 100"}},
	{"the mark decides for what has none", false, []string{"rule add priority 100 not fwmark 0x10 lookup 100"}},
	{"the interface decides", false, []string{"rule add priority 100 iif eth1 lookup 100"}},
	{"the interface of pods decides", false, []string{"rule add priority 100 iif pod0 lookup 100"}},
	{"lo decides", false, []string{"rule add priority 100 iif lo to 192.0.2.0/24 lookup 100"}},
	{"a socket's interface decides", false, []string{"rule add priority 100 oif eth1 lookup 100"}},
	{"rules that refuse", false, []string{
		"route add prohibit default table 101", "rule add priority 100 from 10.244.0.0/16 to 192.0.2.0/24 lookup 101",
	}},
	{"the protocol decides", false, []string{"rule add priority 100 ipproto udp lookup 100"}},
}

// opposite makes the command that undoes another.
var opposite = strings.NewReplacer(" add ", " del ", " del ", " add ")

// node is the node: it is the namespace of this process, and the far ends of its interfaces.
type node struct {
	t     *testing.T
	wires map[string]int // raw sockets on the far ends
	macs  map[string][]byte
	port  uint16

	filtered, passed, lost, fell, open int
}

// TestReversePathFilterAgainstTheKernel sends datagrams in by each of several interfaces, and compares what the kernel
// does with them with what the walk says: strictly, loosely and not filtered, by the interface's own setting and that
// of all, with routes and rules of many kinds; of the settings CI takes a fifth.
func TestReversePathFilterAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "ip", "nft") {
		return
	}
	w := &node{t: t, wires: map[string]int{}, macs: map[string][]byte{}, port: 20000}
	w.links()
	testutil.Run(t, reverseRules, "nft", "-f", "-")
	cases := 0
	for _, p := range reversePaths {
		for _, words := range p.add {
			ip(t, words)
		}
		before := w.open
		for all := range 3 {
			for own := range 3 {
				for mark := range 2 {
					cases++
					if !testutil.OneIn(5, cases) {
						continue
					}
					name := fmt.Sprintf("%s; all %d, own %d, src_valid_mark %d", p.name, all, own, mark)
					w.set(all, own, mark)
					w.compare(name, p.open)
				}
			}
		}
		if (w.open > before) != p.open {
			t.Errorf("%s: the walk leaves %d datagrams open", p.name, w.open-before)
		}
		w.set(0, 0, 0)
		for _, rule := range lookups {
			testutil.Run(t, fmt.Sprintf(lookupRule, rule), "nft", "-f", "-")
			// Whether fib looks up the protocol depends on the kernel's version.
			w.compare(p.name+"; "+rule, p.open || slices.ContainsFunc(p.add, func(words string) bool {
				return strings.Contains(words, "ipproto")
			}))
			testutil.Run(t, "flush chain ip back drops\n", "nft", "-f", "-")
		}
		for _, words := range slices.Backward(p.add) {
			ip(t, opposite.Replace(words))
		}
	}
	t.Logf("compared: %d datagrams filtered, %d by fib, %d let through, %d without a route, %d left open", w.filtered,
		w.fell, w.passed, w.lost, w.open)
	if w.filtered < 1000 || w.passed < 1000 || w.fell < 1000 {
		t.Error("that is too few to prove anything")
	}
}

// links makes the interfaces. Their far ends lie in a namespace that lives as long as a process of the test.
func (w *node) links() {
	beyond := testutil.NewNamespace(w.t)
	write(w.t, "net/ipv4/ip_forward", 1)
	testutil.Run(w.t, "", "ip", "link", "set", "lo", "up")
	for _, name := range []string{"eth0", "eth1", "pod0", "bare0"} {
		testutil.Run(w.t, "", "ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", beyond.PID)
		testutil.Run(w.t, "", "ip", "link", "set", name, "up")
		beyond.Run(w.t, "ip", "link", "set", name, "up")
		link, err := netlink.LinkByName(name)
		if err != nil {
			w.t.Fatal(err)
		}
		w.macs[name] = link.Attrs().HardwareAddr
	}
	for _, words := range reverseLinks {
		ip(w.t, words)
	}
	there := testutil.NewThread(w.t, beyond.Path)
	for name := range w.macs {
		w.wires[name] = rawSocket(w.t, there, name)
	}
}

func write(t *testing.T, name string, value int) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/"+name, []byte(strconv.Itoa(value)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// set sets the filters of the interfaces that datagrams come in by.
func (w *node) set(all, own, mark int) {
	write(w.t, "net/ipv4/conf/all/rp_filter", all)
	write(w.t, "net/ipv4/conf/all/src_valid_mark", mark)
	for name := range w.macs {
		write(w.t, "net/ipv4/conf/"+name+"/rp_filter", own)
	}
}

// compare sends one datagram of each kind, and walks it.
func (w *node) compare(name string, open bool) {
	w.t.Helper()
	const flush = "flush set ip watcher local\nflush set ip watcher forwarded\nflush set ip back fell\n"
	testutil.Run(w.t, flush, "nft", "-f", "-")
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		w.t.Fatal(err)
	}
	walker := w.walker()
	before, sent := w.count(), map[uint16]netfilter.Start{}
	for _, in := range []string{"eth0", "eth1", "bare0", "pod0"} {
		for _, src := range []string{"10.77.0.5", "10.88.0.5", "192.0.2.1", "198.51.100.1", "10.99.0.5", "10.244.1.5"} {
			for _, dst := range []string{"10.96.0.1", "10.244.1.8", "10.77.0.11", "203.0.113.9"} {
				for _, port := range []uint16{80, 81} {
					w.port = max(20000, (w.port+1)%60000)
					s := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
						Family: netfilter.IPv4, Proto: netfilter.UDP, In: in, Src: netip.MustParseAddr(src),
						Dst: netip.MustParseAddr(dst), SrcPort: w.port, DstPort: port,
					}}
					sent[w.port] = s
					w.send(&s.Packet)
				}
			}
		}
	}
	// Each is counted, at the latest a moment after it was sent: as filtered, as one without a route, or where it
	// came to.
	var came map[uint16]string
	var did, said counts
	for range 200 {
		now := w.count()
		did = counts{now.filtered - before.filtered, now.lost - before.lost, now.fell}
		if came = w.arrived(); len(came)+did.sum() >= len(sent) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if len(came)+did.sum() != len(sent) {
		w.t.Fatalf("%s: of %d datagrams %d came through, and the kernel counts %+v", name, len(sent), len(came), did)
	}
	for port, s := range sent {
		res := walker.Walk(s, netfilter.Options{Enters: true})
		to, through := came[port]
		o := &res.Outcomes[0]
		p := &s.Packet
		says, does := fmt.Sprintf("%v by %q (%s)", o.End, o.Packet.Out, o.Why), fmt.Sprintf("it comes to %q", to)
		switch {
		case open && !o.Certain: // nothing is claimed
			w.open++
		case len(res.Outcomes) != 1 || !o.Certain:
			w.t.Errorf("%s: %s > %s by %s: %d outcomes", name, p.Src, p.Dst, p.In, len(res.Outcomes))
		case o.End == netfilter.Filtered && !through:
			w.filtered++
			said.filtered++
		case o.End == netfilter.NoRoute && !through:
			w.lost++
			said.lost++
		case o.End == netfilter.Dropped && !through:
			w.fell++
			said.fell++
		case o.End == netfilter.Delivered && to == "lo", o.End == netfilter.Sent && through && o.Packet.Out == to:
			w.passed++
		case open && o.End != netfilter.Filtered: // nothing is claimed
			w.open++
		default:
			if !through {
				does = "it does not come through"
			}
			w.t.Errorf("%s: %s > %s port %d by %s: the walk says %s, and %s", name, p.Src, p.Dst, p.DstPort, p.In, says, does)
		}
	}
	if did != said && !open {
		w.t.Errorf("%s: the kernel counts %+v, and the walk has %+v", name, did, said)
	}
}

// walker reads the node as the product's collector does.
func (w *node) walker() *netfilter.Walker {
	w.t.Helper()
	ip := func(args ...string) []byte { return []byte(testutil.Run(w.t, "", append([]string{"ip"}, args...)...)) }
	f := host.Files{
		Addr: ip("-j", "addr"), Link: ip("-j", "-d", "link"),
		Route4: ip("-j", "-4", "route", "show", "table", "all"), Rule4: ip("-j", "rule"),
	}
	for _, of := range []string{"all", "eth0", "eth1", "bare0", "pod0"} {
		for _, key := range []string{"rp_filter", "src_valid_mark"} {
			name := "net/ipv4/conf/" + of + "/" + key
			value, err := os.ReadFile("/proc/sys/" + name)
			if err != nil {
				w.t.Fatal(err)
			}
			f.Sysctl = fmt.Appendf(f.Sysctl, "%s=%s", name, value)
		}
	}
	network, errs := host.Parse(f)
	if len(errs) > 0 {
		w.t.Fatal(errs)
	}
	tables, err := nftables.Parse([]byte(testutil.Run(w.t, "", "nft", "-j", "list", "ruleset")),
		func(_, table string) bool { return table == "watcher" })
	if err != nil {
		w.t.Fatal(err)
	}
	rs := &netfilter.Ruleset{Tables: tables}
	rs.Link()
	return netfilter.NewWalker(rs, network, nil)
}

// counts are of packets that the kernel dropped where it looked for their route, and that a rule dropped.
type counts struct{ filtered, lost, fell int }

func (c counts) sum() int { return c.filtered + c.lost + c.fell }

// count reads how many packets the reverse path filter has dropped, and how many had no route
// (LINUX_MIB_IPRPFILTER, IPSTATS_MIB_INNOROUTES), since the namespace was made. The process's first thread may have
// gone to open sockets elsewhere.
func (w *node) count() counts {
	w.t.Helper()
	data, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]int{}
	lines := strings.Split(string(data), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for k, name := range names {
			if n, err := strconv.Atoi(values[k]); err == nil {
				found[name] = n
			}
		}
	}
	filtered, ok := found["IPReversePathFilter"]
	lost, ok2 := found["InNoRoutes"]
	if !ok || !ok2 {
		w.t.Fatal("the kernel counts no IPReversePathFilter, or no InNoRoutes")
	}
	return counts{filtered, lost, len(w.noted("back", "fell"))}
}

// arrived reads which datagrams came through, by their source ports: the interface that they leave by, and "lo" for
// the node's own.
func (w *node) arrived() map[uint16]string {
	w.t.Helper()
	out := w.noted("watcher", "local")
	maps.Copy(out, w.noted("watcher", "forwarded"))
	return out
}

// noted returns the source ports that a set has, with the interfaces beside them, or lo.
func (w *node) noted(table, set string) map[uint16]string {
	w.t.Helper()
	out := map[uint16]string{}
	var listed struct {
		Objects []struct {
			Set *struct{ Elem []json.RawMessage }
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(testutil.Run(w.t, "", "nft", "-j", "list", "set", "ip", table, set)),
		&listed); err != nil {
		w.t.Fatal(err)
	}
	for _, o := range listed.Objects {
		if o.Set == nil {
			continue
		}
		for _, raw := range o.Set.Elem {
			var port uint16
			if json.Unmarshal(raw, &port) == nil {
				out[port] = "lo"
				continue
			}
			var both struct{ Concat []any }
			if err := json.Unmarshal(raw, &both); err != nil || len(both.Concat) != 2 {
				w.t.Fatalf("an element is %s", raw)
			}
			number, _ := both.Concat[0].(float64)
			out[uint16(number)], _ = both.Concat[1].(string)
		}
	}
	return out
}

// send sends a datagram in by an interface.
func (w *node) send(p *netfilter.Packet) {
	w.t.Helper()
	frame := append(append([]byte{}, w.macs[p.In]...), 2, 0, 0, 0, 0, 1, 8, 0)
	h := make([]byte, 28)
	h[0], h[3], h[8], h[9] = 4<<4|5, 28, 64, netfilter.UDP
	src, dst := p.Src.As4(), p.Dst.As4()
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(h[20:], p.SrcPort)
	binary.BigEndian.PutUint16(h[22:], p.DstPort)
	h[25] = 8 // without a checksum
	if _, err := unix.Write(w.wires[p.In], append(frame, h...)); err != nil {
		w.t.Fatal(err)
	}
}

// rawSocket opens a socket that sends frames by an interface of another namespace.
func rawSocket(t *testing.T, there testutil.Thread, name string) (fd int) {
	t.Helper()
	var err error
	there.Do(func() {
		var link *net.Interface
		if link, err = net.InterfaceByName(name); err != nil {
			return
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func ip(t *testing.T, words string) {
	t.Helper()
	testutil.Run(t, "", append([]string{"ip"}, strings.Fields(words)...)...)
}
