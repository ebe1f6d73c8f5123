// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// Where a bridge sends a pod's frames is what the kernel does: a port that does not forward, an entry that stays at
// another port, and one that moves with the first frame of the pod.
func TestBridgePortsAsTheKernelHasThem(t *testing.T) {
	testutil.NeedRoot(t, "ip", "bridge", "nsenter")
	node, pod := testutil.NewNamespace(t), testutil.NewNamespace(t)
	for _, argv := range [][]string{
		{"ip", "link", "add", "cni0", "type", "bridge"},
		{"ip", "addr", "add", "10.9.0.1/24", "dev", "cni0"},
		{"ip", "link", "set", "cni0", "up"},
		{"ip", "link", "add", "v5", "type", "veth", "peer", "name", "eth0", "netns", pod.PID},
		{"ip", "link", "add", "v6", "type", "veth", "peer", "name", "v7"},
		{"ip", "link", "set", "v5", "master", "cni0", "up"},
		{"ip", "link", "set", "v6", "master", "cni0", "up"},
		{"ip", "link", "set", "v7", "up"},
	} {
		node.Run(t, argv...)
	}
	const mac = "02:00:00:00:09:05"
	pod.Run(t, "ip", "link", "set", "eth0", "address", mac)
	pod.Run(t, "ip", "link", "set", "eth0", "up")
	pod.Run(t, "ip", "addr", "add", "10.9.0.5/24", "dev", "eth0")
	inPod := testutil.NewThread(t, pod.Path)
	testutil.Echo(t, inPod, "tcp", "10.9.0.5:80")
	inNode := testutil.NewThread(t, node.Path)
	ask := func(wait time.Duration) bool {
		_, err := testutil.Ask(inNode, "tcp", netip.Addr{}, "10.9.0.5:80", wait)
		return err == nil
	}
	if !ask(10 * time.Second) { // links take up to a second until they carry
		t.Fatal("the pod does not answer")
	}
	for _, c := range []struct {
		name     string
		do, undo []string
		speaks   bool // the pod sends a frame before
		lives    bool
		state    string // of the port that the entry is at
		fixed    string
	}{
		{name: "as it should be", lives: true},
		{
			name: "a port that does not forward", do: []string{"bridge", "link", "set", "dev", "v5", "state", "0"},
			undo: []string{"bridge", "link", "set", "dev", "v5", "state", "3"}, state: "disabled",
		},
		{
			name: "an entry that stays at another port", speaks: true, fixed: "v6",
			do:   []string{"bridge", "fdb", "replace", mac, "dev", "v6", "master", "static", "sticky"},
			undo: []string{"bridge", "fdb", "del", mac, "dev", "v6", "master"},
		},
		{
			name: "an entry that moves", speaks: true, lives: true,
			do: []string{"bridge", "fdb", "replace", mac, "dev", "v6", "master", "static"},
		},
	} {
		if c.do != nil {
			node.Run(t, c.do...)
		}
		if c.speaks {
			pod.Run(t, "ip", "neigh", "flush", "all")
			_, _ = testutil.Ask(inPod, "tcp", netip.Addr{}, "10.9.0.1:80", 300*time.Millisecond)
		}
		if got := ask(700 * time.Millisecond); got != c.lives {
			t.Errorf("%s: a connection: %v", c.name, got)
		}
		n, errs := Parse(Files{
			Addr: []byte(node.Run(t, "ip", "-j", "addr")), Link: []byte(node.Run(t, "ip", "-j", "-d", "link")),
			BridgeFDB: []byte(node.Run(t, "bridge", "-j", "fdb", "show")),
		})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		state := n.PortState("cni0", n.LearnedAt("cni0", mac))
		if fixed := n.FixedTo("cni0", mac); state != c.state || fixed != c.fixed {
			t.Errorf("%s: state %q, fixed to %q", c.name, state, fixed)
		}
		if c.undo != nil {
			node.Run(t, c.undo...)
			ask(3 * time.Second)
		}
	}
}
