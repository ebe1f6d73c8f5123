// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A targetPort by a name that no container has is named where a Service has no endpoint; not where some container has
// it, with the right protocol, nor where the pods were not read.
func TestNoSuchTargetPort(t *testing.T) {
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = "shop", "web"
	svc.Spec.Selector = map[string]string{"app": "web"}
	svc.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP", TargetPort: intstr.FromString("web")}}
	pod := func(namespace, app, port string, protocol corev1.Protocol) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{}, {Ports: []corev1.ContainerPort{{Name: port, Protocol: protocol}}},
			}},
		}
	}
	for _, c := range []struct {
		name string
		pods []*corev1.Pod
		port intstr.IntOrString
		says bool
	}{
		{"no pods", nil, intstr.FromString("web"), false},
		{"another name", []*corev1.Pod{pod("shop", "web", "http", "TCP")}, intstr.FromString("web"), true},
		{"another protocol", []*corev1.Pod{pod("shop", "web", "web", "UDP")}, intstr.FromString("web"), true},
		{"trap: the name", []*corev1.Pod{pod("shop", "web", "web", "TCP")}, intstr.FromString("web"), false},
		{"trap: a number", []*corev1.Pod{pod("shop", "web", "http", "TCP")}, intstr.FromInt32(80), false},
		{
			"trap: pods of others",
			[]*corev1.Pod{pod("shop", "db", "http", "TCP"), pod("other", "web", "http", "TCP")},
			intstr.FromString("web"), false,
		},
		{
			"trap: one of two has it",
			[]*corev1.Pod{pod("shop", "web", "http", "TCP"), pod("shop", "web", "web", "TCP")},
			intstr.FromString("web"), false,
		},
	} {
		svc.Spec.Ports[0].TargetPort = c.port
		w := openCaptured(t, "iptables")
		w.cluster.Pods, w.cluster.Services = c.pods, []*corev1.Service{svc}
		p := &pathCase{
			worker: &worker{node: &node{cluster: NewCluster(w.cluster)}}, svc: svc,
			want: &expect.Path{Frontend: expect.Frontend{PortName: "http", Protocol: "TCP", Port: 80}},
		}
		got := p.noSuchPort()
		if (got != "") != c.says || c.says && !strings.Contains(got, "targetPort web: of 1 pod that the Service selects") {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// TestNamedPortMissing: a pod that the Service selects and that has no port of the name was not mentioned, where
// another one had it.
func TestNamedPortMissing(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	ports := func(names ...string) (out []corev1.ContainerPort) {
		for _, n := range names {
			out = append(out, corev1.ContainerPort{Name: n, Protocol: "TCP"})
		}
		return out
	}
	old := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web", "v": "1"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: ports("http-old")}}},
		}
	}
	for _, c := range []struct {
		name string
		pod  func(p *corev1.Pod)
		want string
	}{
		{"another name", func(*corev1.Pod) {}, "shop/web-old"},
		{"a sidecar has it", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Ports: ports("http")}}
		}, ""},
		{"an init container has it, which ends", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Ports: ports("http")}}
		}, "shop/web-old"},
		{"it has ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, ""},
		{"it is being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, ""},
		{"it is not selected", func(p *corev1.Pod) { p.Labels["app"] = "db" }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			p := old("web-old")
			c.pod(p)
			w.namedPort(p)
			got := ""
			for _, path := range w.run().Paths {
				for _, f := range path.Findings {
					if f.Code == NamedPortMissing {
						got = f.Subject
						const says = "of 2 pods that the Service selects, as far as pods were read, 1 has no"
						if f.Severity != report.Info || !strings.Contains(f.Message, says) {
							t.Errorf("%s %s", f.Severity, f.Message)
						}
					}
				}
			}
			if got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// namedPort gives the Service web a targetPort that is a name, which one pod has, and adds pods.
func (w *capturedNode) namedPort(more ...*corev1.Pod) {
	svc := w.service("shop/np")
	svc.Spec.Selector = map[string]string{"app": "web"}
	for i := range svc.Spec.Ports {
		svc.Spec.Ports[i].TargetPort = intstr.FromString("http")
	}
	w.cluster.Pods = append(w.cluster.Pods, append(more, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-new", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "http", Protocol: "TCP"}}},
		}},
	})...)
}
