// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"strings"
	"testing"
)

func TestProcesses(t *testing.T) {
	want := []Process{{PID: 1, Name: "systemd"}, {PID: 812, Name: "kube-proxy"}, {PID: 4023, Name: "tmux: server"}}
	for name, data := range map[string]string{
		"written here":    string(EncodeProcesses(want)),
		"ps with a head":  "    PID COMMAND\n    812 kube-proxy\n   4023 tmux: server\n      1 systemd\n",
		"ps without one":  "    812 kube-proxy\n      1 systemd\n   4023 tmux: server\n",
		"with blank line": "812 kube-proxy\n\n1 systemd\n4023 tmux: server\n",
	} {
		got, ok, err := NewNode("n", map[string][]byte{ProcessesFile: []byte(data)}).Processes()
		if err != nil || !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v %v", name, got, ok, err)
		}
	}
	if _, ok, err := NewNode("n", nil).Processes(); ok || err != nil {
		t.Errorf("not collected: %v %v", ok, err)
	}
	if list, ok, err := NewNode("n", map[string][]byte{ProcessesFile: {}}).Processes(); !ok || err != nil ||
		len(list) > 0 {
		t.Errorf("none of them runs: %v %v %v", list, ok, err)
	}
	for _, bad := range []string{"kube-proxy\n", "12\n", "812 kube-proxy\nx y\n"} {
		if _, _, err := NewNode("n", map[string][]byte{ProcessesFile: []byte(bad)}).Processes(); err == nil ||
			!strings.Contains(err.Error(), "processes.txt: line") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	cut := NewNode("n", map[string][]byte{ProcessesFile: []byte("1 systemd\n812 kube-pr")})
	if list, ok, err := cut.Processes(); !ok || err == nil || !strings.Contains(err.Error(), "cut off in line 2") ||
		!slices.Equal(list, []Process{{PID: 1, Name: "systemd"}}) {
		t.Errorf("cut off: %v %v %v", list, ok, err)
	}
}

// A control group is read where there is one, whatever the process is called, and never written where it would make
// another line or column.
func TestCgroupsOfProcesses(t *testing.T) {
	want := []Process{
		{PID: 812, Name: "kube-proxy", Cgroup: "0::/../../system.slice/kube-proxy.service"},
		{PID: 813, Name: "tmux: server", Cgroup: "12:pids:/user.slice,1:name=systemd:/user.slice"},
		{PID: 814, Name: "kubelite"},
	}
	read := func(data []byte) []Process {
		list, _, err := NewNode("n", map[string][]byte{ProcessesFile: data}).Processes()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := read(EncodeProcesses(want)); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	ps := "    812 0::/../../system.slice/kube-proxy.service kube-proxy\n" +
		"    813 12:pids:/user.slice,1:name=systemd:/user.slice   tmux: server\n    814 -          kubelite\n"
	if got := read([]byte(ps)); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	for _, hostile := range []string{
		"0::/a b", "0::/a\n1 kube-proxy", "0::/\x1b[2J", "0::/" + strings.Repeat("a", 600), "a::/b",
	} {
		got := read(EncodeProcesses([]Process{{PID: 1, Name: "kube-proxy", Cgroup: hostile}}))
		if len(got) != 1 || got[0] != (Process{PID: 1, Name: "kube-proxy"}) {
			t.Errorf("%q: %+v", hostile, got)
		}
	}
}
