// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/conntrack"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// All of 65,000 connections are read.
func TestManyConnections(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "conntrack", "nft", "ip") {
		return
	}
	testutil.Run(t, "", "ip", "link", "set", "lo", "up")
	testutil.Run(t, "add table ip t; add chain ip t c { type filter hook output priority 0; }\n"+
		"add rule ip t c ct state new accept\n", "nft", "-f", "-")
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const connections = 65_000
	sent := map[netip.AddrPort]bool{}
	for i := range connections {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i / 1000), byte(i/250%4 + 1)}), uint16(1+i%250))
		_, _ = c.WriteToUDPAddrPort([]byte("x"), to) // it reports that there is no one at the one before, too
		sent[to] = true
	}
	if len(sent) != connections {
		t.Fatalf("%d connections", len(sent))
	}
	var file File
	err = Collect(t.Context(), Options{Root: "/", Files: []string{snapshot.ConntrackFile}}, func(f File) error {
		if f.Name == snapshot.ConntrackFile {
			file = f
		}
		return nil
	})
	if err != nil || file.Unread != "" {
		t.Fatal(err, file.Unread)
	}
	all, err := conntrack.Parse(file.Data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		delete(sent, netip.AddrPortFrom(all[i].Original.Dst, all[i].Original.DstPort))
	}
	if len(sent) > 0 {
		t.Errorf("%d connections were not read", len(sent))
	}
}
