// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Real servers are added before others are removed, settings are changed in place, and what is the same is not changed.
// The kernel's part is tested in test/ipvs.
func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		name     string
		now, due *VirtualServer
		want     []string
	}{
		{
			"made", nil, served("rr", 0, a1+" 1"),
			[]string{"-A -t 10.96.0.10:80 -s rr", "-a -t 10.96.0.10:80 -r 10.244.1.1:8080 -m -w 1"},
		},
		{"removed", served("rr", 0, a1+" 1"), nil, []string{"-D -t 10.96.0.10:80"}},
		{
			"changed", served("rr", 0, a1+" 1", a2+" 1", a3+" 1"), served("lc", 0, a2+" 1", a3+" 0", "10.244.1.4:8080 1"),
			[]string{
				"-E -t 10.96.0.10:80 -s lc", "-e -t 10.96.0.10:80 -r 10.244.1.3:8080 -m -w 0",
				"-a -t 10.96.0.10:80 -r 10.244.1.4:8080 -m -w 1", "-d -t 10.96.0.10:80 -r 10.244.1.1:8080",
			},
		},
		{"the same, in another order", served("rr", 0, a1+" 1", a2+" 1"), served("rr", 0, a2+" 1", a1+" 1"), nil},
		{"neither", nil, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range changes(tt.now, tt.due) {
				got = append(got, c.text)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestHasModule(t *testing.T) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if !hasModule(root, "no_such_module") {
		t.Error("without a list of modules the kernel is to say")
	}
	dir := filepath.Join(root, "lib", "modules", unix.ByteSliceToString(u.Release[:]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"modules.builtin": "kernel/net/netfilter/ipvs/xx_builtin.ko\n",
		"modules.dep":     "kernel/net/netfilter/ipvs/xx_loadable.ko.xz: kernel/net/netfilter/ipvs/ip_vs.ko.xz\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{
		"xx_builtin": true, "xx_loadable": true, "xx_load": false, "no_such_module": false,
	} {
		if got := hasModule(root, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Scheduler dh may choose a real server with weight 0: that is refused for real servers of other programs, which are
// kept, and not for those that an update removes.
func TestIdleRealServersOfDH(t *testing.T) {
	before, after := web(0, "10.244.1.1:8080", "10.244.2.2:8080"), web(0, "10.244.1.1:8080")
	first := (&IPVS{}).next(before, "dh", nil)
	now := map[serverKey]*VirtualServer{}
	for i := range first.Servers {
		now[first.Servers[i].After.key()] = &first.Servers[i].After
	}
	m := &ipvsMode{}
	update := &Record{Plan: *after, Scheduler: "dh", Earlier: before, Before: Before{IPVS: first}}
	if err := m.checkIdle(update, now); err != nil {
		t.Errorf("an update: %v", err)
	}
	if err := m.checkIdle(&Record{Plan: *after, Scheduler: "dh"}, now); err == nil {
		t.Error("real servers of another program are left to dh")
	}
	if err := m.checkIdle(&Record{Plan: *after, Scheduler: "rr"}, now); err != nil {
		t.Errorf("rr: %v", err)
	}
}

// Without --scheduler it is what kube-proxy is set to, as far as the mode knows it.
func TestSchedulerIsKubeProxysOwn(t *testing.T) {
	for _, tt := range []struct{ asked, own, want string }{
		{"", "lc", "lc"}, {"sh", "lc", "sh"}, {"", "", ""}, {"", "mh", ""},
	} {
		r := &Record{Scheduler: tt.asked}
		r.Plan.Scheduler = tt.own
		if got := schedulerOf(r); got != tt.want {
			t.Errorf("asked for %q, kube-proxy has %q: %q, want %q", tt.asked, tt.own, got, tt.want)
		}
	}
}
