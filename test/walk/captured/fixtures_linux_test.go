// SPDX-License-Identifier: Apache-2.0

package captured

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const (
	probing = "SVCPROXY_TEST_PROBES" // set in the processes that send packets for the test
	// firstPort is above the node ports. Each packet is sent from a port of its own: where two connections come from one
	// port to one endpoint, the kernel gives the second another port, which looks like a masquerade.
	firstPort = 33000
)

// probe is one packet to send, and what the kernel did with it.
type probe struct {
	Proto, Src, Dst string
	Port            uint16
	From            uint16        // the port to send from
	Patience        time.Duration // how long to wait for a refusal
}

func TestMain(m *testing.M) {
	if os.Getenv(probing) != "" {
		serveProbes(os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// serveProbes sends what it reads, a JSON object a line, and answers each with "sent", "refused" or an error.
func serveProbes(in io.Reader, out io.Writer) {
	d := json.NewDecoder(in)
	for {
		var p probe
		if err := d.Decode(&p); err != nil {
			return
		}
		fmt.Fprintln(out, send(p))
	}
}

// send opens a connection without waiting for it, or sends an empty datagram.
func send(p probe) string {
	dst, src := netip.MustParseAddr(p.Dst), netip.MustParseAddr(p.Src)
	family, typ, proto := syscall.AF_INET, syscall.SOCK_STREAM, 0
	if dst.Is6() {
		family = syscall.AF_INET6
	}
	switch p.Proto {
	case "UDP":
		typ = syscall.SOCK_DGRAM
	case "SCTP":
		proto = 132
	}
	fd, err := syscall.Socket(family, typ|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, proto)
	if err != nil {
		return "no socket: " + err.Error()
	}
	defer syscall.Close(fd)
	at := func(a netip.Addr, port uint16) syscall.Sockaddr {
		if a.Is4() {
			return &syscall.SockaddrInet4{Addr: a.As4(), Port: int(port)}
		}
		return &syscall.SockaddrInet6{Addr: a.As16(), Port: int(port)}
	}
	if err := syscall.Bind(fd, at(src, p.From)); err != nil {
		return "cannot bind: " + err.Error()
	}
	if err := syscall.Connect(fd, at(dst, p.Port)); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		return "connect: " + err.Error()
	}
	if p.Proto == "UDP" {
		if _, err := syscall.Write(fd, nil); err != nil {
			return "write: " + err.Error()
		}
	}
	time.Sleep(p.Patience)
	if e, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ERROR); err == nil && e != 0 {
		return fmt.Sprintf("refused %v", syscall.Errno(e))
	}
	return "sent"
}

// tools are what the tests need besides root.
var tools = []string{"nsenter", "ip", "conntrack", "iptables-nft-restore", "iptables-legacy-restore", "sysctl", "nft"}

func TestFixturesAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	for _, name := range []string{
		"iptables", "iptables-legacy", "real-2node-iptables", "nftables", "real-2node-nftables",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has a network namespace of its own
			if testutil.Isolate(t, unix.CLONE_NEWNET, tools...) {
				compareCaptured(t, name)
			}
		})
	}
}

// nodeNetwork is the node's namespace, this process's own, and one beyond its uplink in which everybody else is.
type nodeNetwork struct {
	t      *testing.T
	beyond *testutil.Namespace
	probes map[string]*prober
	port   uint16 // the last port that was sent from
}

type prober struct {
	in  io.Writer
	out io.Reader
}

// newNodeNetwork is a network with the rules of the captured node.
func newNodeNetwork(t *testing.T, node *snapshot.Node, sources []netip.Addr) *nodeNetwork {
	t.Helper()
	w := emptyNodeNetwork(t, sources)
	w.load(node)
	w.serve()
	return w
}

// emptyNodeNetwork gives the node the addresses and interfaces of the captured one, and the namespace beyond every
// other address.
func emptyNodeNetwork(t *testing.T, sources []netip.Addr) *nodeNetwork {
	t.Helper()
	w := &nodeNetwork{t: t, probes: map[string]*prober{}, port: firstPort - 1}
	w.beyond = testutil.NewNamespace(t)
	beyond := func(argv ...string) { w.beyond.Run(t, argv...) }
	testutil.Run(t, "", "ip", "link", "set", "lo", "up")
	testutil.Run(t, "", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0", "net.ipv4.conf.all.route_localnet=1",
		"net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0",
		"net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")
	beyond("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		"net.ipv6.conf.default.accept_dad=0")
	testutil.Run(t, "", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "up0", "netns", w.beyond.PID)
	testutil.Run(t, "", "ip", "link", "set", "eth0", "up")
	beyond("ip", "link", "set", "lo", "up")
	beyond("ip", "link", "set", "up0", "up")
	testutil.Run(t, "", "ip", "addr", "add", "10.77.0.11/24", "dev", "eth0")
	testutil.Run(t, "", "ip", "addr", "add", "fd00:77::11/64", "dev", "eth0", "nodad")
	testutil.Run(t, "", "ip", "route", "add", "default", "via", "10.77.0.1")
	testutil.Run(t, "", "ip", "-6", "route", "add", "default", "via", "fd00:77::1")
	beyond("ip", "addr", "add", "10.77.0.1/24", "dev", "up0")
	beyond("ip", "addr", "add", "fd00:77::1/64", "dev", "up0", "nodad")
	beyond("ip", "route", "add", "default", "via", "10.77.0.11")
	beyond("ip", "-6", "route", "add", "default", "via", "fd00:77::11")
	// What comes through to the other side is swallowed there: answers would only close connections.
	beyond("iptables-legacy", "-P", "INPUT", "DROP")
	beyond("iptables-legacy", "-A", "OUTPUT", "-p", "icmp", "-j", "DROP")
	beyond("iptables-legacy", "-I", "INPUT", "-p", "icmp", "-j", "ACCEPT")
	for _, a := range sources {
		bits := "/32"
		if a.Is6() {
			bits = "/128"
		}
		beyond("ip", "addr", "add", a.String()+bits, "dev", "lo")
	}
	return w
}

// serve starts a process on either side that sends packets.
func (w *nodeNetwork) serve() {
	t := w.t
	t.Helper()
	for name, cmd := range map[string]*exec.Cmd{
		"node":   exec.CommandContext(t.Context(), os.Args[0]),
		"beyond": w.beyond.Command(t, os.Args[0]),
	} {
		cmd.Env = append(os.Environ(), probing+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		w.probes[name] = &prober{in, out}
	}
}

// load loads the captured rules, without the nfacct matches, which count and do nothing else.
func (w *nodeNetwork) load(node *snapshot.Node) {
	w.t.Helper()
	saved := false
	for _, v := range []string{"ip", "ip6"} {
		for _, backend := range []string{"nft", "legacy"} {
			data, ok, err := node.File(v + "tables-" + backend + "-save.txt")
			if err != nil {
				w.t.Fatal(err)
			}
			if !ok {
				continue
			}
			var lines []string
			for line := range strings.Lines(string(data)) {
				before, after, has := strings.Cut(line, "-m nfacct --nfacct-name ")
				if has {
					_, after, _ = strings.Cut(strings.TrimLeft(after, " "), " ")
					line = before + after
				}
				lines = append(lines, line)
			}
			testutil.Run(w.t, strings.Join(lines, ""), v+"tables-"+backend+"-restore")
			saved = true
		}
	}
	w.loadNative(node, saved)
}

// loadNative loads the tables of nftables that iptables' save files do not show: what nft -j lists, in an order in
// which nft takes it, chains ahead of the maps that refer to them.
func (w *nodeNetwork) loadNative(node *snapshot.Node, saved bool) {
	w.t.Helper()
	data, ok, err := node.File("nft-ruleset.json")
	if err != nil {
		w.t.Fatal(err)
	}
	if !ok {
		return
	}
	var listed struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal(data, &listed); err != nil {
		w.t.Fatal(err)
	}
	var commands []map[string]any
	for _, kind := range []string{"table", "chain", "set", "map", "rule"} {
		for _, o := range listed.Objects {
			body, ok := o[kind]
			if !ok {
				continue
			}
			table, _ := body["table"].(string)
			if kind == "table" {
				table, _ = body["name"].(string)
			}
			if family, _ := body["family"].(string); saved && nftables.IPTables(family, table) {
				continue
			}
			commands = append(commands, map[string]any{"add": o})
		}
	}
	if len(commands) == 0 {
		return
	}
	text, err := json.Marshal(map[string]any{"nftables": commands})
	if err != nil {
		w.t.Fatal(err)
	}
	testutil.Run(w.t, string(text), "nft", "-j", "-f", "-")
}

// send sends one packet and returns what came of it: "DNAT 10.0.0.1:80 masq", "Accept", "Reject", "Drop".
func (w *nodeNetwork) send(from string, p probe) string {
	w.t.Helper()
	w.port++
	p.From = w.port
	pr := w.probes[from]
	if err := json.NewEncoder(pr.in).Encode(p); err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, 200)
	n, err := pr.out.Read(buf)
	if err != nil {
		w.t.Fatal(err)
	}
	answer := strings.TrimSpace(string(buf[:n]))
	verb, _, _ := strings.Cut(answer, " ")
	switch verb {
	case "sent":
	case "refused":
		// Locally a refused packet is in no table; what was refused behind a translation is not among these rules.
		if !strings.Contains(answer, "refused") && !strings.Contains(answer, "unreachable") &&
			!strings.Contains(answer, "no route") {
			return answer
		}
		// The entry of a packet that was rejected when it came in by lo was confirmed when it went out.
		if e := w.entry(p); strings.HasPrefix(e, "DNAT") {
			return e
		}
		return "Reject"
	default:
		return answer
	}
	if e := w.entry(p); e != "" {
		return e
	}
	return "Drop"
}

// entry looks the connection up in the node's connection tracking.
func (w *nodeNetwork) entry(p probe) string {
	port := strconv.Itoa(int(p.From))
	family := "ipv4"
	if strings.Contains(p.Dst, ":") {
		family = "ipv6"
	}
	out, err := exec.Command("conntrack", "-L", "-f", family, "-p", strings.ToLower(p.Proto), "--orig-src", p.Src,
		"--orig-dst", p.Dst, "--orig-port-src", port,
		"--orig-port-dst", strconv.Itoa(int(p.Port))).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if line == "" {
		return ""
	}
	fields := map[string][]string{}
	for f := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			fields[k] = append(fields[k], v)
		}
	}
	if len(fields["src"]) < 2 || len(fields["sport"]) < 2 {
		return "unreadable: " + line
	}
	to := net.JoinHostPort(fields["src"][1], fields["sport"][1])
	s := "Accept"
	if to != net.JoinHostPort(p.Dst, strconv.Itoa(int(p.Port))) {
		s = "DNAT " + to
	}
	// A local client keeps its address, but MASQUERADE --random-fully gives it another port.
	if fields["dst"][1] != p.Src || fields["dport"][1] != port {
		s += " masq"
	}
	return s
}

// listen answers for endpoints that are the node itself: a reset would take the connection out of the table at once.
func (w *nodeNetwork) listen(paths []report.Path) {
	w.t.Helper()
	open := map[string]bool{}
	for _, p := range paths {
		for _, e := range p.Expected.Endpoints {
			at := net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
			if open[at] || e.Address != "10.77.0.11" || p.Frontend.Protocol != "TCP" {
				continue
			}
			open[at] = true
			l, err := net.Listen("tcp", at)
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(func() { _ = l.Close() })
		}
	}
}
