// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// Whether the node tells a pod its address is what the kernel does: with each setting a pod that knows no link-layer
// address connects to its gateway.
func TestARPIsAnsweredAsTheKernelDoes(t *testing.T) {
	testutil.Long(t)
	testutil.NeedRoot(t, "ip", "nsenter", "sysctl")
	node, pod := testutil.NewNamespace(t), testutil.NewNamespace(t)
	node.Run(t, "ip", "link", "set", "lo", "up")
	node.Run(t, "ip", "link", "add", "cni0", "type", "veth", "peer", "name", "eth0", "netns", pod.PID)
	node.Run(t, "ip", "link", "set", "cni0", "up")
	node.Run(t, "ip", "link", "add", "other", "type", "veth", "peer", "name", "other1")
	node.Run(t, "ip", "link", "set", "other", "up")
	node.Run(t, "ip", "link", "set", "other1", "up")
	pod.Run(t, "ip", "link", "set", "eth0", "up")
	pod.Run(t, "ip", "addr", "add", "10.9.0.5/24", "dev", "eth0")
	testutil.Echo(t, testutil.NewThread(t, node.Path), "tcp", "0.0.0.0:80")
	inPod := testutil.NewThread(t, pod.Path)
	gateway, asker := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.5")
	bridge := []string{"addr add 10.9.0.1/24 dev cni0"}
	single := []string{"addr add 10.9.0.1/32 dev cni0", "route add 10.9.0.5 dev cni0"}
	elsewhere := []string{"addr add 10.9.0.1/24 dev other", "route add 10.9.0.5 dev cni0"}
	detour := []string{"route add 10.9.0.5 dev other", bridge[0]}
	for _, c := range []struct {
		name     string
		net      []string // ip commands of the node
		settings string
		answers  bool
	}{
		{"a subnet", bridge, "", true},
		{"a subnet, 1", bridge, "cni0.arp_ignore=1", true},
		{"a subnet, 2", bridge, "cni0.arp_ignore=2", true},
		{"a subnet, 3", bridge, "cni0.arp_ignore=3", true},
		{"a subnet, 8", bridge, "cni0.arp_ignore=8", false},
		{"a subnet, 8 of all", bridge, "all.arp_ignore=8", false},
		{"a subnet, 8 of another interface", bridge, "other.arp_ignore=8", true},
		{"a single address", single, "", true},
		{"a single address, 1", single, "all.arp_ignore=1", true},
		{"a single address, 2", single, "cni0.arp_ignore=2", false},
		{"another interface's", elsewhere, "", true},
		{"another interface's, 1", elsewhere, "cni0.arp_ignore=1", false},
		{"another interface's, 1 of that", elsewhere, "other.arp_ignore=1", true},
		{"another interface's, 2", elsewhere, "all.arp_ignore=2", false},
		{"a filter", bridge, "all.arp_filter=1", true},
		{"a filter, the route is by another interface", detour, "cni0.arp_filter=1", false},
		{"the route is by another interface", detour, "", true},
		{"no ARP", []string{"link set cni0 arp off", bridge[0]}, "", false},
	} {
		node.Run(t, "ip", "addr", "flush", "dev", "cni0")
		node.Run(t, "ip", "addr", "flush", "dev", "other")
		node.Run(t, "ip", "route", "flush", "table", "main")
		node.Run(t, "ip", "link", "set", "cni0", "arp", "on")
		for _, of := range []string{"all", "cni0", "other"} {
			node.Run(t, "sysctl", "-qw", "net.ipv4.conf."+of+".arp_ignore=0", "net.ipv4.conf."+of+".arp_filter=0",
				"net.ipv4.conf."+of+".rp_filter=0")
		}
		for _, l := range c.net {
			node.Run(t, append([]string{"ip"}, strings.Fields(l)...)...)
		}
		if c.settings != "" {
			node.Run(t, "sysctl", "-qw", "net.ipv4.conf."+c.settings)
		}
		node.Run(t, "ip", "neigh", "flush", "all")
		pod.Run(t, "ip", "neigh", "flush", "all")
		_, _ = testutil.Ask(inPod, "tcp", netip.Addr{}, "10.9.0.1:80", 400*time.Millisecond)
		got := strings.Contains(pod.Run(t, "ip", "neigh", "show", "to", "10.9.0.1"), "lladdr")
		n, errs := Parse(Files{
			Addr: []byte(node.Run(t, "ip", "-j", "addr")), Link: []byte(node.Run(t, "ip", "-j", "-d", "link")),
			Route4: []byte(node.Run(t, "ip", "-j", "route", "show", "table", "all")),
			Rule4:  []byte(node.Run(t, "ip", "-j", "rule")), Sysctl: []byte(node.Run(t, "sysctl", "-a", "-r", "^net.ipv4.conf")),
		})
		if len(errs) > 0 {
			t.Fatal(c.name, errs)
		}
		says, why, known := n.AnswersARP("cni0", gateway, asker)
		if got != c.answers || !known || says != got || (why == "") != says {
			t.Errorf("%s: answered %v, and it is said %v (%q, known %v)", c.name, got, says, why, known)
		}
	}
	if _, _, known := (&Network{}).AnswersARP("cni0", gateway, asker); known {
		t.Error("it is known where nothing was read")
	}
}
