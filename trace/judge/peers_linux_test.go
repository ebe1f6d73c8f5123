// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What a node says of its interfaces decides over an entry that is set by hand as the kernel does: each entry is made
// between two namespaces, and a connection is tried.
func TestStaticNeighboursAsTheKernelHasThem(t *testing.T) {
	testutil.NeedRoot(t, "ip", "nsenter")
	a, b := testutil.NewNamespace(t), testutil.NewNamespace(t)
	a.Run(t, "ip", "link", "add", "eth0", "address", "02:00:00:00:01:01", "type", "veth", "peer", "name", "eth0", "netns",
		b.PID)
	a.Run(t, "ip", "addr", "add", "10.5.0.1/24", "dev", "eth0")
	a.Run(t, "ip", "link", "set", "eth0", "up")
	for _, argv := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "set", "eth0", "address", "02:00:00:00:01:02"},
		{"ip", "link", "add", "br0", "address", "02:00:00:00:01:03", "type", "bridge"},
		{"ip", "link", "add", "eth1", "address", "02:00:00:00:01:04", "type", "veth", "peer", "name", "eth2"},
		{"ip", "link", "set", "eth0", "master", "br0"},
		{"ip", "addr", "add", "10.5.0.2/24", "dev", "br0"},
		{"ip", "link", "set", "br0", "up"},
		{"ip", "link", "set", "eth1", "up"},
		{"ip", "link", "set", "eth0", "up"},
	} {
		b.Run(t, argv...)
	}
	testutil.Echo(t, testutil.NewThread(t, b.Path), "tcp", "10.5.0.2:80")
	inA := testutil.NewThread(t, a.Path)
	// Links take up to a second until they carry (net/core/link_watch.c).
	if _, err := testutil.Ask(inA, "tcp", netip.Addr{}, "10.5.0.2:80", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	hop := hop{"eth0", netip.MustParseAddr("10.5.0.2")}
	cluster := NewCluster(&snapshot.Cluster{Nodes: []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hop.ip.String()}},
		}},
	}})
	for _, c := range []struct {
		name, mac, state string
		lives            bool
		claim            claim
	}{
		{"the interface with the address", "02:00:00:00:01:03", "permanent", true, agreed},
		{"a port of the bridge with the address", "02:00:00:00:01:02", "permanent", true, noClaim},
		{"another interface", "02:00:00:00:01:04", "permanent", false, noClaim},
		{"no interface", "02:00:00:00:01:09", "permanent", false, denied},
		{"the interface with the address, without ARP", "02:00:00:00:01:03", "noarp", true, agreed},
		{"no interface, without ARP", "02:00:00:00:01:09", "noarp", false, denied},
	} {
		a.Run(t, "ip", "neigh", "replace", hop.ip.String(), "dev", hop.dev, "lladdr", c.mac, "nud", c.state)
		_, err := testutil.Ask(inA, "tcp", netip.Addr{}, "10.5.0.2:80", 500*time.Millisecond)
		if (err == nil) != c.lives {
			t.Errorf("%s: the connection: %v", c.name, err)
		}
		net, errs := host.Parse(host.Files{
			Addr: []byte(a.Run(t, "ip", "-j", "addr")), Link: []byte(a.Run(t, "ip", "-j", "-d", "link")),
			Neighbours: []byte(a.Run(t, "ip", "-j", "neigh", "show", "nud", "all")),
		})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		e, _ := net.Neighbour(hop.dev, hop.ip)
		p := &node{
			State: &nodestate.State{Name: "a"}, cluster: cluster, net: net,
			peers: &peers{read: func(Owner) (*snapshot.Node, error) {
				return snapshot.NewNode("b", map[string][]byte{
					snapshot.AddrFile: []byte(b.Run(t, "ip", "-j", "addr")),
					snapshot.LinkFile: []byte(b.Run(t, "ip", "-j", "-d", "link")),
				}), nil
			}},
		}
		if got, text := p.claimed(hop, e.MAC); got != c.claim || !p.setByHand(hop.dev, &e) {
			t.Errorf("%s: claim %d, want %d: %s; %+v", c.name, got, c.claim, text, e)
		}
	}
}
