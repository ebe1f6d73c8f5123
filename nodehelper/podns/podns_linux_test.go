// SPDX-License-Identifier: Apache-2.0

package podns

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// namespaced starts a process in a network namespace of its own, with an address on lo.
func namespaced(t *testing.T, address string) (pid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root makes network namespaces")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c",
		"ip link set lo up && ip addr add "+address+" dev lo && echo ready && exec sleep 600")
	testutil.Ready(t, cmd)
	return cmd.Process.Pid
}

// The namespace of a pod is found by its address, and what runs in it is in it; the process's own is left as it was.
func TestWithin(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.77")
	pid := namespaced(t, address.String()+"/32")
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	n, err := Find(Pod{UIDs: []string{"00000000-dead-4000-8000-00000000dead"}, Addresses: []netip.Addr{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.PID != pid {
		t.Errorf("process %d was found, not %d", n.PID, pid)
	}
	want, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var inside string
		err := n.Within(func() error {
			inside, err = os.Readlink(ownNamespace)
			if err != nil {
				return err
			}
			out, err := exec.CommandContext(t.Context(), "readlink", "/proc/self/ns/net").Output()
			if err == nil && strings.TrimSpace(string(out)) != inside {
				err = errors.New("a program is in " + string(out))
			}
			return err
		})
		if err != nil || inside != want {
			t.Fatalf("inside %s, not %s: %v", inside, want, err)
		}
	}
	if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before {
		t.Errorf("this process is in %s now: %v", after, err)
	}
	if _, err := Find(Pod{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.78")}}); !errors.Is(err, ErrNone) {
		t.Errorf("nobody's address: %v", err)
	}
}

// A network namespace that any user can make is no pod's, whatever addresses it has.
func TestANamespaceOfAUsersIsNoPods(t *testing.T) {
	const address = "192.0.2.80"
	if os.Geteuid() != 0 {
		t.Skip("root becomes a user")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--net", "sh", "-c",
		"ip link set lo up && ip addr add "+address+"/32 dev lo && echo ready && exec sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	testutil.Ready(t, cmd)
	pod := Pod{Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	if n, err := Find(pod); !errors.Is(err, ErrNone) {
		t.Errorf("found %+v, %v", n, err)
	}
	// Beside it the pod's own is found.
	pid := namespaced(t, address+"/32")
	n, err := Find(pod)
	if err != nil {
		t.Fatal(err)
	}
	if n.PID != pid {
		t.Errorf("process %d was found, not %d", n.PID, pid)
	}
	n.Close()
}

// Of a pod's UID the process is found that the kubelet has put into the pod's control group: not one in a control group
// that a user was given, and that is named like it.
func TestOnlyTheKubeletSaysWhosePodItIs(t *testing.T) {
	if !testutil.IsolateProcesses(t) {
		return
	}
	const uid = "0a1b2c3d-0000-4000-8000-000000000002"
	for _, tt := range []struct {
		name, group string
		owner       int
		found       bool
	}{
		{"the kubelet's", "kubepods/besteffort/pod" + uid, 0, true},
		{
			"systemd's names",
			"kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-x.scope", 0, true,
		},
		{"a user's", "kubepods/besteffort/pod" + uid, 65534, false},
		{"not below that of all pods", "pod" + uid, 0, false},
		{"another pod's", "kubepods/pod" + strings.Replace(uid, "0a1b", "ffff", 1), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			procs := testutil.ControlGroup(t, tt.group, tt.owner)
			pid := namespaced(t, "192.0.2.81/32")
			if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
				t.Fatal(err)
			}
			n, err := Find(Pod{UIDs: []string{uid}})
			if (err == nil) != tt.found || tt.found && n.PID != pid || !tt.found && !errors.Is(err, ErrNone) {
				t.Errorf("%+v, %v", n, err)
			}
			if n != nil {
				n.Close()
			}
			// A pod is not found by an address in a namespace that the kubelet has for another one.
			if tt.name == "another pod's" {
				address := []netip.Addr{netip.MustParseAddr("192.0.2.81")}
				if n, err := Find(Pod{UIDs: []string{uid}, Addresses: address}); !errors.Is(err, ErrNone) {
					t.Errorf("by its address: %+v, %v", n, err)
				}
				n, err := Find(Pod{Addresses: address}) // whoever may not list pods knows no UID
				if err != nil || n.PID != pid {
					t.Fatalf("by an address alone: %+v, %v", n, err)
				}
				n.Close()
			}
		})
	}
}
