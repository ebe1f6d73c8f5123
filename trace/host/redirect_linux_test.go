// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// A gateway tells the node of another one, and the kernel goes by it: lookups have the gateway that ip route get has.
func TestRedirectsAsTheKernelFollowsThem(t *testing.T) {
	testutil.NeedRoot(t, "ip", "nsenter", "sysctl")
	node, router := testutil.NewNamespace(t), testutil.NewNamespace(t)
	node.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", router.PID)
	for _, line := range []string{
		"link set eth0 up", "addr add 10.9.0.2/24 dev eth0", "-6 addr add fd00:9::2/64 dev eth0 nodad",
		"-6 addr add fe80::2/64 dev eth0 nodad", "route add 10.50.0.0/16 via 10.9.0.1",
		"-6 route add fd00:50::/64 via fe80::1 dev eth0",
	} {
		node.Run(t, append([]string{"ip"}, strings.Fields(line)...)...)
	}
	for _, line := range []string{
		"link set eth0 up", "addr add 10.9.0.1/24 dev eth0", "addr add 10.9.0.3/24 dev eth0",
		"-6 addr add fe80::1/64 dev eth0 nodad", "-6 addr add fe80::3/64 dev eth0 nodad",
	} {
		router.Run(t, append([]string{"ip"}, strings.Fields(line)...)...)
	}
	node.Run(t, "sysctl", "-qw", "net.ipv4.conf.all.accept_redirects=1", "net.ipv4.conf.eth0.accept_redirects=1",
		"net.ipv6.conf.eth0.accept_redirects=1")
	routes := func(family string) []byte {
		return []byte(node.Run(t, "ip", "-j", family, "route", "show", "table", "all") +
			node.Run(t, "ip", "-j", family, "route", "show", "cache"))
	}
	for _, c := range []struct {
		name, dst, beside, gateway string
		send                       func() error
	}{
		{"IPv4", "10.50.0.9", "10.50.0.8", "10.9.0.3", func() error {
			return redirect4("10.9.0.1", "10.9.0.2", "10.9.0.3", "10.50.0.9")
		}},
		{"IPv6", "fd00:50::9", "fd00:50::8", "fe80::3", func() error {
			return redirect6("fe80::1", "fe80::2", "fe80::3", "fd00:50::9")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lookup := func(dst string) Lookup {
				n, errs := Parse(Files{
					Addr: []byte(node.Run(t, "ip", "-j", "addr")), Route4: routes("-4"), Route6: routes("-6"),
				})
				if len(errs) > 0 {
					t.Fatal(errs)
				}
				return n.Lookup(Query{Dst: netip.MustParseAddr(dst), Local: true, Bare: true})
			}
			if l := lookup(c.dst); !l.Known || l.By.Redirected().IsValid() || l.Gateway.String() == c.gateway {
				t.Fatalf("before: %+v", l)
			}
			deadline := time.Now().Add(10 * time.Second)
			for !strings.Contains(node.Run(t, "ip", "route", "get", c.dst), "via "+c.gateway) {
				if time.Now().After(deadline) {
					t.Fatalf("the kernel takes no redirect: %s", node.Run(t, "ip", "route", "get", c.dst))
				}
				var err error
				testutil.NewThread(t, router.Path).Do(func() { err = c.send() })
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			l := lookup(c.dst)
			if !l.Known || l.Gateway.String() != c.gateway || l.Dev != "eth0" || l.By.Redirected().String() != c.gateway ||
				!strings.Contains(l.By.String(), "redirected to "+c.gateway) {
				t.Errorf("after: %+v by %s; the kernel: %s", l, l.By, node.Run(t, "ip", "route", "get", c.dst))
			}
			if l := lookup(c.beside); !l.Known || l.By.Redirected().IsValid() {
				t.Errorf("another destination: %+v", l)
			}
		})
	}
}

// redirect4 sends a redirect of ICMP (RFC 792): from a gateway to a host, which is to send what is for dst by another
// gateway.
func redirect4(from, to, by, dst string) error {
	sum := func(b []byte) uint16 {
		var s uint32
		for i := 0; i+1 < len(b); i += 2 {
			s += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		for s > 0xffff {
			s = s>>16 + s&0xffff
		}
		return ^uint16(s)
	}
	address := func(s string) []byte { a := netip.MustParseAddr(s).As4(); return a[:] }
	inner := make([]byte, 28) // an IP header, and eight bytes of ICMP's echo
	inner[0], inner[3], inner[8], inner[9] = 0x45, 28, 64, unix.IPPROTO_ICMP
	copy(inner[12:], address(to))
	copy(inner[16:], address(dst))
	binary.BigEndian.PutUint16(inner[10:], sum(inner[:20]))
	// Of ICMP, an echo's answer alone is one of the kernel's own packets (icmp_err in net/ipv4/icmp.c).
	binary.BigEndian.PutUint16(inner[22:], sum(inner[20:]))
	packet := append([]byte{5, 1, 0, 0}, address(by)...)
	packet = append(packet, inner...)
	binary.BigEndian.PutUint16(packet[2:], sum(packet))
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Bind(s, &unix.SockaddrInet4{Addr: netip.MustParseAddr(from).As4()}); err != nil {
		return err
	}
	return unix.Sendto(s, packet, 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(to).As4()})
}

// redirect6 is redirect4 for IPv6 (RFC 4861, 4.5).
func redirect6(from, to, by, dst string) error {
	target, destination := netip.MustParseAddr(by).As16(), netip.MustParseAddr(dst).As16()
	packet := append(make([]byte, 8), target[:]...)
	packet[0] = 137
	packet = append(packet, destination[:]...)
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	const all = 255 // so that it comes from the link
	if err := unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, all); err != nil {
		return err
	}
	if err := unix.SetsockoptString(s, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "eth0"); err != nil {
		return err
	}
	if err := unix.Bind(s, &unix.SockaddrInet6{Addr: netip.MustParseAddr(from).As16(), ZoneId: 2}); err != nil {
		return err
	}
	return unix.Sendto(s, packet, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr(to).As16(), ZoneId: 2})
}
