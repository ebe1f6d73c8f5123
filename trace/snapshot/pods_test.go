// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// What is collected of pods is read back, from an archive, from a large one, and from a directory; the node's own files
// are not those of its pods.
func TestPodsAreReadBack(t *testing.T) {
	node, err := NewNode("worker-1", map[string][]byte{SysctlFile: []byte("net/ipv4/ip_forward=1\n")}).WithPod(
		"shop/web-1.a", map[string]Packed{
			SysctlFile: Pack([]byte("net/ipv4/ip_forward=0\n")), ResolvConfFile: Pack([]byte("nameserver 192.0.2.1\n")),
			"evil.sh": Pack([]byte("no file of a pod")),
		})
	if err != nil {
		t.Fatal(err)
	}
	if node, err = node.WithPod("kube-system/web-1.a", map[string]Packed{ListenFile: Pack(nil)}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	m := Meta{Version: Version, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Tool: "test"}
	if err := Write(&b, m, &Cluster{}, []*Node{node, NewNode("worker-2", map[string][]byte{IPSetFile: {}})}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "dump.tar.gz")
	if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	unpacked := filepath.Join(dir, "snap")
	for name, text := range map[string]string{
		"nodes/worker-1/sysctl.txt":                          "net/ipv4/ip_forward=1\n",
		"nodes/worker-1/pods/shop_web-1.a/sysctl.txt":        "net/ipv4/ip_forward=0\n",
		"nodes/worker-1/pods/shop_web-1.a/resolv.conf":       "nameserver 192.0.2.1\n",
		"nodes/worker-1/pods/shop_web-1.a/metrics.txt":       "no file of a pod\n",
		"nodes/worker-1/pods/not a pod/sysctl.txt":           "net/ipv4/ip_forward=2\n",
		"nodes/worker-1/pods/kube-system_web-1.a/listen.txt": "",
		"nodes/worker-1/pods/shop_web-1.a/deeper/sysctl.txt": "net/ipv4/ip_forward=3\n",
		"nodes/worker-2/ipset-save.txt":                      "",
	} {
		file := filepath.Join(unpacked, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{archive, unpacked} {
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := s.NodeNames(), []string{"worker-1", "worker-2"}; !reflect.DeepEqual(got, want) {
			t.Errorf("nodes %q", got)
		}
		n, err := s.Node("worker-1")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := n.Pods(), []string{"kube-system/web-1.a", "shop/web-1.a"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: pods %q", path, got)
		}
		if data, _, err := n.File(SysctlFile); err != nil || string(data) != "net/ipv4/ip_forward=1\n" {
			t.Errorf("the node's own: %q, %v", data, err)
		}
		pod := n.Pod("shop/web-1.a")
		if pod == nil {
			t.Fatal("the pod is not there")
		}
		if data, _, err := pod.File(SysctlFile); err != nil || string(data) != "net/ipv4/ip_forward=0\n" {
			t.Errorf("the pod's: %q, %v", data, err)
		}
		if pod.Has("evil.sh") || pod.Has(MetricsFile) {
			t.Error("a file is the pod's that pods do not have")
		}
		if n.Pod("shop/web") != nil {
			t.Error("a pod is there that was not collected")
		}
	}
}

// A pod's name becomes a folder, and nothing else.
func TestAPodsNameLeadsNowhereElse(t *testing.T) {
	for _, name := range []string{"../x", "shop/../../etc", "shop", "Shop/web", "shop/web/more", "/", "", "a/" +
		strings.Repeat("x", 254)} {
		if _, err := NewNode("n", nil).WithPod(name, map[string]Packed{SysctlFile: Pack([]byte("a=b\n"))}); err == nil {
			t.Errorf("%q has a folder", name)
		}
	}
}
