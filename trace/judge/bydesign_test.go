// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
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
		w.cluster.Pods = c.pods
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
