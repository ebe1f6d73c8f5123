// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// Filters of tc are found at the interface and in the direction that they are attached to.
func TestFiltersOfTC(t *testing.T) {
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, "ip", "tc") {
		return
	}
	testutil.Run(t, "", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	before, err := readPrograms(t.Context(), &reader{})
	if err != nil && len(before) > 0 || strings.Contains(string(before), "tc v0") {
		t.Fatalf("%s, %v", before, err)
	}
	testutil.Run(t, "", "tc", "qdisc", "add", "dev", "v0", "clsact")
	testutil.Run(t, "", "tc", "filter", "add", "dev", "v0", "egress", "protocol", "ip", "pref", "7", "u32", "match", "ip",
		"dst", "10.96.0.10/32", "classid", "1:1")
	after, err := readPrograms(t.Context(), &reader{})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(after); !strings.Contains(text, "tc v0 egress filter protocol ip pref 7 u32") ||
		strings.Contains(text, "tc v0 ingress") {
		t.Errorf("got %q", text)
	}
}

// A program of a control group is found in the group that it is attached to, whichever types of programs are loaded
// besides: the groups are asked for these alone.
func TestProgramsOfControlGroups(t *testing.T) {
	if !testutil.Isolate(t, syscall.CLONE_NEWNS) {
		return
	}
	root := t.TempDir()
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("collect-test-%d", os.Getpid())
	group := filepath.Join(root, name)
	defer func() {
		if err := errors.Join(os.Remove(group), unix.Unmount(root, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	}()
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	listed := func() string {
		var out bytes.Buffer
		if err := groupsBelow(&out, root, hooksInUse()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, h := range cgroupHooks {
		line := "cgroup " + h.name + " /" + name + " program "
		if strings.Contains(listed(), line) {
			t.Fatalf("%s: there is one already", h.name)
		}
		release, err := attachToGroup(group, h.programs, h.typ)
		if err != nil {
			t.Errorf("%s: %v", h.name, err)
			continue
		}
		got, inUse := listed(), hooksInUse()
		release()
		if strings.Count(got, line) != 1 {
			t.Errorf("%s: listed %q", h.name, got)
		}
		for _, other := range cgroupHooks {
			if other.programs == h.programs && !slices.Contains(inUse, other) {
				t.Errorf("%s: %s is not asked for", h.name, other.name)
			}
		}
		if strings.Contains(listed(), line) {
			t.Errorf("%s: it is listed after it was detached", h.name)
		}
	}
}

// attachToGroup attaches a program that allows everything to a control group, until release is called.
func attachToGroup(group string, kind, hook uint32) (release func(), err error) {
	dir, err := os.Open(group)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	allow := []byte{0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0} // r0 = 1; exit
	license := []byte("GPL\x00")
	load := struct {
		kind, instructions uint32
		text, license      unsafe.Pointer
		_                  [5]uint64
		_, expected        uint32
		_                  [8]uint64
	}{kind: kind, instructions: 2, text: unsafe.Pointer(&allow[0]), license: unsafe.Pointer(&license[0]), expected: hook}
	program, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&load), unsafe.Sizeof(load))
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer unix.Close(int(program))
	create := struct{ program, target, hook, flags uint32 }{uint32(program), uint32(dir.Fd()), hook, 0}
	link, err := bpf(unix.BPF_LINK_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	return func() { _ = unix.Close(int(link)) }, nil
}
