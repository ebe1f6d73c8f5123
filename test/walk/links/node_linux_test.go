// SPDX-License-Identifier: Apache-2.0

package links

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
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
	err := collect.Collect(context.Background(), collect.Options{Files: []string{snapshot.NFTFile}},
		func(f collect.File) error {
			if f.Unread != "" {
				return errors.New(f.Unread)
			}
			dump = f.Data
			return nil
		})
	must(n.t, err)
	tables, err := nftables.Parse(dump, nil)
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
