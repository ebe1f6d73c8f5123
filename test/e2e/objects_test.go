// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	app      = "web"
	replicas = 3
	port     = 8080 // of the echo server
)

// operator is the tests' own privileged pod on a node.
func operator(node string) string { return "operator-" + node }

// setUp makes a namespace with a Deployment of three pods on both nodes, Services of every kind in front of it, a
// client, and an operator on each node.
func setUp(ctx context.Context) error {
	if err := tearDown(ctx); err != nil {
		return err
	}
	if err := obeyLabel(ctx, true); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := eventually(ctx, "the namespace has its service account", func() (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	}); err != nil {
		return err
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(ctx, deployment(), metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, svc := range services() {
		if _, err := client.CoreV1().Services(namespace).Create(ctx, svc, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	pods := []*corev1.Pod{clientPod()}
	for _, n := range nodes {
		pods = append(pods, operatorPod(n))
	}
	for _, p := range pods {
		if _, err := client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, p := range pods {
		if err := eventually(ctx, "pod "+p.Name+" runs", func() (bool, error) {
			got, err := client.CoreV1().Pods(namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return got.Status.Phase == corev1.PodRunning, fmt.Errorf("it is %s: %+v", got.Status.Phase,
				got.Status.ContainerStatuses)
		}); err != nil {
			return err
		}
	}
	return endpointsReady(ctx, replicas)
}

// endpointsReady waits until the Service web has so many ready endpoints.
func endpointsReady(ctx context.Context, want int) error {
	return eventually(ctx, fmt.Sprintf("%d endpoints are ready", want), func() (bool, error) {
		list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + app})
		if err != nil {
			return false, err
		}
		got := 0
		for i := range list.Items {
			for k := range list.Items[i].Endpoints {
				if r := list.Items[i].Endpoints[k].Conditions.Ready; list.Items[i].AddressType == discoveryv1.AddressTypeIPv4 &&
					r != nil && *r {
					got++
				}
			}
		}
		return got == want, fmt.Errorf("there are %d", got)
	})
}

func tearDown(ctx context.Context) error {
	if err := obeyLabel(ctx, false); err != nil {
		return err
	}
	if err := ignoreNotFound(client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})); err != nil {
		return err
	}
	return eventually(ctx, "the namespace is gone", func() (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), errors.Join(err, errors.New("it is there"))
	})
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": app}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
					Containers: []corev1.Container{{
						Name: "echo", Image: echoImage, ImagePullPolicy: corev1.PullIfNotPresent,
						Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port}},
						ReadinessProbe: &corev1.Probe{
							PeriodSeconds: 1,
							ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}},
						},
					}},
				},
			},
		},
	}
}

// services are in front of the Deployment. Only NodePorts cannot be chosen twice in a cluster: the API server chooses.
func services() []*corev1.Service {
	of := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		spec.Selector = map[string]string{"app": app}
		spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	udp := of(app+"-udp", corev1.ServiceSpec{})
	udp.Spec.Ports[0].Protocol, udp.Spec.Ports[0].TargetPort = corev1.ProtocolUDP, intstr.FromInt32(port)
	deaf := of(app+"-deaf", corev1.ServiceSpec{})
	deaf.Spec.Ports[0].TargetPort = intstr.FromInt32(9)
	dual := of(app+"-dual", corev1.ServiceSpec{IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack)})
	dual.Spec.Ports = append(dual.Spec.Ports, corev1.ServicePort{
		Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, TargetPort: intstr.FromInt32(port),
	})
	return []*corev1.Service{
		udp, deaf, dual,
		of(app, corev1.ServiceSpec{}),
		of(app+"-nodeport", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}),
		of(app+"-local", corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeNodePort,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		}),
		of(app+"-headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}),
		{
			ObjectMeta: metav1.ObjectMeta{Name: app + "-alias"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: aliasOf},
		},
	}
}

// clientPod is a pod to send from, on the first node.
func clientPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "client"},
		Spec: corev1.PodSpec{
			NodeName: nodes[0], TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "echo", Image: echoImage, ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
}

// operatorPod does nothing by itself: commands that are run in it reach the node, with the tools of the helper's image.
func operatorPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: operator(node)},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, HostPID: true, TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken: new(false),
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "operator", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"/svcproxy-nodehelper", "wait"},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
				VolumeMounts:    []corev1.VolumeMount{{Name: "lock", MountPath: "/run/xtables.lock"}},
			}},
			// What iptables-legacy and kube-proxy's iptables share, so that they do not write at once.
			Volumes: []corev1.Volume{{Name: "lock", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/run/xtables.lock", Type: new(corev1.HostPathFileOrCreate)},
			}}},
		},
	}
}
