// SPDX-License-Identifier: Apache-2.0

package judge

import "testing"

// A second program that serves Services is told by an interface that it makes for that alone, while kube-proxy runs.
func TestTwoProxies(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(w *capturedNode)
		want string
	}{
		{"kube-proxy alone", func(*capturedNode) {}, ""},
		{"Calico's eBPF", func(w *capturedNode) { w.link("bpfin.cali") }, "Calico's eBPF dataplane"},
		{"kube-router", func(w *capturedNode) { w.link("kube-dummy-if") }, "kube-router"},
		{"Cilium, which leaves Services to kube-proxy", func(w *capturedNode) { w.link("cilium_host") }, ""},
		{"Antrea", func(w *capturedNode) { w.link("antrea-gw0") }, ""},
		{"kube-proxy does not run", func(w *capturedNode) { w.stop(); w.link("bpfin.cali") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			tt.do(w)
			r := w.run()
			if got := subjects(nodeFindings(&r, TwoProxies)); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
