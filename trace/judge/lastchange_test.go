// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHungWatch is kubernetes/kubernetes#76338: endpoints change, and kube-proxy does not hear of it.
func TestHungWatch(t *testing.T) {
	for _, tt := range []struct {
		name    string
		changed time.Duration // after kube-proxy's last sync
		read    time.Duration
		hung    bool
	}{
		{"a minute ago", 10 * time.Minute, 11 * time.Minute, true},
		{"this moment", 10 * time.Minute, 10*time.Minute + time.Second, false},
		{"before the last sync", -time.Minute, 11 * time.Minute, false},
	} {
		w := openCaptured(t, "iptables")
		w.health(tt.read, false)
		at := time.Date(2026, 11, 20, 19, 41, 4, 0, time.UTC).Add(tt.changed)
		for i, s := range w.cluster.EndpointSlices {
			s = s.DeepCopy()
			s.CreationTimestamp = metav1.NewTime(at.Add(-time.Hour))
			if s.Labels[discoveryv1.LabelServiceName] == "ep1" && s.AddressType == discoveryv1.AddressTypeIPv4 &&
				len(s.Endpoints) > 0 {
				s.Endpoints[0].Addresses = []string{"10.244.1.99"}
				s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at.Format(time.RFC3339Nano)}
			}
			w.cluster.EndpointSlices[i] = s
		}
		r := w.run()
		i := slices.IndexFunc(r.Findings, func(f report.Finding) bool { return f.Code == NotSyncing })
		if r.Verdict != report.Mismatch {
			t.Fatalf("%s: %s", tt.name, r.Verdict)
		}
		if i >= 0 != tt.hung {
			t.Errorf("%s: %+v", tt.name, r.Findings)
		}
		if i >= 0 && !strings.Contains(r.Findings[i].Evidence[0].Text, "/ep1 changed at 2026-11-20T19:51:04Z") {
			t.Errorf("%s: %+v", tt.name, r.Findings[i])
		}
	}
}
