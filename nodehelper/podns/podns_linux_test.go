// SPDX-License-Identifier: Apache-2.0

package podns

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A name of a control group is the kubelet's, with either driver; a UID that is a part of another word is no name.
func TestCgroupNames(t *testing.T) {
	if got := cgroupNames([]string{"short"}); got != nil {
		t.Errorf("a word that is not a UID is searched for: %q", got)
	}
	names := cgroupNames([]string{"0a1b2c3d-0000-4000-8000-000000000001"})
	for _, c := range []struct {
		part string
		want bool
	}{
		{"pod0a1b2c3d-0000-4000-8000-000000000001", true},
		{"kubepods-burstable-pod0a1b2c3d_0000_4000_8000_000000000001.slice", true},
		{"pod0a1b2c3d-0000-4000-8000-0000000000012", false},
		{"xpod0a1b2c3d-0000-4000-8000-000000000001", false},
	} {
		got := false
		part := strings.TrimSuffix(c.part, ".slice")
		for _, n := range names {
			got = got || part == n || strings.HasSuffix(part, "-"+n)
		}
		if got != c.want {
			t.Errorf("%s: %v", c.part, got)
		}
	}
}

// namespaced starts a process in a network namespace of its own, with an address on lo.
func namespaced(t *testing.T, address string) (pid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root makes network namespaces")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c",
		"ip link set lo up && ip addr add "+address+" dev lo && echo ready && exec sleep 600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no network namespace can be made: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	buf := make([]byte, 16)
	if n, err := out.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "ready") {
		t.Skipf("the namespace was not made: %q %v", buf[:n], err)
	}
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

// A file of a pod is read within its root: a link ends there, a pipe does not hold anybody up, and a large file is
// refused.
func TestFile(t *testing.T) {
	root := t.TempDir()
	for _, f := range []struct{ name, text string }{
		{"resolv.conf", "nameserver 192.0.2.1\n"}, {"large", strings.Repeat("x", 100)},
	} {
		if err := os.WriteFile(filepath.Join(root, f.name), []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"inside": "/../../resolv.conf", "outside": "/../../../../etc/passwd", "magic": "/proc/self/root/etc/passwd",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"resolv.conf", "/resolv.conf", "../resolv.conf", "inside"} {
		if got, err := fileBelow(root, name, 64); err != nil || string(got) != "nameserver 192.0.2.1\n" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"large", "pipe", "absent", "outside", "magic", "."} {
		if got, err := fileBelow(root, name, 64); err == nil {
			t.Errorf("%s was read: %q", name, got)
		}
	}
}
