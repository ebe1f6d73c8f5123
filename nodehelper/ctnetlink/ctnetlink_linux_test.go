// SPDX-License-Identifier: Apache-2.0

package ctnetlink

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

const rules = `
table ip t {
	chain out {
		type nat hook output priority -100
		ip daddr 10.96.0.1 udp dport 53 dnat to 127.0.0.1:5353
	}
}
table ip6 t {
	chain out {
		type nat hook output priority -100
		ip6 daddr fd00::1 udp dport 53 dnat to [::1]:5353
	}
}
`

func run(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func TestFind(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip") {
		return
	}
	run(t, "", "ip", "link", "set", "lo", "up")
	for _, prefix := range []string{"10.96.0.1/32", "fd00::1/128"} {
		run(t, "", "ip", "addr", "add", prefix, "dev", "lo", "nodad")
	}
	run(t, rules, "nft", "-f", "-")
	testFind(t, "10.96.0.1:53", "127.0.0.1:5353")
	testFind(t, "[fd00::1]:53", "[::1]:5353")
	if e := Find(unix.IPPROTO_UDP, netip.AddrPort{}, netip.MustParseAddrPort("10.96.0.1:53")); e != nil {
		t.Errorf("%v without a source", e)
	}
}

// testFind sends a packet to a frontend, which the rules translate to an endpoint, and replies.
func testFind(t *testing.T, front, end string) {
	t.Helper()
	frontend, endpoint := netip.MustParseAddrPort(front), netip.MustParseAddrPort(end)
	server, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(frontend))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	local := netip.MustParseAddrPort(client.LocalAddr().String())
	find := func() *Entry { return Find(unix.IPPROTO_UDP, local, frontend) }
	if e := find(); e != nil {
		t.Errorf("%s: %v before the first packet", front, e)
	}
	from := arrives(t, server, func() error { _, err := client.Write([]byte("ask")); return err })
	if e, want := find(), (Entry{From: endpoint, To: local, Unreplied: true}); e == nil || *e != want {
		t.Errorf("%s: %v after the first packet, want %v", front, e, want)
	}
	arrives(t, client, func() error { _, err := server.WriteToUDPAddrPort([]byte("answer"), from); return err })
	if e, want := find(), (Entry{From: endpoint, To: local}); e == nil || *e != want {
		t.Errorf("%s: %v after the reply, want %v", front, e, want)
	}
	if e := Find(unix.IPPROTO_TCP, local, frontend); e != nil {
		t.Errorf("%s: %v of another protocol", front, e)
	}
}

// arrives sends a datagram until one is received, and returns its source: a datagram may be lost on a busy machine.
func arrives(t *testing.T, at *net.UDPConn, send func() error) netip.AddrPort {
	t.Helper()
	var err error
	for range 60 {
		if err = send(); err != nil {
			t.Fatal(err)
		}
		if err = at.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		var from netip.AddrPort
		if _, from, err = at.ReadFromUDPAddrPort(make([]byte, 10)); err == nil {
			return from
		}
	}
	t.Fatal(err)
	return netip.AddrPort{}
}

func TestEntryOfDamagedAttributes(t *testing.T) {
	damaged := []byte{9, 0, 1, 0, 1}
	v4 := netlink.Bytes(attrSourceV4, []byte{10, 0, 0, 1})
	for name, reply := range map[string][]netlink.Attribute{
		"none":                 nil,
		"tuple is damaged":     {netlink.Bytes(attrTupleReply, damaged)},
		"addresses are":        {encoded(t, netlink.Bytes(attrTupleIP, damaged))},
		"no address":           {encoded(t, netlink.Nested(attrTupleProto, netlink.Uint16(attrSourcePort, 53)))},
		"an address too short": {encoded(t, netlink.Nested(attrTupleIP, netlink.Bytes(attrSourceV4, []byte{1, 2})))},
	} {
		if e := entryOf(reply); e != nil {
			t.Errorf("%s: %v", name, e)
		}
	}
	port := netlink.Uint16(attrSourcePort, 53)
	whole := encoded(t, netlink.Nested(attrTupleIP, v4), netlink.Nested(attrTupleProto, port))
	if e := entryOf([]netlink.Attribute{whole}); e == nil || e.From != netip.MustParseAddrPort("10.0.0.1:53") {
		t.Errorf("%v", e)
	}
}

// encoded is the tuple of replies as it is received.
func encoded(t *testing.T, attributes ...netlink.Attribute) netlink.Attribute {
	t.Helper()
	b, err := netlink.Encode(attributes)
	if err != nil {
		t.Fatal(err)
	}
	return netlink.Bytes(attrTupleReply, b)
}
