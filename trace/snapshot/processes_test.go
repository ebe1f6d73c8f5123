// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"strings"
	"testing"
)

func TestProcesses(t *testing.T) {
	want := []Process{{1, "systemd"}, {812, "kube-proxy"}, {4023, "tmux: server"}}
	for name, data := range map[string]string{
		"written here":    string(EncodeProcesses(want)),
		"ps with a head":  "    PID COMMAND\n    812 kube-proxy\n   4023 tmux: server\n      1 systemd\n",
		"ps without one":  "    812 kube-proxy\n      1 systemd\n   4023 tmux: server",
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
			!strings.Contains(err.Error(), "processes.txt line") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
