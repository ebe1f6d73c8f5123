// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
)

// What this process listens at is listed with its own number, in both families and both protocols.
func TestListening(t *testing.T) {
	var want []Socket
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		u, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		want = append(want,
			Socket{Protocol: "TCP", Local: netip.MustParseAddrPort(l.Addr().String())},
			Socket{Protocol: "UDP", Local: netip.MustParseAddrPort(u.LocalAddr().String())})
	}
	all, err := Listening()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		i := slices.IndexFunc(all, func(s Socket) bool { return s.Protocol == w.Protocol && s.Local == w.Local })
		if i < 0 {
			t.Errorf("%s %s is not listed", w.Protocol, w.Local)
			continue
		}
		users, err := Users(all[i : i+1 : i+1])
		if err != nil {
			t.Fatal(err)
		}
		pid := strconv.Itoa(os.Getpid())
		if !slices.ContainsFunc(users[all[i].Inode], func(u User) bool { return u.PID == pid && u.Name != "" }) {
			t.Errorf("%s %s: users %v, this process is %s", w.Protocol, w.Local, users, pid)
		}
	}
}

// Lines that are no sockets are passed over.
func TestParseRefuses(t *testing.T) {
	const good = "0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000 0 0 4711 1 0 100 0 0 10 0"
	s, state, ok := parse(good)
	want := Socket{
		Local: netip.MustParseAddrPort("127.0.0.1:8080"), Remote: netip.MustParseAddrPort("0.0.0.0:0"),
		Inode: "4711", Receive: 3,
	}
	if !ok || state != "0A" || s != want {
		t.Errorf("%q: %+v %s %v", good, s, state, ok)
	}
	for _, line := range []string{
		"", "sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
		"0: 0100007F 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711",
		"0: 0100007:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711",
		"0: 0100007F0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711",
		"0: 0100007F:1F901 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711",
		"0: 0100007F:1F90 00000000:0000 0A 0000000000000000 00:00000000 00000000 0 0 4711",
	} {
		if s, _, ok := parse(line); ok {
			t.Errorf("%q is taken for %+v", line, s)
		}
	}
}
