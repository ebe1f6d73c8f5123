// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

const nobody = 65534

// asName is the environment variable that makes a process of this test wait, under a name if that is not empty.
const asName = "SVCPROXY_TEST_NAME"

// TestMain is also what runs as the processes that are looked for.
func TestMain(m *testing.M) {
	name, waits := os.LookupEnv(asName)
	if !waits {
		m.Run()
		return
	}
	if name != "" {
		if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
			panic(err)
		}
	}
	fmt.Fprintln(os.Stdout, "ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// executable copies this test's program to a new file of some name, which a user has.
func executable(t *testing.T, name string, uid int, mode os.FileMode) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "process-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, name)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, self, 0o755), os.Chown(path, uid, uid),
		unix.Chmod(path, uint32(mode))); err != nil {
		t.Fatal(err)
	}
	return path
}

// run starts a command, which is to say that it is ready, and ends it with the test. It returns the number of the
// process that a child of its, or it itself, is.
func run(t *testing.T, cmd *exec.Cmd, calls string) int {
	t.Helper()
	cmd.Env = append(os.Environ(), asName+"="+calls)
	testutil.Ready(t, cmd)
	return cmd.Process.Pid
}

const uid = "0a1b2c3d-0000-4000-8000-000000000001"

// container makes the directory of a program a root of its own, with what programs need.
func container(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"usr", "bin", "lib", "lib64", "proc", "dev"} {
		from, to := "/"+name, filepath.Join(dir, name)
		if link, err := os.Readlink(from); err == nil {
			if err := os.Symlink(link, to); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := errors.Join(os.Mkdir(to, 0o755), unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
}

// Only those processes are found that root vouches for: not one of all that an unprivileged user, or a container, can
// have run under the name of kube-proxy.
func TestWhoIsBelieved(t *testing.T) {
	if !testutil.IsolateProcesses(t, "unshare", "setcap", "setpriv") {
		return
	}
	type attempt struct {
		file  string // the file name of the executable
		owner int
		mode  os.FileMode
		argv0 string // "": as the file
		calls string // the name that it gives itself
		with  func(*exec.Cmd)
		// prepare does something to the executable; unshares are flags of unshare(1) under which it runs
		prepare    func(t *testing.T, path string)
		unshares   []string
		inside     bool   // it runs under another root
		capsh      bool   // without capabilities
		bounded    bool   // without capabilities, under the node's root
		group      string // its control group
		groupOwner int    // of the first directory of group
		want       string // "": it is found, "-": it is not mentioned; else why it is not taken for the program
	}
	user := func(uid uint32) func(*exec.Cmd) {
		return func(c *exec.Cmd) {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		}
	}
	for name, a := range map[string]attempt{
		"root's, of a file of root's": {file: "kube-proxy", mode: 0o755},
		"whatever it calls itself":    {file: "kube-proxy", mode: 0o755, argv0: "/opt/x", calls: "x"},
		"k3s's server":                {file: "k3s", mode: 0o755, calls: "k3s-server"},
		"k3s's containerd": {
			file: "k3s", mode: 0o755, argv0: "containerd", calls: "containerd", want: "-",
		},
		"another program": {file: "another", mode: 0o755, want: "-"},
		"another program by its command line": {
			file: "another", mode: 0o755, argv0: "/usr/bin/kube-proxy", want: "-",
		},
		"another program by its name": {
			file: "another", mode: 0o755, calls: "kube-proxy", want: `its executable is "another"`,
		},
		"a user's, of root's file": {
			file: "kube-proxy", mode: 0o755, with: user(nobody), want: "it runs as user 65534",
		},
		"a user's": {
			file: "kube-proxy", mode: 0o755, owner: nobody, with: user(nobody), want: "it runs as user 65534",
		},
		"root's, of a user's file": {
			file: "kube-proxy", mode: 0o755, owner: nobody, want: "can be written by others",
		},
		"root's, of a file that anyone may write": {file: "kube-proxy", mode: 0o777, want: "can be written by others"},
		"root's by a set-user-ID file": {
			file: "kube-proxy", mode: 0o4755, with: user(nobody), want: "it runs as user 65534",
		},
		"root's, of a set-group-ID file": {file: "kube-proxy", mode: 0o2755, want: "gives rights"},
		"a user's with a file's capabilities": {
			file: "kube-proxy", mode: 0o755, with: user(nobody),
			want: "it runs as user 65534, and its control group is no pod's",
			prepare: func(t *testing.T, path string) {
				t.Helper()
				testutil.Run(t, "", "setcap", "cap_net_admin+ep", path)
			},
		},
		"root of a user namespace": {
			file: "kube-proxy", mode: 0o755, unshares: []string{"--user", "--map-root-user"}, want: "user namespace of its own",
		},
		"root in a user namespace of a user's": {
			file: "kube-proxy", mode: 0o755, with: user(nobody), unshares: []string{"--user", "--map-root-user"},
			want: "it runs as user 65534",
		},
		"one whose executable was removed": {
			file: "kube-proxy", mode: 0o755, with: user(nobody), want: "it runs as user 65534",
		},
		"one in another network namespace": {file: "kube-proxy", mode: 0o755, unshares: []string{"--net"}, want: "-"},
		"root's with CAP_NET_ADMIN under another root": {
			file: "kube-proxy", mode: 0o755, inside: true, want: "it is in a container, and its control group is no pod's",
		},
		"root without capabilities under another root": {
			file: "kube-proxy", mode: 0o755, inside: true, unshares: nil, want: "it is in a container without CAP_NET_ADMIN",
			capsh: true,
		},
		"in a pod": {file: "kube-proxy", mode: 0o755, inside: true, group: "kubepods/burstable/pod" + uid},
		"in a pod, by systemd's names": {
			file: "kube-proxy", mode: 0o755, inside: true,
			group: "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" +
				strings.ReplaceAll(uid, "-", "_") + ".slice/x.scope",
		},
		"in a static pod": {
			file: "kube-proxy", mode: 0o755, inside: true, group: "kubepods/pod0123456789abcdef0123456789abcdef/x",
		},
		"in a pod, without CAP_NET_ADMIN": {
			file: "kube-proxy", mode: 0o755, inside: true, capsh: true, group: "kubepods/pod" + uid,
			want: "it is in a pod without CAP_NET_ADMIN",
		},
		"in a pod, without CAP_NET_ADMIN, with the node's root directory": {
			file: "kube-proxy", mode: 0o755, bounded: true, group: "kubepods/pod" + uid,
			want: "it is in a pod without CAP_NET_ADMIN",
		},
		"in a pod's control group of a user's": {
			file: "kube-proxy", mode: 0o755, inside: true, groupOwner: nobody, group: "user.service/kubepods/pod" + uid,
			want: "it is in a pod, and its control group can be changed by others than root",
		},
		"in a control group that is merely named as a pod's": {
			file: "kube-proxy", mode: 0o755, inside: true, group: "pod" + uid, want: "its control group is no pod's",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := executable(t, a.file, a.owner, a.mode)
			if a.prepare != nil {
				a.prepare(t, path)
			}
			cmd := exec.CommandContext(t.Context(), path)
			if a.bounded {
				cmd = exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-all", path)
			}
			if a.unshares != nil {
				cmd = exec.CommandContext(t.Context(), "unshare", append(slices.Clone(a.unshares), path)...)
			}
			if a.argv0 != "" {
				cmd.Args[0] = a.argv0
			}
			if a.with != nil {
				a.with(cmd)
			}
			if a.inside {
				container(t, filepath.Dir(path))
				if cmd.SysProcAttr == nil {
					cmd.SysProcAttr = &syscall.SysProcAttr{}
				}
				cmd.SysProcAttr.Chroot, cmd.Dir = filepath.Dir(path), "/"
				cmd.Path, cmd.Err = "/"+a.file, nil
				if a.capsh {
					cmd.Path, cmd.Args = "/usr/bin/setpriv", []string{"setpriv", "--bounding-set=-all", "/" + a.file}
				}
			}
			procs := ""
			if a.group != "" {
				procs = testutil.ControlGroup(t, a.group, a.groupOwner)
			}
			pid := run(t, cmd, a.calls)
			if procs != "" {
				if err := os.WriteFile(procs, fmt.Append(nil, pid), 0); err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(name, "removed") {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			found, named, err := Find(append(Programs("kube-proxy"),
				Program{File: "k3s", Names: []string{"k3s-server", "k3s-agent"}}))
			if err != nil {
				t.Fatal(err)
			}
			got := "-"
			for _, p := range found {
				if p.PID == pid {
					got = ""
					if !p.Still() {
						t.Error("it is another one already")
					}
				}
				p.Close()
			}
			for _, n := range named {
				if n.PID == pid {
					got = n.Why
				}
			}
			if got != a.want && (a.want == "" || a.want == "-" || !strings.Contains(got, a.want)) {
				t.Errorf("%q, want %q", got, a.want)
			}
		})
	}
}

// A process that has executed another program, and one that has ended, is not what was found any more; what is read of
// it afterwards is not another process's.
func TestStill(t *testing.T) {
	if !testutil.IsolateProcesses(t) {
		return
	}
	cmd := exec.CommandContext(t.Context(), executable(t, "kube-proxy", 0, 0o755))
	pid := run(t, cmd, "")
	found, _, err := Find(Programs("kube-proxy"))
	if err != nil || len(found) != 1 || found[0].PID != pid || !found[0].Still() {
		t.Fatalf("%v %v", found, err)
	}
	p := found[0]
	defer p.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if p.Still() {
		t.Error("it has ended")
	}
	if data, err := p.File("/etc/passwd", 1<<20); err == nil {
		t.Errorf("a file of a process that has ended: %q", data)
	}
	if list, err := p.Sockets(); err == nil {
		t.Errorf("sockets of a process that has ended: %v", list)
	}
}

// On a node of a user without rights (rootless) root is that of the node's user namespace: kube-proxy is found there as
// anywhere, and one in a further user namespace is not.
func TestRootlessNode(t *testing.T) {
	const inside = "SVCPROXY_TEST_ROOTLESS"
	if os.Getenv(inside) == "" {
		testutil.NeedRoot(t, "unshare", "setpriv")
		program := executable(t, "rootless.test", nobody, 0o755)
		cmd := exec.CommandContext(t.Context(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
			"unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc",
			program, "-test.run=^TestRootlessNode$", "-test.v")
		cmd.Env, cmd.Dir = append(os.Environ(), inside+"=1", "TMPDIR="+filepath.Dir(program)), "/"
		if err := os.Chown(filepath.Dir(program), nobody, nobody); err != nil {
			t.Fatal(err)
		}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestRootlessNode")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	pid := run(t, exec.CommandContext(t.Context(), executable(t, "kube-proxy", 0, 0o755)), "")
	other := run(t, exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user",
		executable(t, "kube-proxy", 0, 0o755)), "")
	found, named, err := Find(Programs("kube-proxy"))
	if err != nil || len(found) != 1 || found[0].PID != pid || len(named) != 1 || named[0].PID != other {
		t.Errorf("found %+v, named %+v, %v, want %d and %d", found, named, err, pid, other)
	}
}

// Files are read below the root that is given, whatever a path and links say, and only regular ones, up to a limit.
func TestFileIn(t *testing.T) {
	root := t.TempDir()
	for path, link := range map[string]string{
		"etc/..data":   "..2026",
		"etc/config":   "..data/config",
		"etc/absolute": "/etc/..2026/config",
		"etc/up":       "../../../../../../etc/passwd",
		"etc/magic":    "/proc/self/root/etc/passwd",
		"etc/loop":     "loop",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, "etc", "..2026"), 0o755),
			os.Symlink(link, filepath.Join(root, path))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(root, "etc", "..2026", "config"), []byte("mode: x\n"), 0o644),
		unix.Mkfifo(filepath.Join(root, "etc", "pipe"), 0o644),
		os.Mkdir(filepath.Join(root, "etc", "dir"), 0o755)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for path, want := range map[string]string{
		"/etc/config":               "mode: x\n",
		"etc/config":                "mode: x\n",
		"/etc/absolute":             "mode: x\n",
		"/etc/../../../etc/config":  "mode: x\n",
		"../../../../../etc/passwd": "",
		"/etc/up":                   "",
		"/etc/magic":                "",
		"/etc/loop":                 "",
		"/etc/pipe":                 "",
		"/etc/dir":                  "",
		"/etc/none":                 "",
	} {
		data, err := FileIn(dir, path, 100)
		if string(data) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q %v, want %q", path, data, err, want)
		}
	}
	if of, err := os.Open("/"); err != nil {
		t.Fatal(err)
	} else if data, err := FileIn(of, "/proc/kmsg", 3); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("a file of the kernel's own: %q, %v", data, err)
	} else {
		of.Close()
	}
	if _, err := FileIn(dir, "/etc/config", 3); err == nil || !strings.Contains(err.Error(), "larger than 3 bytes") {
		t.Errorf("more than the limit: %v", err)
	}
}

// What /proc/PID/status says is read as a whole, or not at all.
func TestStatus(t *testing.T) {
	const good = "Name:\tkube-proxy\nPPid:\t7\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80435fb\n"
	for text, want := range map[string]bool{
		good: true,
		strings.Replace(good, "Uid:\t0\t0\t0\t0\n", "", 1):  false,
		strings.Replace(good, "\t0\t0\n", "\n", 1):          false,
		strings.Replace(good, "CapEff:\t", "CapEff:\tx", 1): false,
		good + "Uid:\t0\t0\t0\t0\n":                         false,
		"":                                                  false,
	} {
		var f facts
		parent, err := f.status(text)
		if (err == nil) != want || want && (parent != 7 || !f.netAdmin) {
			t.Errorf("%q: %d %+v %v", text, parent, f, err)
		}
	}
}
