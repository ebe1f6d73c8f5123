// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// What the files say of a next hop is what the kernel does: each fault is made between two namespaces, a connection is
// tried, and the files are read.
func TestNextHopsAsTheKernelHasThem(t *testing.T) {
	testutil.NeedRoot(t, "ip", "bridge", "nsenter")
	a, b := testutil.NewNamespace(t), testutil.NewNamespace(t)
	in := func(ns *testutil.Namespace, argv ...string) string { return ns.Run(t, argv...) }
	in(a, "ip", "link", "add", "v0", "address", "02:00:00:00:01:01", "type", "veth", "peer", "name", "v1", "netns", b.PID)
	in(b, "ip", "link", "set", "v1", "address", "02:00:00:00:01:02")
	for ns, dev := range map[*testutil.Namespace]string{a: "v0", b: "v1"} {
		own := map[string]string{"v0": "1", "v1": "2"}[dev]
		in(ns, "ip", "link", "set", "lo", "up")
		in(ns, "ip", "addr", "add", "10.5.0."+own+"/24", "dev", dev)
		in(ns, "ip", "link", "set", dev, "up")
		in(
			ns,
			"ip",
			"link",
			"add",
			"vx0",
			"address",
			"02:00:00:00:02:0"+own,
			"type",
			"vxlan",
			"id",
			"7",
			"local",
			"10.5.0."+own,
			"dev",
			dev,
			"dstport",
			"4789",
			"nolearning",
		)
		in(ns, "ip", "addr", "add", "10.6.0."+own+"/24", "dev", "vx0")
		in(ns, "ip", "link", "set", "vx0", "up")
	}
	in(b, "ip", "neigh", "replace", "10.6.0.1", "dev", "vx0", "lladdr", "02:00:00:00:02:01", "nud", "permanent")
	in(b, "bridge", "fdb", "replace", "02:00:00:00:02:01", "dev", "vx0", "dst", "10.5.0.1", "self", "permanent")
	in(a, "bridge", "fdb", "replace", "02:00:00:00:02:09", "dev", "vx0", "dst", "10.5.0.9", "self", "permanent")
	inA, inB := testutil.NewThread(t, a.Path), testutil.NewThread(t, b.Path)
	testutil.Echo(t, inB, "tcp", "10.5.0.2:80")
	testutil.Echo(t, inB, "tcp", "10.6.0.2:80")

	neighbour := func(ip, dev, mac string) []string {
		return []string{"ip", "neigh", "replace", ip, "dev", dev, "lladdr", mac, "nud", "permanent"}
	}
	end := func(ip string) []string {
		return []string{"bridge", "fdb", "replace", "02:00:00:00:02:02", "dev", "vx0", "dst", ip, "self", "permanent"}
	}
	for _, step := range []struct {
		name  string
		in    *testutil.Namespace
		argv  []string
		to    string
		lives bool
		says  func(n *Network) bool // what the files say: the packet gets to the next hop
	}{
		{"as it should be", a, []string{"ip", "neigh"}, "10.5.0.2", true, func(n *Network) bool {
			return !n.NoCarrier("v0")
		}},
		{"its own address", a, neighbour("10.5.0.2", "v0", "02:00:00:00:01:01"), "10.5.0.2", false, func(n *Network) bool {
			e, ok := n.Neighbour("v0", netip.MustParseAddr("10.5.0.2"))
			return !ok || !e.Static || e.MAC != n.MAC("v0")
		}},
		{"no address", a, neighbour("10.5.0.2", "v0", anyMAC), "10.5.0.2", false, func(n *Network) bool {
			e, _ := n.Neighbour("v0", netip.MustParseAddr("10.5.0.2"))
			return e.State != "PERMANENT" || e.MAC != anyMAC
		}},
		{"the right address", a, neighbour("10.5.0.2", "v0", "02:00:00:00:01:02"), "10.5.0.2", true, func(n *Network) bool {
			e, _ := n.Neighbour("v0", netip.MustParseAddr("10.5.0.2"))
			return e.MAC == "02:00:00:00:01:02"
		}},
		{"nobody has the address", a, []string{"ip", "neigh"}, "10.5.0.77", false, func(n *Network) bool {
			e, ok := n.Neighbour("v0", netip.MustParseAddr("10.5.0.77"))
			return !ok || !e.Failed
		}},
		{
			"a tunnel without an entry", a, neighbour("10.6.0.2", "vx0", "02:00:00:00:02:02"), "10.6.0.2", false,
			func(n *Network) bool {
				ends, known := n.TunnelEnds("vx0", "02:00:00:00:02:02")
				return !known || len(ends) > 0
			},
		},
		{"a tunnel to another end", a, end("10.5.0.9"), "10.6.0.2", false, func(n *Network) bool {
			ends, _ := n.TunnelEnds("vx0", "02:00:00:00:02:02")
			return len(ends) != 1 || ends[0] != netip.MustParseAddr("10.5.0.9")
		}},
		{"a tunnel to the right end", a, end("10.5.0.2"), "10.6.0.2", true, func(n *Network) bool {
			ends, known := n.TunnelEnds("vx0", "02:00:00:00:02:02")
			return known && len(ends) == 1 && ends[0] == netip.MustParseAddr("10.5.0.2")
		}},
		{"the other end is down", b, []string{"ip", "link", "set", "v1", "down"}, "10.5.0.2", false, func(n *Network) bool {
			return !n.NoCarrier("v0")
		}},
	} {
		in(step.in, step.argv...)
		_, err := testutil.Ask(inA, "tcp", netip.Addr{}, step.to+":80", time.Second)
		var n *Network
		// The kernel tells of a carrier that is gone up to a second later, on a busy machine more (net/core/link_watch.c).
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			var errs []error
			n, errs = Parse(Files{
				Addr: []byte(in(a, "ip", "-j", "addr")), Link: []byte(in(a, "ip", "-j", "-d", "link")),
				Neighbours: []byte(in(a, "ip", "-j", "neigh", "show", "nud", "all")),
				BridgeFDB:  []byte(in(a, "bridge", "-j", "fdb", "show")),
			})
			if len(errs) > 0 {
				t.Fatal(step.name, errs)
			}
			if step.says(n) == step.lives || time.Now().After(end) {
				break
			}
		}
		if got := err == nil; got != step.lives || step.says(n) != step.lives {
			t.Errorf("%s: the connection lives: %t (%v), the files say %t", step.name, got, err, step.says(n))
		}
	}
}
