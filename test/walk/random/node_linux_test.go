// SPDX-License-Identifier: Apache-2.0

package random

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipset"
	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
)

// watcher is the table that watches the packets from before the first of all other chains to behind the last, by
// tracing.
const watcher = "watcher"

// watchers sets tracing on for the packets of TCP and UDP. What has come to its end is dropped there: nobody answers,
// and there is no connection left, but that of a packet that the node has sent to itself, which is confirmed where it
// leaves by lo. There the mark of the connection is put in the place of the packet's mark, which was reported before: a
// packet without a connection breaks that rule off. Refusals that the node sends end before any rule meets them, and
// redirects before a neighbour is looked for who is not there, which would be reported much later. A datagram from port
// 9 says that all before it are through.
const watchers = `
table inet ` + watcher + ` {
	chain through { drop; }
	chain refused { drop; }
	chain ended { meta mark set ct mark; drop; }
	chain first {
		type filter hook prerouting priority -2147483648;
		meta l4proto { tcp, udp } meta nftrace set 1
		udp sport 9 jump through
	}
	chain start {
		type filter hook output priority -2147483648;
		icmp type redirect drop
		icmpv6 type nd-redirect drop
		icmp type destination-unreachable meta nftrace set 1 jump refused
		icmpv6 type destination-unreachable meta nftrace set 1 jump refused
		tcp flags & rst == rst meta nftrace set 1 jump refused
		meta l4proto { tcp, udp } meta nftrace set 1
	}
	chain delivered { type filter hook input priority 2147483646; meta l4proto { tcp, udp } jump ended; }
	chain sent { type filter hook postrouting priority 2147483646; oifname != "lo" meta l4proto { tcp, udp } jump ended; }
}
`

// kernelNode is the node, which is this process's own network namespace, and the wires to it from another one.
type kernelNode struct {
	tracer    *kerneltrace.Listener
	log       *kerneltrace.Logger
	raw       map[bool]int // sockets that send as the node, for IPv4 (true) and IPv6
	wires     map[string]wire
	links     map[uint32]string // names by index
	network   *host.Network
	addresses *host.Network               // knows no more than ip addr tells
	dirty     struct{ legacy, sets bool } // of the last rule set, still loaded
	watchers  string                      // what is loaded besides a rule set

	rules *netfilter.Ruleset // what is loaded, as the product's parsers read it from what tools print
	where map[place]at       // of each rule of nf_tables by its handle
	texts map[at]string      // of each rule of iptables-legacy
	walk  *netfilter.Walker
	// remembers is walk, but that it remembers from the beginning what chains do.
	remembers *netfilter.Walker
	views     []view
}

// view is a walk that knows less than there is to know. It must not say anything else for that.
type view struct {
	name   string
	walk   *netfilter.Walker
	noPort bool // the packet's source port is not given
}

// wire is the far end of an interface of the node.
type wire struct {
	fd  int
	mac net.HardwareAddr // the node's
}

// place names a rule as the kernel does, at as the walk does.
type (
	place struct {
		family, table, chain string
		handle               uint64
	}
	at struct {
		family, table, chain string
		num                  int
		legacy               bool
	}
)

// nodeLinks are the node's interfaces besides lo, and their addresses.
var nodeLinks = map[string][]string{
	"eth0": {"10.77.0.11/24", "10.77.0.12/24", "fd00:77::11/64", "fd00:77::12/64"},
	"pod0": {"10.244.1.1/24", "fd00:244:1::1/64"},
}

// nodeSettings are written below /proc/sys. Refusals are not to be rationed.
var nodeSettings = map[string]string{
	"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv6/conf/default/forwarding": "1",
	"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
	"net/ipv4/conf/all/route_localnet": "1", "net/ipv4/conf/default/route_localnet": "0",
	"net/ipv6/conf/all/accept_dad": "0", "net/ipv6/conf/default/accept_dad": "0", "net/ipv6/conf/default/accept_ra": "0",
	"net/ipv4/icmp_ratelimit": "0", "net/ipv4/icmp_ratemask": "0",
	"net/ipv4/icmp_msgs_per_sec": "1000000000", "net/ipv4/icmp_msgs_burst": "1000000000",
	"net/ipv6/icmp/ratelimit":          "0",
	"net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/default/send_redirects": "0",
}

// nodeRoutes are given to ip -batch. What goes to 10.66.0.0/24 is refused, and what goes to 10.67.0.0/24 swallowed.
const nodeRoutes = `
route add default via 10.77.0.1
route add unreachable 10.66.0.0/24
route add blackhole 10.67.0.0/24
route add default via fd00:77::1
route add unreachable fd00:66::/64
route add blackhole fd00:67::/64
`

// newKernelNode makes the node. It binds the calling goroutine to one CPU: of one CPU's packets none overtakes another.
func newKernelNode(t *testing.T) (*kernelNode, error) {
	t.Helper()
	runtime.LockOSThread()
	var cpu, allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, err
	}
	for i := range len(allowed) * bits.UintSize {
		if allowed.IsSet(i) {
			cpu.Set(i)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		return nil, err
	}
	for name, value := range nodeSettings {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	w := &kernelNode{raw: map[bool]int{}, wires: map[string]wire{}, links: map[uint32]string{}, watchers: watchers}
	if err := w.wire(t); err != nil {
		return nil, err
	}
	if _, err := run(nodeRoutes, "ip", "-batch", "-"); err != nil {
		return nil, err
	}
	var err error
	if w.tracer, err = kerneltrace.Listen(traceRoom); err != nil {
		return nil, err
	}
	if w.log, err = kerneltrace.Log(w.tracer, t.TempDir()); err != nil {
		return nil, err
	}
	for v4, family := range map[bool]int{true: unix.AF_INET, false: unix.AF_INET6} {
		if w.raw[v4], err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return nil, err
		}
	}
	err = w.readNetwork()
	return w, err
}

// wire makes the node's interfaces, whose far ends lie in another namespace, with a socket on each of them.
func (w *kernelNode) wire(t *testing.T) error {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	w.links[uint32(lo.Attrs().Index)] = "lo"
	beyond := testutil.NewNamespace(t)
	pid, err := strconv.Atoi(beyond.PID)
	if err != nil {
		return err
	}
	for name, addrs := range nodeLinks {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsPid(pid)}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		w.links[uint32(link.Attrs().Index)] = name
		w.wires[name] = wire{mac: link.Attrs().HardwareAddr}
		for _, a := range addrs {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if addr.IP.To4() == nil {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
	}
	sockets := map[string]int{}
	testutil.NewThread(t, beyond.Path).Do(func() { err = openFar(sockets) })
	if err != nil {
		return err
	}
	for name, fd := range sockets {
		x := w.wires[name]
		x.fd = fd
		w.wires[name] = x
	}
	return nil
}

// openFar sets the far ends up, and opens a socket on each of them.
func openFar(sockets map[string]int) error {
	for name := range nodeLinks {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil {
			return err
		}
		sockets[name] = fd
	}
	return nil
}

func (w *kernelNode) readNetwork() error {
	var f host.Files
	for _, x := range []struct {
		to   *[]byte
		args []string
	}{
		{&f.Addr, []string{"-j", "addr"}},
		{&f.Route4, []string{"-j", "route", "show", "table", "all"}},
		{&f.Route6, []string{"-j", "-6", "route", "show", "table", "all"}},
	} {
		out, err := run("", "ip", x.args...)
		if err != nil {
			return err
		}
		*x.to = []byte(out)
	}
	for name, value := range nodeSettings {
		f.Sysctl = fmt.Appendf(f.Sysctl, "%s = %s\n", name, value)
	}
	var errs []error
	w.network, errs = host.Parse(f)
	var less []error
	w.addresses, less = host.Parse(host.Files{Addr: f.Addr})
	return errors.Join(append(errs, less...)...)
}

// run runs a tool and returns what it prints.
func run(stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(bad.String()))
	}
	return out.String(), nil
}

// noLegacy empties what x_tables holds.
func noLegacy() string {
	var b strings.Builder
	for table, hooks := range builtinHooks {
		fmt.Fprintf(&b, "*%s\n", table)
		for _, h := range []byte(hooks) {
			fmt.Fprintf(&b, ":%s ACCEPT [0:0]\n", hookChains[h])
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// load replaces what is loaded. The error is a tool's that does not take it.
func (w *kernelNode) load(rs *ruleSet) error {
	if _, err := run("flush ruleset\n"+w.watchers+rs.native(), "nft", "-f", "-"); err != nil {
		// So that the old rules do not hold on to the old sets, nor to connections.
		_, again := run("flush ruleset\n", "nft", "-f", "-")
		return errors.Join(err, again)
	}
	if w.dirty.legacy {
		for _, tool := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
			if _, err := run(noLegacy(), tool); err != nil {
				return err
			}
		}
	}
	if w.dirty.sets {
		if err := destroySets(); err != nil {
			return err
		}
	}
	w.dirty.legacy, w.dirty.sets = false, len(rs.sets) > 0
	if len(rs.sets) > 0 {
		if _, err := run(strings.Join(rs.sets, "\n")+"\n", "ipset", "restore"); err != nil {
			return err
		}
	}
	for _, s := range saves {
		text := rs.save(s.backend, s.family)
		if text == "" {
			continue
		}
		w.dirty.legacy = w.dirty.legacy || s.backend == netfilter.BackendLegacy
		if _, err := run(text, s.tool+"-restore"); err != nil {
			return fmt.Errorf("%w%s", err, lineOf(err, text))
		}
	}
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return err
	}
	return w.read(rs)
}

// destroySets destroys all ipsets. What rules of nf_tables hold is let go of by a worker, a moment after they are gone.
func destroySets() (err error) {
	if _, err := run("", "ipset", "flush"); err != nil { // sets are in use by lists of sets
		return err
	}
	for range 100 {
		if _, err = run("", "ipset", "destroy"); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

var lineNumber = regexp.MustCompile(`line:? (\d+)`)

// lineOf returns the line that an error is about.
func lineOf(err error, text string) string {
	m := lineNumber.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	lines := strings.Split(text, "\n")
	if n, _ := strconv.Atoi(m[1]); 0 < n && n <= len(lines) {
		return ": " + lines[n-1]
	}
	return ""
}

// read reads back what is loaded, by the product's parsers.
func (w *kernelNode) read(rs *ruleSet) error {
	w.rules, w.where, w.texts = &netfilter.Ruleset{}, map[place]at{}, map[at]string{}
	shown := map[string]bool{}
	for _, s := range saves {
		if rs.save(s.backend, s.family) == "" {
			continue
		}
		text, err := run("", s.tool+"-save")
		if err != nil {
			return err
		}
		tables, err := iptables.Parse([]byte(text), s.ip, s.backend)
		if err != nil {
			return fmt.Errorf("%s-save: %w\n%s", s.tool, err, text)
		}
		shown[s.family] = shown[s.family] || s.backend == netfilter.BackendNFT
		if s.backend == netfilter.BackendLegacy {
			w.readTexts(s.family, text)
		}
		w.rules.Tables = append(w.rules.Tables, tables...)
	}
	listing, err := run("", "nft", "-j", "list", "ruleset")
	if err != nil {
		return err
	}
	wanted := func(family, table string) bool { return nftables.IPTables(family, table) && shown[family] }
	tables, err := nftables.Parse([]byte(listing), wanted)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name != watcher {
			w.rules.Tables = append(w.rules.Tables, t)
		}
	}
	if err := w.readHandles(listing); err != nil {
		return err
	}
	var sets netfilter.SetLookup
	if len(rs.sets) > 0 {
		text, err := run("", "ipset", "save")
		if err != nil {
			return err
		}
		parsed, err := ipset.Parse([]byte(text))
		if err != nil {
			return err
		}
		sets = parsed
	}
	w.rules.Link()
	w.walk = netfilter.NewWalker(w.rules, w.network, sets)
	w.remembers = netfilter.NewWalker(w.rules, w.network, sets, netfilter.WithMemoAfter(0))
	w.views = []view{
		{"a source port that is not known", w.walk, true},
		{"routes that are not known", netfilter.NewWalker(w.rules, w.addresses, sets), false},
		{"nothing known of the node", netfilter.NewWalker(w.rules, &host.Network{}, nil), false},
	}
	return nil
}

// end is what became of a packet.
const (
	vanished end = iota
	refused
	sent
	delivered
)

// answer is what the kernel did with a packet.
// flush is the packet that says that those before it are through.
// traceRoom is for the messages of one packet, however many rules it meets.
const traceRoom = 64 << 20

// send sends a packet, and reports what the kernel did with it. The error is one of the test's own.
// put hands a packet to the kernel. What its hooks drop at once is an error, too.
func (w *kernelNode) close() {
	_ = w.log.Close()
	_ = w.tracer.Close()
	for _, fd := range w.raw {
		_ = unix.Close(fd)
	}
	for _, x := range w.wires {
		_ = unix.Close(x.fd)
	}
}
