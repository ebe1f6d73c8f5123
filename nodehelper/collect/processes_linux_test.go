// SPDX-License-Identifier: Apache-2.0

package collect

import "testing"

// The control group of version 2 is what tells the unit; where version 1 is in use beside it, systemd's own hierarchy.
func TestCgroup(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/kube-proxy.service\n":                                "0::/system.slice/kube-proxy.service",
		"0::/../../../system.slice/k3s.service\n":                              "0::/../../../system.slice/k3s.service",
		"12:pids:/a\n1:name=systemd:/system.slice/x.service\n0::/\n":           "1:name=systemd:/system.slice/x.service",
		"1:name=systemd:/system.slice/x.service\n0::/system.slice/x.service\n": "0::/system.slice/x.service",
		"0::/\n": "", "": "", "nonsense\n": "",
	} {
		if got := cgroupIn(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
