// SPDX-License-Identifier: Apache-2.0

package links

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The number of cases, and the seed of the first rule set, unless the environment says otherwise.
const (
	casesVariable, defaultCases = "SVCPROXY_LINKS_CASES", 1000
	seedVariable, defaultSeed   = "SVCPROXY_LINKS_SEED", 1

	packetsEach   = 40
	maxDifference = 5
)

// far are the other ends of the node's interfaces: eth0, and the ports of cni0, with the pods behind them.
var far = map[string][]netip.Addr{
	"eth0": {netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd00:77::1")},
	"v1":   {netip.MustParseAddr("10.244.1.15"), netip.MustParseAddr("fd00:244:1::15")},
	"v2":   {netip.MustParseAddr("10.244.1.16"), netip.MustParseAddr("fd00:244:1::16")},
}

var devices = []string{"eth0", "cni0", "v1", "v2", "lo"}

// setUp is what the node has besides its interfaces.
var setUp = []string{
	"link set lo up", "addr add 10.77.0.11/24 dev eth0", "addr add fd00:77::11/64 dev eth0 nodad",
	"addr add 10.244.1.1/24 dev cni0", "addr add fd00:244:1::1/64 dev cni0 nodad",
	"route add default via 10.77.0.1", "-6 route add default via fd00:77::1",
}

// node is the node, which is this process's own network namespace.
type node struct {
	t       *testing.T
	wires   map[string]int    // sockets at the far ends
	raw     map[bool]int      // that send as the node, by whether for IPv4
	local   map[bool]int      // that get what is delivered
	macs    map[string][]byte // of the node's interfaces
	files   host.Files
	network *host.Network
	walks   map[string]*netfilter.Walker
}

// packet is a datagram, and where it starts: in is the port or interface that it comes in by, "" for the node's own.
type packet struct {
	src, dst netip.AddrPort
	in       string
}

func (p packet) String() string { return fmt.Sprintf("%s > %s in %q", p.src, p.dst, p.in) }

// answer is where the packet came to, "" for nowhere: the far end, or "delivered".
type answer struct {
	at       string
	src, dst netip.AddrPort // of one delivered by IPv6, only the ports
}

// newNode makes the node, and binds the calling goroutine to one CPU: of one CPU's packets none overtakes another.
func newNode(t *testing.T) *node {
	t.Helper()
	runtime.LockOSThread()
	var cpu, allowed unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &allowed))
	for i := range len(allowed) * bits.UintSize {
		if allowed.IsSet(i) {
			cpu.Set(i)
			break
		}
	}
	must(t, unix.SchedSetaffinity(0, &cpu))
	n := &node{t: t, wires: map[string]int{}, raw: map[bool]int{}, local: map[bool]int{}, macs: map[string][]byte{}}
	beyond := testutil.NewNamespace(t)
	pid, err := strconv.Atoi(beyond.PID)
	must(t, err)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(t, netlink.LinkAdd(bridge))
	must(t, netlink.LinkSetUp(bridge))
	for name := range far {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsPid(pid)}
		must(t, netlink.LinkAdd(veth))
		link, err := netlink.LinkByName(name)
		must(t, err)
		if name != "eth0" {
			must(t, netlink.LinkSetMaster(link, bridge))
		}
		must(t, netlink.LinkSetUp(link))
	}
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv4/conf/all/rp_filter": "0",
		"net/ipv4/conf/default/rp_filter": "0", "net/ipv4/conf/eth0/rp_filter": "0", "net/ipv4/conf/cni0/rp_filter": "0",
		"net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/cni0/send_redirects": "0",
	} {
		must(t, os.WriteFile("/proc/sys/"+name, []byte(value), 0o600))
		n.files.Sysctl = fmt.Appendf(n.files.Sysctl, "%s = %s\n", name, value)
	}
	for _, words := range setUp {
		ip(t, words)
	}
	farMACs := map[string]net.HardwareAddr{}
	testutil.NewThread(t, beyond.Path).Do(func() {
		for name := range far {
			link, err := netlink.LinkByName(name)
			must(t, err)
			farMACs[name] = link.Attrs().HardwareAddr
			must(t, netlink.LinkSetUp(link))
			fd, err := unix.Socket(
				unix.AF_PACKET,
				unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
				int(htons(unix.ETH_P_ALL)),
			)
			must(t, err)
			must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index, Protocol: htons(unix.ETH_P_ALL)}))
			n.wires[name] = fd
		}
	})
	for _, name := range devices {
		link, err := netlink.LinkByName(name)
		must(t, err)
		n.macs[name] = link.Attrs().HardwareAddr
	}
	for name, addrs := range far {
		dev := "cni0"
		if name == "eth0" {
			dev = name
		} else {
			// A pod that is sent back to itself is to get it.
			testutil.Run(t, "", "bridge", "link", "set", "dev", name, "hairpin", "on")
			testutil.Run(t, "", "bridge", "fdb", "replace", farMACs[name].String(), "dev", name, "master", "static")
		}
		for _, a := range addrs {
			testutil.Run(t, "", "ip", "neigh", "replace", a.String(), "lladdr", farMACs[name].String(), "nud", "permanent",
				"dev", dev)
		}
	}
	for v4, family := range map[bool]int{true: unix.AF_INET, false: unix.AF_INET6} {
		var err error
		n.raw[v4], err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		must(t, err)
		n.local[v4], err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
		must(t, err)
	}
	for _, x := range []struct {
		to   *[]byte
		args string
	}{
		{&n.files.Addr, "-j addr"},
		{&n.files.Link, "-j -d link"},
		{&n.files.Route4, "-j -4 route show table all"},
		{&n.files.Route6, "-j -6 route show table all"},
	} {
		*x.to = []byte(ip(t, x.args))
	}
	return n
}

func ip(t *testing.T, words string) string {
	t.Helper()
	return testutil.Run(t, "", append([]string{"ip"}, strings.Fields(words)...)...)
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// calls sets br_netfilter on or off; false where the kernel has none.
func (n *node) calls(on bool) bool {
	value := map[bool]string{true: "1", false: "0"}[on]
	text := slices.Clip(n.files.Sysctl)
	for _, key := range []string{"iptables", "ip6tables"} {
		name := "net/bridge/bridge-nf-call-" + key
		if os.WriteFile("/proc/sys/"+name, []byte(value), 0o600) != nil {
			return false
		}
		text = fmt.Appendf(text, "%s = %s\n", name, value)
	}
	f := n.files
	f.Sysctl = text
	var errs []error
	n.network, errs = host.Parse(f)
	must(n.t, errors.Join(errs...))
	return true
}

// load replaces the rules, and reads them back as the helper does.
func (n *node) load(rules string) error {
	cmd := testutil.Unshared(n.t, "nft", "-f", "-")
	cmd.SysProcAttr = nil
	cmd.Stdin = strings.NewReader("flush ruleset\n" + rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	must(n.t, netlink.ConntrackTableFlush(netlink.ConntrackTable))
	var dump []byte
	err := collect.Collect(context.Background(), collect.Options{Files: []string{snapshot.NFTDumpFile}},
		func(f collect.File) error {
			if f.Unread != "" {
				return errors.New(f.Unread)
			}
			dump = f.Data
			return nil
		})
	must(n.t, err)
	tables, err := nftables.ParseDump(dump, nil)
	must(n.t, err)
	rs := &netfilter.Ruleset{Tables: tables}
	rs.Link()
	ports := netfilter.WithPorts(func(_ string, a netip.Addr) string {
		for name, addrs := range far {
			if slices.Contains(addrs, a) {
				return name
			}
		}
		return ""
	})
	n.walks = map[string]*netfilter.Walker{
		"all known":          netfilter.NewWalker(rs, n.network, nil, ports),
		"ports not known":    netfilter.NewWalker(rs, n.network, nil),
		"nothing is known":   netfilter.NewWalker(rs, &host.Network{}, nil),
		"settings not known": netfilter.NewWalker(rs, n.withoutSettings(), nil),
	}
	return nil
}

func (n *node) withoutSettings() *host.Network {
	f := n.files
	f.Sysctl = nil
	network, _ := host.Parse(f)
	return network
}

// start is where the walk begins.
func (p packet) start() netfilter.Start {
	s := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
		Family: netfilter.FamilyOf(p.dst.Addr()), Proto: netfilter.UDP, Src: p.src.Addr(), Dst: p.dst.Addr(),
		SrcPort: p.src.Port(), DstPort: p.dst.Port(), In: "cni0",
	}}
	switch p.in {
	case "":
		s.Hook, s.Packet.In = netfilter.Output, ""
	case "eth0":
		s.Packet.In = p.in
	}
	return s
}

// bytes returns the datagram from its IP header on.
func (p packet) bytes() []byte {
	l4 := make([]byte, 12)
	binary.BigEndian.PutUint16(l4, p.src.Port())
	binary.BigEndian.PutUint16(l4[2:], p.dst.Port())
	binary.BigEndian.PutUint16(l4[4:], 12)
	src, dst := p.src.Addr().AsSlice(), p.dst.Addr().AsSlice()
	sum := checksum(append(append(append([]byte{0, 17, 0, 12}, src...), dst...), l4...))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(l4[6:], sum)
	if !p.dst.Addr().Is4() {
		h := []byte{0x60, 0, 0, 0, 0, 12, 17, 64}
		return append(append(append(h, src...), dst...), l4...)
	}
	h := []byte{0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0}
	h = append(append(h, src...), dst...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, l4...)
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// flushType is that of frames which say that those before them are through: no rule but the first of its chain meets
// them.
const flushType = 0x88b5

// send sends a packet, and says what became of it.
func (n *node) send(p packet) answer {
	n.drain(nil)
	b, v4 := p.bytes(), p.dst.Addr().Is4()
	switch {
	case p.in == "" && v4:
		_ = unix.Sendto(n.raw[v4], b, 0, &unix.SockaddrInet4{Addr: p.dst.Addr().As4()})
	case p.in == "":
		_ = unix.Sendto(n.raw[v4], b, 0, &unix.SockaddrInet6{Addr: p.dst.Addr().As16()})
	default:
		to := n.macs["cni0"]
		if p.in == "eth0" {
			to = n.macs["eth0"]
		}
		typ := uint16(unix.ETH_P_IP)
		if !v4 {
			typ = unix.ETH_P_IPV6
		}
		n.frame(p.in, to, typ, b)
	}
	n.frame("v2", n.farMAC("v1"), flushType, make([]byte, 46))
	var a answer
	for deadline := 0; ; deadline++ {
		if n.drain(&a) {
			n.drain(&a)
			return a
		}
		if deadline > 1000 {
			n.t.Fatalf("%v: the frame behind it did not come", p)
		}
		pollfd := []unix.PollFd{{Fd: int32(n.wires["v1"]), Events: unix.POLLIN}}
		_, _ = unix.Poll(pollfd, 5)
	}
}

func (n *node) farMAC(name string) []byte {
	for _, f := range n.fdb() {
		if f.dev == name {
			return f.mac
		}
	}
	n.t.Fatalf("no address of %s", name)
	return nil
}

type entry struct {
	dev string
	mac []byte
}

var entries []entry

// fdb are the far ends' addresses.
func (n *node) fdb() []entry {
	if entries != nil {
		return entries
	}
	for name, addrs := range far {
		out := testutil.Run(n.t, "", "ip", "neigh", "show", addrs[0].String())
		words := strings.Fields(out)
		mac, err := net.ParseMAC(words[slices.Index(words, "lladdr")+1])
		must(n.t, err)
		entries = append(entries, entry{name, mac})
	}
	return entries
}

func (n *node) frame(by string, to []byte, typ uint16, payload []byte) {
	f := append(append([]byte{}, to...), n.farMAC(by)...)
	f = append(binary.BigEndian.AppendUint16(f, typ), payload...)
	_, err := unix.Write(n.wires[by], f)
	must(n.t, err)
}

// drain reads what has come to the far ends and to the node: the packet, which has its source port or its length, and
// the frame behind it.
func (n *node) drain(a *answer) (flushed bool) {
	buf := make([]byte, 2048)
	for name, fd := range n.wires {
		for {
			size, from, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				break
			}
			if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING || size < 14 {
				continue
			}
			b := buf[14:size]
			switch binary.BigEndian.Uint16(buf[12:]) {
			case flushType:
				flushed = flushed || name == "v1"
			case unix.ETH_P_IP:
				if a != nil && len(b) >= 32 && b[9] == 17 {
					a.note(name, netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), b[20:])
				}
			case unix.ETH_P_IPV6:
				if a != nil && len(b) >= 52 && b[6] == 17 {
					a.note(name, netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), b[40:])
				}
			}
		}
	}
	for v4, fd := range n.local {
		for {
			size, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				break
			}
			switch {
			case a == nil:
			case v4 && size >= 32:
				a.note("delivered", netip.AddrFrom4([4]byte(buf[12:])), netip.AddrFrom4([4]byte(buf[16:])), buf[20:size])
			case !v4 && size >= 12:
				a.note("delivered", netip.IPv6Unspecified(), netip.IPv6Unspecified(), buf[:size])
			}
		}
	}
	return flushed
}

func (a *answer) note(at string, src, dst netip.Addr, l4 []byte) {
	if binary.BigEndian.Uint16(l4[4:]) != 12 {
		return
	}
	a.at = at
	a.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(l4))
	a.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(l4[2:]))
}

// fits tells whether the kernel's answer is what the walk says of an outcome.
// Where it is not known which addresses are the node's own, the walk does not tell the two arrivals apart.
func fits(o *netfilter.Outcome, a *answer, addresses bool) bool {
	switch o.End {
	case netfilter.Lost, netfilter.Taken:
		return true
	case netfilter.Dropped, netfilter.Rejected, netfilter.NoRoute, netfilter.Filtered:
		return a.at == ""
	case netfilter.Delivered, netfilter.Sent:
	}
	if a.at == "" || addresses && (a.at == "delivered") != (o.End == netfilter.Delivered) {
		return false
	}
	if addresses && a.at != "delivered" && o.Packet.Out != netfilter.UnknownIface &&
		(o.Packet.Out == "eth0") != (a.at == "eth0") {
		return false
	}
	return o.Packet.DstPort == a.dst.Port() &&
		(a.dst.Addr().IsUnspecified() || o.Packet.Dst == a.dst.Addr())
}

// TestHooksOfDevicesAndBridgesAgainstTheKernel sends packets through random rule sets.
func TestHooksOfDevicesAndBridgesAgainstTheKernel(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "nft", "bridge") {
		return
	}
	n := newNode(t)
	if err := n.load("table netdev t { chain c { type filter hook ingress device eth0 priority 0;\n}\n}\n" +
		"table bridge t { chain c { type filter hook prerouting priority 0;\n}\n}\n"); err != nil {
		t.Skipf("the kernel has no such tables: %v", err)
	}
	seed, cases := uint64(testutil.Count(t, seedVariable, defaultSeed)), testutil.Count(t, casesVariable, defaultCases)
	done, sets, untaken, unknown, differences := 0, 0, 0, 0, 0
	ends := map[string]int{}
	for ; done < cases && differences < maxDifference; seed++ {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
		calls := g.IntN(2) == 0
		if !n.calls(calls) {
			calls = false
		}
		rules := g.rules()
		if err := n.load(rules); err != nil {
			untaken++
			if untaken < 5 {
				t.Logf("not taken: %v\n%s", err, rules)
			}
			continue
		}
		sets++
		for range packetsEach {
			p := g.packet()
			a := n.send(p)
			done++
			ends[a.at]++
			what, certain := n.compare(p, &a)
			if !certain {
				unknown++
			}
			if what != "" {
				differences++
				t.Errorf("%s=%d: %v, br_netfilter %v: %s\nkernel: %+v\n%s", seedVariable, seed, p, calls, what, a, rules)
				break
			}
		}
	}
	t.Logf(
		"%d cases, %d rule sets (%d not taken), %d unknown with all known, ends %v, seeds up to %d",
		done,
		sets,
		untaken,
		unknown,
		ends,
		seed-1,
	)
	if untaken*10 > sets || unknown*4 > done {
		t.Error("too little is known of the packets' paths, or too few rule sets are taken")
	}
}

// TestRuleSetsThatDiffered has those of which the walk once said something else than the kernel.
func TestRuleSetsThatDiffered(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "nft", "bridge") {
		return
	}
	n := newNode(t)
	for _, c := range []struct {
		name, rules string
		packet      packet
	}{
		{
			"the type of a frame at a port, where it is not known what is a port",
			"table netdev t {\nchain c {\ntype filter hook ingress device v1 priority 1;\n" +
				"meta pkttype host accept\nmeta l4proto udp drop\n}\n}\n",
			packet{
				src: netip.MustParseAddrPort("10.244.1.15:33006"), dst: netip.MustParseAddrPort("192.0.2.7:53"), in: "v1",
			},
		},
	} {
		n.calls(true)
		if err := n.load(c.rules); err != nil {
			t.Skipf("%s: the kernel has no such tables: %v", c.name, err)
		}
		a := n.send(c.packet)
		if what, _ := n.compare(c.packet, &a); what != "" {
			t.Errorf("%s: %s\nkernel: %+v", c.name, what, a)
		}
	}
}

// compare says what differs; certain: with all known, the walk knows the packet's end.
func (n *node) compare(p packet, a *answer) (what string, certain bool) {
	for name, w := range n.walks {
		r := w.Walk(p.start(), netfilter.Options{Steps: true})
		fit := false
		for i := range r.Outcomes {
			fit = fit || fits(&r.Outcomes[i], a, name != "nothing is known")
			if name == "all known" && r.Outcomes[i].Certain {
				certain = true
			}
		}
		if fit {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s:\n", name)
		for i := range r.Outcomes {
			o := &r.Outcomes[i]
			fmt.Fprintf(&b, "  walk: %v %v certain %v, %s %s %+v\n", o.P, o.End, o.Certain, o.Where, o.Why, o.Packet)
		}
		for i := range r.Steps {
			s := &r.Steps[i]
			text := ""
			if s.Ref.Rule != nil {
				text = s.Ref.Rule.Text
			}
			fmt.Fprintf(&b, "    %v %s: %s -> %s\n", s.Ref.Hook, s.Ref, text, s)
		}
		for _, u := range r.Uncertain {
			fmt.Fprintf(&b, "  not known: %s: %s\n", u.What, u.Why)
		}
		return b.String(), certain
	}
	return "", certain
}
