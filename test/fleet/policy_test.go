// SPDX-License-Identifier: Apache-2.0

//go:build fleet

package fleet

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// TestWhoMakesPodsThatStay: at a real API server, a pod of the kinds that stay is made by the DaemonSet controller
// alone, whatever its ownerReferences say, and no pod becomes another kind by an update. Everyone here may do everything
// but for the policy.
func TestWhoMakesPodsThatStay(t *testing.T) {
	c := startControlPlane(t)
	for _, args := range [][]string{{"create", "namespace", "svcproxy"}, {"apply", "-f", "../../deploy/policy.yaml"}} {
		out, err := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	as := func(user string) kubernetes.Interface {
		config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	const (
		controller = "system:serviceaccount:kube-system:daemon-set-controller"
		manager    = "system:kube-controller-manager"
	)
	image := "ghcr.io/svcproxy/nodehelper:dev"
	run := func() *corev1.Pod {
		return launch.Pod(launch.Options{Namespace: "svcproxy", Run: launch.NewRun(), Image: image}, "")
	}
	owner := []metav1.OwnerReference{{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet", Name: "svcproxy-nodehelper", UID: "1", Controller: new(true),
	}}
	daemon := func() *corev1.Pod {
		p := run()
		p.Labels = map[string]string{"app.kubernetes.io/name": "svcproxy-nodehelper", "app.kubernetes.io/component": "daemon"}
		p.OwnerReferences = owner
		p.Spec.ActiveDeadlineSeconds, p.Spec.RestartPolicy = nil, corev1.RestartPolicyAlways
		x := &p.Spec.Containers[0]
		x.Command, x.Stdin, x.StdinOnce = []string{"/svcproxy-nodehelper", "wait"}, false, false
		return p
	}
	create := func(user string, p *corev1.Pod) error {
		_, err := as(user).CoreV1().Pods("svcproxy").Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) { // until the policy is in force
		p := run()
		p.Spec.Containers[0].Image = "busybox"
		if err := create("someone", p); err != nil && strings.Contains(err.Error(), "is not allowed") {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if err := create("someone", run()); err != nil {
		t.Errorf("a run's: %v", err)
	}
	for _, user := range []string{controller, manager} {
		if err := create(user, daemon()); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	for _, user := range []string{"someone", "system:serviceaccount:svcproxy:daemon-set-controller", "system:node:node1"} {
		if err := create(user, daemon()); err == nil || !strings.Contains(err.Error(), "is made by the DaemonSet controller alone, and not by "+user) {
			t.Errorf("%s: %v", user, err)
		}
	}
	made, err := as("someone").CoreV1().Pods("svcproxy").Create(t.Context(), run(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = as("someone").CoreV1().Pods("svcproxy").Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
	for _, user := range []string{"someone", controller} {
		p := made.DeepCopy()
		p.OwnerReferences = owner
		p.Labels["app.kubernetes.io/component"] = "daemon"
		_, err := as(user).CoreV1().Pods("svcproxy").Update(t.Context(), p, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "does not change") {
			t.Errorf("an update by %s: %v", user, err)
		}
	}
	p := made.DeepCopy()
	p.OwnerReferences = owner
	if _, err := as("someone").CoreV1().Pods("svcproxy").Update(t.Context(), p, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("an owner alone: %v", err)
	}
}
