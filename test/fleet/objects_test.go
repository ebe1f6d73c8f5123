// SPDX-License-Identifier: Apache-2.0

//go:build fleet

package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The kernels of nodes. Those that are broken have one that no other has: this is what they share.
const (
	kernel    = "6.1.0-28-amd64"
	oldKernel = "5.10.0-33-amd64"
)

// The first nodes have a label, to be chosen by.
const (
	firstNodes = 300
	firstLabel = "svcproxy.test/first"
)

// helperNamespace is that of the helpers.
const helperNamespace = "svcproxy"

// makeObjects makes the Nodes, and the first Services of the captured cluster with their endpoints, on nodes of the
// fleet. ports are those of the kubelets that answer.
func (c *controlPlane) makeObjects(t *testing.T, fleet []node, ports map[string]int32, services int) {
	t.Helper()
	s, err := snapshot.Open(captured)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := s.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, name := range []string{namespace, helperNamespace} {
		_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	wanted := func(service string) bool { return number(service) < services }
	objects.Services = slices.DeleteFunc(objects.Services, func(o *corev1.Service) bool { return !wanted(o.Name) })
	objects.EndpointSlices = slices.DeleteFunc(objects.EndpointSlices, func(o *discoveryv1.EndpointSlice) bool {
		return !wanted(o.Labels[discoveryv1.LabelServiceName])
	})
	begun := time.Now()
	err = sideBySide(len(fleet), func(i int) error {
		port, ok := ports[fleet[i].name]
		if !ok {
			port = 1 // where nobody listens
		}
		n := nodeObject(&fleet[i], port)
		made, err := c.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.Status = n.Status
		_, err = c.client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = sideBySide(len(objects.Services), func(i int) error {
		o := objects.Services[i].DeepCopy()
		o.ResourceVersion, o.UID, o.ManagedFields = "", "", nil
		_, err := c.client.CoreV1().Services(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) || o.Name == "kubernetes" {
			return nil // the API server's own
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = sideBySide(len(objects.EndpointSlices), func(i int) error {
		o := objects.EndpointSlices[i].DeepCopy()
		o.ResourceVersion, o.UID, o.ManagedFields, o.OwnerReferences = "", "", nil, nil
		for k := range o.Endpoints {
			if o.Endpoints[k].NodeName != nil {
				o.Endpoints[k].NodeName = &fleet[(4*i+k)%len(fleet)].name
			}
		}
		_, err := c.client.DiscoveryV1().EndpointSlices(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Nodes, %d Services, %d EndpointSlices were made in %v", len(fleet), len(objects.Services),
		len(objects.EndpointSlices), time.Since(begun).Round(time.Millisecond))
}

// nodeObject is the Node of a node.
func nodeObject(n *node, kubelet int32) *corev1.Node {
	pods := fmt.Sprintf("10.%d.%d.0/24", 130+n.i/250, n.i%250)
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
			corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelTopologyZone: "zone-" + string(rune('a'+n.i%3)),
		}},
		Spec: corev1.NodeSpec{PodCIDR: pods, PodCIDRs: []string{pods}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: n.address()},
				{Type: corev1.NodeHostName, Address: n.name},
				{Type: corev1.NodeExternalDNS, Address: "127.0.0.1"},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubelet}},
			NodeInfo: corev1.NodeSystemInfo{
				KernelVersion: kernel, OSImage: "Debian GNU/Linux 12 (bookworm)", KubeletVersion: "v1.37.1",
				ContainerRuntimeVersion: "containerd://2.1.4", OperatingSystem: "linux", Architecture: "amd64",
			},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
			}},
		},
	}
	if n.i <= firstNodes {
		o.Labels[firstLabel] = "true"
	}
	if n.state == broken {
		o.Status.NodeInfo.KernelVersion = oldKernel
	}
	if n.state == notReady {
		// As the node lifecycle controller says it; each of them has stopped at another moment.
		o.Status.Conditions[0] = corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
			Message:            "Kubelet stopped posting node status.",
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Duration(n.i) * time.Second)),
		}
	}
	return o
}

// makeHelpers makes the pods of deploy/daemonset, as its controller does.
func (c *controlPlane) makeHelpers(t *testing.T, fleet []node) {
	t.Helper()
	ctx := t.Context()
	err := sideBySide(len(fleet), func(i int) error {
		_, err := c.client.CoreV1().Pods(helperNamespace).Create(ctx, helperPod(fleet[i].name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// helperPod is the pod of deploy/daemonset on a node.
func helperPod(node string) *corev1.Pod {
	const name = "svcproxy-nodehelper"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + node, Namespace: helperNamespace,
			Labels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/component": "daemon"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "DaemonSet", Name: name, UID: types.UID("1"), Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, HostPID: true, AutomountServiceAccountToken: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "nodehelper", Image: "ghcr.io/svcproxy/nodehelper:dev", Command: []string{"/svcproxy-nodehelper", "wait"},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}},
		},
	}
}
