// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// podScript sets up what a pod has, beside a node that has none of it, and waits.
const podScript = `set -e
ip link set lo up
ip link add eth0 type veth peer name eth1
ip link set eth1 up
ip addr add 192.0.2.90/24 dev eth0
ip link set eth0 up
ip route add default via 192.0.2.1
iptables-nft -A INPUT -p tcp --dport 81 -j DROP
iptables-legacy -t mangle -A INPUT -p tcp --dport 82 -j DROP
nft add table inet mine
echo 0 > /proc/sys/net/ipv4/ip_forward
echo ready
exec sleep 600`

// What is read of a pod is the pod's, whichever program or file tells it, and nothing is the node's.
func TestPod(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "iptables-nft", "iptables-legacy", "nft", "ip", "unshare") {
		return
	}
	must(t, "ip", "link", "set", "lo", "up")
	must(t, "iptables-nft", "-A", "INPUT", "-p", "tcp", "--dport", "99", "-j", "DROP")
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", podScript)
	testutil.Ready(t, cmd)
	files, unread := map[string]string{}, map[string]string{}
	pod := podns.Pod{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.90")}}
	if err := Pod(t.Context(), Options{Root: "/"}, pod, func(f File) error {
		if !slices.Contains(snapshot.PodFiles, f.Name) {
			t.Errorf("%s is not a file of a pod", f.Name)
		}
		files[f.Name], unread[f.Name] = string(f.Data), f.Unread
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, has, lacks string }{
		{snapshot.IPTablesNFTFile, "--dport 81 -j DROP", "--dport 99"},
		{snapshot.IPTablesLegacyFile, "--dport 82 -j DROP", "--dport 99"},
		{snapshot.NFTFile, `"name": "mine"`, `"right": 99`},
		{snapshot.AddrFile, "192.0.2.90", "\x00"},
		{snapshot.LinkFile, "eth0", "\x00"},
		{snapshot.RouteFile, "192.0.2.1", "\x00"},
		{snapshot.RuleFile, "main", "\x00"},
		{snapshot.SysctlFile, "net/ipv4/ip_forward=0", "net/ipv4/ip_forward=1"},
		{snapshot.PacketFile, "Proto", "\x00"},
		{snapshot.SocketCountsFile, "TCP: inuse", "\x00"},
	} {
		if !strings.Contains(files[c.file], c.has) || strings.Contains(files[c.file], c.lacks) {
			t.Errorf("%s is not the pod's: %s%s", c.file, files[c.file], unread[c.file])
		}
	}
	if data, err := readSysctl(t.Context(), nil); err != nil || !bytes.Contains(data, []byte("net/ipv4/ip_forward=1")) {
		t.Errorf("this process is in the pod's namespace now: %v", err)
	}
	none := podns.Pod{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.91")}}
	if err := Pod(t.Context(), Options{Root: "/"}, none, func(File) error { return nil }); !errors.Is(err,
		podns.ErrNone) {
		t.Errorf("a pod that is not there: %v", err)
	}
}
