// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// hinted gives the endpoints of shop/ep3 hints for zones, in their order; "" is none.
func (w *capturedNode) hinted(zones ...string) {
	i := 0
	for _, s := range w.cluster.EndpointSlices {
		if s.Labels[discoveryv1.LabelServiceName] != "ep3" {
			continue
		}
		for k := range s.Endpoints {
			s.Endpoints[k].Hints = nil
			if z := zones[min(i, len(zones)-1)]; z != "" {
				s.Endpoints[k].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: z}}}
			}
			i++
		}
	}
}

// zones gives the nodes labels of zones, "" for none, and conditions and resources as they report them.
func (w *capturedNode) zones(names ...string) {
	for i, o := range w.cluster.Nodes {
		delete(o.Labels, corev1.LabelTopologyZone)
		if z := names[min(i, len(names)-1)]; z != "" {
			o.Labels[corev1.LabelTopologyZone] = z
		}
		delete(o.Labels, "node-role.kubernetes.io/control-plane")
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		o.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	}
}

// Hints that a node ignores are said, with the reason that the API shows; endpoints that are shared out as they should
// be, and Services that do not ask for it, are not.
func TestHintsThatTheNodeIgnores(t *testing.T) {
	auto := func(w *capturedNode) {
		w.service("shop/ep3").Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	}
	for _, tt := range []struct {
		name     string
		do       func(w *capturedNode)
		severity report.Severity // "" for none
		command  string
	}{
		{name: "as captured, without hints", do: func(*capturedNode) {}},
		{name: "hints that are followed", do: func(w *capturedNode) { w.zones("a", "b", "c"); w.hinted("a", "b", "c") }},
		{
			name: "the node has no zone", do: func(w *capturedNode) { w.zones("", "b", "c"); w.hinted("a", "b", "c") },
			severity: report.Warn, command: "kubectl label node node1 topology.kubernetes.io/zone=a",
		},
		{
			name: "none is for this zone", do: func(w *capturedNode) { w.zones("d", "b", "c"); w.hinted("a", "b", "c") },
			severity: report.Info,
		},
		{
			name: "one has none", do: func(w *capturedNode) { w.zones("a", "b", "c"); w.hinted("a", "", "c") },
			severity: report.Info,
		},
		{
			name:     "asked for, and a node has no zone",
			do:       func(w *capturedNode) { auto(w); w.zones("a", "", "c"); w.hinted("") },
			severity: report.Warn, command: "kubectl get nodes -L topology.kubernetes.io/zone -o wide",
		},
		{
			name: "asked for, and a node tells no CPU",
			do: func(w *capturedNode) {
				auto(w)
				w.zones("a", "b", "c")
				w.hinted("")
				w.cluster.Nodes[1].Status.Allocatable = nil
			},
			severity: report.Warn, command: "kubectl get nodes -L topology.kubernetes.io/zone -o wide",
		},
		{
			name: "asked for, and that node is not ready",
			do: func(w *capturedNode) {
				auto(w)
				w.zones("a", "", "c")
				w.hinted("")
				w.cluster.Nodes[1].Status.Conditions = nil
			},
		},
		{name: "asked for, too few endpoints", do: func(w *capturedNode) { auto(w); w.zones("a", "b", "c"); w.hinted("") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			tt.do(w)
			r := w.run()
			found := nodeFindings(&r, HintsIgnored)
			found = slices.DeleteFunc(found, func(f report.Finding) bool { return f.Subject != "shop/ep3" })
			if tt.severity == "" {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Severity != tt.severity {
				t.Fatalf("found %+v", found)
			}
			command := ""
			if len(found[0].Commands) > 0 {
				command = found[0].Commands[0].Line
			}
			if command != tt.command {
				t.Errorf("command %q, want %q", command, tt.command)
			}
		})
	}
}

// A kube-proxy that has not read its node's zone uses all endpoints, those of other zones, too. In 1.37 that happens
// when it learns of the Node before it listens (cmd/kube-proxy/app/server.go, NewNodeTopologyConfig): found on a busy
// machine.
func TestKubeProxyDoesNotKnowItsZone(t *testing.T) {
	w := openCaptured(t, "iptables") // whose kube-proxy has read the endpoints of shop/ep3 without hints
	w.zones("a", "b", "c")
	w.hinted("a", "b", "c")
	r := w.run()
	wrong := 0
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Service.Name != "ep3" || p.Verdict != report.Mismatch {
			continue
		}
		for _, f := range p.Findings {
			if f.Code == StaleEndpoint {
				wrong++
				if !strings.Contains(f.Message, "meant for zone ") || !strings.Contains(f.Message, "this node is in a;") {
					t.Errorf("%s: %s", p.Frontend.Address, f.Message)
				}
			}
		}
	}
	if wrong == 0 {
		t.Error("no endpoint of another zone is found")
	}
}
