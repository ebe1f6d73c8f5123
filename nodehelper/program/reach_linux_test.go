// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// onWire is a request as a plugin sends it, with a text of its plan replaced by another on the way.
func onWire(t *testing.T, p *plan.Plan, f *plan.Facts, mode, backend, old, now string, allow ...string) *Request {
	t.Helper()
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(encoded), old, now)
	if old != "" && changed == string(encoded) {
		t.Fatalf("%s is not in %s", old, encoded)
	}
	message, err := json.Marshal(wire.ProgramParams{
		Plan: json.RawMessage(changed), Facts: facts, ProgramOptions: wire.ProgramOptions{
			Mode: mode, Backend: backend, TTL: time.Minute, Run: "a", By: "someone", Allow: allow,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var params wire.ProgramParams
	if err := json.Unmarshal(message, &params); err != nil {
		t.Fatal(err)
	}
	req, err := DecodeRequest(params)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// A plan that a plugin was right to send is refused by the helper once it is changed on the wire, in every mode, and
// nothing is changed on the node. What the node itself tells, the helper asks it.
func TestMutatedPlanIsRefused(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "eth0", "type", "veth", "peer", "name", "eth0x"},
		{"link", "set", "eth0x", "up"},
		{"address", "add", "198.51.100.10/24", "broadcast", "198.51.100.255", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", "198.51.100.1"},
		{"link", "add", "cni0", "type", "bridge"},
		{"link", "add", "pod1", "type", "veth", "peer", "name", "pod1x"},
		{"link", "set", "pod1", "master", "cni0"},
		{"link", "set", "pod1", "up"},
		{"link", "set", "pod1x", "up"},
		{"address", "add", "10.88.0.1/24", "dev", "cni0"},
		{"link", "set", "cni0", "up"},
		{"route", "add", "local", "192.0.2.64/26", "dev", "lo"},
		{"route", "add", "local", "192.0.2.200", "dev", "lo"},
	} {
		testutil.Run(t, "", append([]string{"ip"}, args...)...)
	}
	l, err := net.Listen("tcp4", "198.51.100.10:10250")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	resolv := []byte("nameserver 203.0.113.53\n")
	if err := os.WriteFile(filepath.Join(root, "etc", "resolv.conf"), resolv, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")

	right := web(0, "10.244.1.1:8080", "10.244.2.2:8080")
	right.Frontends[0].Kind = "ExternalIP"
	right.Frontends[1].Kind = "NodePort"
	right.Frontends[1].Address = netip.MustParseAddrPort("198.51.100.10:30080")
	facts := &plan.Facts{
		Pods:       []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("10.244.2.2")},
		HostPods:   []netip.Addr{netip.MustParseAddr("198.51.100.10")}, // whatever the plugin says
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.53")},
	}
	everyMode := append([]struct{ mode, backend string }{{wire.Userspace, wire.BackendNFT}}, modes...)
	for _, m := range everyMode {
		if m.backend == wire.BackendLegacy {
			testutil.LegacyTables(t)
		}
		prog := newProgrammer(t, root)
		if _, err := prog.Apply(t.Context(), onWire(t, right, facts, m.mode, m.backend, "", "")); err != nil {
			t.Fatalf("%v: as the plugin made it: %v", m, err)
		}
		if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
			t.Fatal(err)
		}
		before := testutil.Listing(t, testutil.Rules...)
		for _, tt := range []struct{ name, old, now, want string }{
			{"another endpoint", "10.244.2.2:8080", "10.244.9.9:8080", "(class no-pod)"},
			{"the node's kubelet", "10.244.2.2:8080", "198.51.100.10:10250", "(class node)"},
			{"loopback", "10.244.2.2:8080", "127.0.0.1:10248", "(class loopback): that is never programmed"},
			{"metadata", "10.244.2.2:8080", "169.254.169.254:80", "(class link-local): that is never"},
			{"multicast", "10.244.2.2:8080", "224.0.0.1:80", "(class multicast): that is never"},
			{"this network", "10.244.2.2:8080", "0.0.0.1:80", "(class unspecified): that is never"},
			{"unspecified", "10.244.2.2:8080", "0.0.0.0:80", "the endpoint 0.0.0.0:80 is of another family, or none"},
			{"broadcast", "10.244.2.2:8080", "198.51.100.255:80", "(class broadcast): that is never"},
			{"mapped", "10.244.2.2:8080", "[::ffff:10.244.2.2]:8080", "is of another family, or none"},
			{"another Service behind it", "10.244.2.2:8080", "10.96.0.53:53", "(class service)"},
			{"itself behind it", "10.244.2.2:8080", "10.96.0.10:81", "(class service)"},
			{"the API server behind it", "10.244.2.2:8080", "10.96.0.1:443", "(class api-server)"},
			{"the node's address", "10.96.0.10:80", "198.51.100.10:22", "(class node)"},
			{"what a local route gives to the node", "10.96.0.10:80", "192.0.2.200:22", "(class node)"},
			{"of a network that is local", "10.96.0.10:80", "192.0.2.77:22", "(class node)"},
			{"a process at an address of a local network", "10.244.2.2:8080", "192.0.2.77:10250", "(class node)"},
			{"the API server", "10.96.0.10:80", "10.96.0.1:443", "(class api-server)"},
			{"another Service", "10.96.0.10:80", "10.96.0.53:53", "(class service)"},
			{"a container of the node", "10.96.0.10:80", "10.88.0.7:80", "(class pod)"},
			{"the node's resolver", "10.96.0.10:80", "203.0.113.53:53", "(class resolver)"},
			{"a public resolver", "10.96.0.10:80", "8.8.8.8:53", "(class resolver)"},
			{"the node's router", "10.96.0.10:80", "198.51.100.1:80", "(class gateway)"},
			{"a frontend at loopback", "10.96.0.10:80", "127.0.0.53:53", "(class loopback): that is never"},
			{"a frontend at metadata", "10.96.0.10:80", "169.254.169.254:80", "(class link-local): that is never"},
			{"a mapped frontend", "10.96.0.10:80", "[::ffff:10.96.0.10]:80", "this is not an address and port"},
			{"a frontend with a zone", "10.96.0.10:80", "[fe80::1%25eth0]:80", "this is not an address and port"},
			{"a NodePort elsewhere", "198.51.100.10:30080", "203.0.113.5:443", "(class elsewhere)"},
			{"a NodePort of the kubelet's", "198.51.100.10:30080", "198.51.100.10:10250", "(class listener)"},
		} {
			req := onWire(t, right, facts, m.mode, m.backend, tt.old, tt.now)
			_, err := prog.Apply(t.Context(), req)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: %s: got %v, want %q", m, tt.name, err, tt.want)
			}
			if _, ok := errors.AsType[RefusalError](err); strings.Contains(tt.want, "(class ") && !ok {
				t.Errorf("%v: %s: %v is not a refusal", m, tt.name, err)
			}
			// What is never programmed is not with any flag.
			if strings.Contains(tt.want, "never") {
				req.Allow = plan.Askable()
				if _, err := prog.Apply(t.Context(), req); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v: %s: allowed everything: %v", m, tt.name, err)
				}
			}
		}
		if after := testutil.Listing(t, testutil.Rules...); after != before {
			t.Errorf("%v: before:\n%s\nafter:\n%s", m, before, after)
		}
		if left, err := filepath.Glob(root + "/run/svcproxy/*/*"); len(left) > 0 || err != nil {
			t.Errorf("%v: %v %v is left", m, left, err)
		}
	}
	// A class by its name, and no other.
	prog := newProgrammer(t, root)
	for _, tt := range []struct{ allow, want string }{
		{"resolver", ""},
		{"node", "(class resolver)"},
		{"loopback", `"loopback" is not a class of addresses that can be allowed`},
	} {
		req := onWire(t, right, facts, wire.NFTables, "", "10.96.0.10:80", "8.8.8.8:53", tt.allow)
		req.DryRun = true
		_, err := prog.Apply(t.Context(), req)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("--allow %s: %v", tt.allow, err)
		}
	}
}

// A process is a Pod's where the kubelet has put it into the Pod's control group, and not where a user has made one of
// that name.
func TestControlGroupsOfPods(t *testing.T) {
	if !testutil.IsolateProcesses(t) {
		return
	}
	const uid = "0a1b2c3d-0000-4000-8000-000000000004"
	for _, tt := range []struct {
		group string
		owner int
		want  bool
	}{
		{"kubepods/besteffort/pod" + uid, 0, true},
		{"kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-x.scope", 0, true},
		{"kubepods/besteffort/pod" + uid, 65534, false},
		{"user.slice/kubepods", 0, false},
		{"pod" + uid, 0, false},
	} {
		t.Run(tt.group, func(t *testing.T) {
			procs := testutil.ControlGroup(t, tt.group, tt.owner)
			pid := testutil.NewNamespace(t).PID
			if err := os.WriteFile(procs, []byte(pid), 0); err != nil {
				t.Fatal(err)
			}
			if got := cgroup.OnNode(func(error) bool { return ofPod(pid) }); got != tt.want {
				t.Errorf("of a user %d: %v", tt.owner, got)
			}
		})
	}
}
