// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// mirror makes of shop/ep3 a Service without a selector, whose slice mirrors Endpoints with some addresses.
func (w *capturedNode) mirror(ready []string, notReady ...string) {
	w.service("shop/ep3").Spec.Selector = nil
	s := w.slice("shop/ep3")
	s.Labels[discoveryv1.LabelManagedBy] = "endpointslicemirroring-controller.k8s.io"
	addresses := func(ips []string) (out []corev1.EndpointAddress) {
		for _, ip := range ips {
			out = append(out, corev1.EndpointAddress{IP: ip})
		}
		return out
	}
	var ports []corev1.EndpointPort
	for i := range s.Ports {
		ports = append(ports, corev1.EndpointPort{
			Name: *s.Ports[i].Name, Port: *s.Ports[i].Port, Protocol: *s.Ports[i].Protocol,
		})
	}
	w.cluster.Missing = slices.DeleteFunc(w.cluster.Missing, func(kind string) bool { return kind == "endpoints" })
	w.cluster.Endpoints = []*snapshot.Endpoints{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ep3"},
		Subsets: []corev1.EndpointSubset{ //nolint:staticcheck // see snapshot.Endpoints
			{Addresses: addresses(ready), NotReadyAddresses: addresses(notReady), Ports: ports},
		},
	}}
}

// Endpoints are compared with the slices that mirror them, and with no others.
func TestMirrors(t *testing.T) {
	all := []string{"10.244.1.19", "10.244.2.20", "10.244.3.21"}
	for _, x := range []struct {
		name string
		do   func(w *capturedNode)
		want string // evidence; "" for none
	}{
		{name: "the same", do: func(w *capturedNode) { w.mirror(all) }},
		{
			name: "one more is written", do: func(w *capturedNode) { w.mirror(append(all, "10.9.9.9")) },
			want: "Endpoints alone have 10.9.9.9:8080",
		},
		{
			name: "one was taken off", do: func(w *capturedNode) { w.mirror(all[:2]) },
			want: "EndpointSlices alone have 10.244.3.21:8080",
		},
		{
			name: "one is written as not ready", do: func(w *capturedNode) { w.mirror(all[:2], all[2]) },
			want: "Endpoints alone have 10.244.3.21:8080 (not ready); EndpointSlices alone have 10.244.3.21:8080",
		},
		{
			name: "Endpoints are gone", do: func(w *capturedNode) { w.mirror(all); w.cluster.Endpoints = nil },
			want: "EndpointSlices alone have 10.244.1.19:8080, 10.244.2.20:8080, 10.244.3.21:8080",
		},
		{name: "of another family, which the path has nothing to do with", do: func(w *capturedNode) {
			w.mirror(append(all, "fd00::9"))
		}},
		{name: "no address", do: func(w *capturedNode) { w.mirror(append(all, "<b>")) }},
		{name: "they were not read", do: func(w *capturedNode) {
			w.mirror(all[:2])
			w.cluster.Missing = append(w.cluster.Missing, "endpoints")
		}},
		{name: "the Service has a selector", do: func(w *capturedNode) {
			w.mirror(all[:2])
			w.service("shop/ep3").Spec.Selector = map[string]string{"app": "x"}
		}},
		{name: "somebody else makes the slices", do: func(w *capturedNode) {
			w.mirror(all[:2])
			delete(w.slice("shop/ep3").Labels, discoveryv1.LabelManagedBy)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			x.do(w)
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			var got []string
			paths := 0
			for i := range r.Paths {
				p := &r.Paths[i]
				for _, f := range p.Findings {
					if f.Code != MirrorStale {
						continue
					}
					if f.Subject != "shop/ep3" || p.Verdict == "Match" {
						t.Errorf("%s of %s, and the path is %s", f.Code, f.Subject, p.Verdict)
					}
					paths++
					got = got[:0]
					for _, e := range f.Evidence {
						got = append(got, e.Text)
					}
				}
			}
			if text := strings.Join(got, "; "); text != x.want || x.want != "" && paths == 0 {
				t.Errorf("%d paths: %q, want %q", paths, text, x.want)
			}
		})
	}
}

// A Service whose Endpoints nobody mirrors has no endpoints.
func TestEndpointsWithoutMirrors(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.mirror([]string{"10.244.1.19"})
	w.cluster.EndpointSlices = slices.DeleteFunc(w.cluster.EndpointSlices, func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[discoveryv1.LabelServiceName] == "ep3"
	})
	r := w.run()
	for i := range r.Paths {
		for _, f := range r.Paths[i].Findings {
			if f.Code == MirrorStale {
				if !strings.Contains(f.Message, "no EndpointSlice mirrors them") {
					t.Error(f.Message)
				}
				return
			}
		}
	}
	t.Error("nothing says that the slices are not there")
}
