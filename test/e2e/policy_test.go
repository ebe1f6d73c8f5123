// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// helperPolicy is the name of deploy/policy.yaml's policy, of its binding, and of its parameter.
const helperPolicy = "svcproxy-helper"

// asOperator are the flags of a person with the rights of deploy/ and no others.
var asOperator = []string{"--helper-namespace", deployed, "--as", "someone", "--as-group", "svcproxy:operators"}

// What deploy/policy.yaml lets in, and what it does not.
func TestPolicy(t *testing.T) {
	kubectl := deploy(t)
	t.Run("is understood", policyIsUnderstood)
	t.Run("takes each helper pod", policyTakesEachHelperPod)
	t.Run("refuses each update", policyRefusesEachUpdate)
	t.Run("refuses each deviation", func(t *testing.T) { policyRefusesEachDeviation(t, kubectl) })
	t.Run("refuses the pods of a Deployment", policyRefusesThePodsOfADeployment)
	t.Run("takes the images of its parameter", func(t *testing.T) { policyTakesTheImagesOfItsParameter(t, kubectl) })
}

// The API server takes the policies as they are written: their expressions name fields that there are, and fit its
// budget for them.
func policyIsUnderstood(t *testing.T) {
	t.Helper()
	for _, name := range []string{helperPolicy, helperPolicy + "-connect"} {
		wait(t, "the expressions of "+name+" are checked", func() (bool, error) {
			p, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			s := p.Status
			if s.TypeChecking != nil && len(s.TypeChecking.ExpressionWarnings) > 0 {
				t.Fatalf("%s: %+v", name, s.TypeChecking.ExpressionWarnings)
			}
			return s.TypeChecking != nil && s.ObservedGeneration == p.Generation, errors.New("not yet")
		})
	}
}

// Each pod that the plugin may launch is let in.
func policyTakesEachHelperPod(t *testing.T) {
	t.Helper()
	for _, profile := range launch.Profiles() {
		for name, o := range map[string]launch.Options{
			"a run":        {},
			"kept":         {Keep: true, PullSecret: "secret", PullPolicy: corev1.PullAlways},
			"of 1s":        {Timeout: time.Second, Lifetime: time.Second},
			"odd times":    {Timeout: 90*time.Second + 250*time.Millisecond, Lifetime: 2 * time.Hour},
			"a program":    {Hold: 30 * time.Minute},
			"of a day":     {Hold: 24 * time.Hour},
			"run by hours": {Timeout: 30 * time.Minute},
		} {
			o.Profile = launch.Profile(profile)
			if err := dryCreate(t, helperPod(t, o)); err != nil {
				t.Errorf("%s, %s: %v", profile, name, err)
			}
		}
		r := svcproxy(t, append([]string{"trace", app, "--node", nodes[0], "--security-profile", profile}, asOperator...)...)
		if r.code != 0 {
			t.Errorf("trace with %s: %s", profile, r)
		}
	}
	r := svcproxy(t, append([]string{"program", app, "--node", nodes[0], "--yes", "--ttl", "5s"}, asOperator...)...)
	if r.code != 0 {
		t.Errorf("program: %s", r)
	}
	svcproxy(t, append([]string{"cleanup", "--running"}, asOperator...)...)
	noHelperPods(t)
}

// A pod that differs from a helper's in one thing is refused for that thing; the same pod without it is let in.
func policyRefusesEachDeviation(t *testing.T, kubectl kubectl) {
	t.Helper()
	patchImages(t, kubectl, `{"image.other":"`+tagged+`","annotation.scc":"openshift.io/scc"}`)
	good := map[string]*corev1.Pod{
		"a run": helperPod(t, launch.Options{}), "a DaemonSet": helperPod(t, launch.Options{}),
		"an allowed annotation": helperPod(t, launch.Options{}), "an image by its digest": helperPod(t, launch.Options{}),
	}
	asDaemons(good["a DaemonSet"])
	good["an allowed annotation"].Annotations["openshift.io/scc"] = "privileged"
	good["an image by its digest"].Spec.Containers[0].Image = tagged
	for name, p := range good {
		wait(t, "it lets in "+name, func() (bool, error) {
			err := dryCreate(t, p)
			return err == nil, err
		})
	}
	for _, user := range []string{"someone", "system:serviceaccount:" + deployed + ":daemon-set-controller"} {
		t.Run("a DaemonSet's by "+user, func(t *testing.T) {
			refusedFor(t, dryCreateBy(t, impersonating(t, user), good["a DaemonSet"]),
				"is made by the DaemonSet controller alone")
		})
	}
	if len(deviations) < 25 {
		t.Fatalf("%d deviations", len(deviations))
	}
	for _, d := range deviations {
		t.Run(d.name, func(t *testing.T) {
			p := helperPod(t, launch.Options{})
			d.change(p)
			refusedFor(t, dryCreate(t, p), d.want)
		})
	}
}

// What is there already cannot be changed into something else, either, nor get a shell beside it or in it.
func policyRefusesEachUpdate(t *testing.T) {
	t.Helper()
	// A scheduler that there is not leaves it as it was made.
	made := helperPod(t, launch.Options{})
	made.Spec.SchedulerName, made.Spec.NodeName = "nobody", ""
	pods := client.CoreV1().Pods(deployed)
	p, err := pods.Create(t.Context(), made, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Delete(context.Background(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	dry := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	for _, d := range []deviation{
		{"another image", container(func(c *corev1.Container) { c.Image = "busybox" }), badImage},
		{"no name", label("app.kubernetes.io/name", ""), badLabels},
		{"of another part", label("app.kubernetes.io/component", "daemon"), "this pod has no DaemonSet"},
		{"of another part, with an owner that there is not", func(p *corev1.Pod) {
			p.Labels["app.kubernetes.io/component"] = "daemon"
			p.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "DaemonSet", Name: "svcproxy-nodehelper", UID: "1", Controller: new(true),
			}}
		}, "does not change"},
		{"of no run", label("svcproxy.dev/run-id", ""), badLabels},
		{"a word for the runtime", func(p *corev1.Pod) {
			p.Annotations["cdi.k8s.io/x"] = "vendor.example/disk=1"
		}, "has no annotation"},
	} {
		t.Run(d.name, func(t *testing.T) {
			changed := p.DeepCopy()
			d.change(changed)
			_, err := pods.Update(t.Context(), changed, dry)
			refusedFor(t, err, d.want)
		})
	}
	for name, rights := range map[string]*corev1.SecurityContext{
		"a privileged ephemeral container": {Privileged: new(true)}, "an ephemeral container": nil,
	} {
		t.Run(name, func(t *testing.T) {
			changed := p.DeepCopy()
			debug := corev1.EphemeralContainer{}
			debug.Name, debug.Image, debug.SecurityContext = "debug", image, rights
			changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
			_, err := pods.UpdateEphemeralContainers(t.Context(), p.Name, changed, dry)
			refusedFor(t, err, "takes no ephemeral containers")
		})
	}
	t.Run("more memory", func(t *testing.T) {
		changed := p.DeepCopy()
		changed.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("64Gi")
		_, err := pods.UpdateResize(t.Context(), p.Name, changed, dry)
		refusedFor(t, err, badLimits)
	})
	t.Run("what is judged stays", func(t *testing.T) {
		changed := p.DeepCopy()
		changed.Finalizers = []string{"example.com/x"}
		if _, err := pods.Update(t.Context(), changed, dry); err != nil {
			t.Error(err)
		}
	})
	execute := func(tty string, command ...string) func() error {
		return func() error {
			req := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(deployed).Name(p.Name).SubResource("exec")
			for _, w := range command {
				req = req.Param("command", w)
			}
			return req.Param("stdout", "true").Param("tty", tty).Do(t.Context()).Error()
		}
	}
	connect := func(subresource string) func() error {
		return func() error {
			req := client.CoreV1().RESTClient().Get().Resource("pods").Namespace(deployed).Name(p.Name)
			return req.SubResource(subresource).Do(t.Context()).Error()
		}
	}
	const only = "nothing may be run in a helper pod but /svcproxy-nodehelper serve"
	for _, d := range []struct {
		name string
		call func() error
		want string
	}{
		{"exec of nft", execute("false", "/usr/sbin/nft", "flush", "ruleset"), only},
		{"exec of another root", execute("false", "/svcproxy-nodehelper", "serve", "--root=/"), only},
		{"exec of another subcommand", execute("false", "/svcproxy-nodehelper", "version"), only},
		{"exec with a terminal", execute("true", "/svcproxy-nodehelper", "serve"), only},
		{"a port of the node", connect("portforward"), "a connection into that through it"},
		{"a page of the node", connect("proxy"), "a connection into that through it"},
	} {
		t.Run(d.name, func(t *testing.T) { refusedFor(t, d.call(), d.want) })
	}
}

// Who may make no pods but something that has them made gets no further.
func policyRefusesThePodsOfADeployment(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "root"}
	deployments := client.AppsV1().Deployments(deployed)
	d, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "root"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "root", Image: image, SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := deployments.Delete(context.Background(), d.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	wait(t, "its pods are refused", func() (bool, error) {
		d, err := deployments.Get(t.Context(), d.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && strings.Contains(c.Message, "'"+helperPolicy+"'") {
				return d.Status.Replicas == 0, fmt.Errorf("%d pods", d.Status.Replicas)
			}
		}
		return false, fmt.Errorf("%+v", d.Status.Conditions)
	})
}

// Another image is allowed by the parameter, with the command that the refusal names; without the parameter nothing is.
func policyTakesTheImagesOfItsParameter(t *testing.T, kubectl kubectl) {
	t.Helper()
	if _, err := kubectl("", "-n", deployed, "patch", "configmap", helperPolicy, "--type", "json", "-p",
		`[{"op":"replace","path":"/data","value":{"image.release":"`+tagged+`"}}]`); err != nil {
		t.Fatal(err)
	}
	// advice is what a refused run says to do.
	advice := func(before, command string) string {
		t.Helper()
		var last string
		wait(t, "it is refused", func() (bool, error) {
			r := svcproxy(t, append([]string{"trace", app, "--node", nodes[0]}, asOperator...)...)
			last = lastLine(r.errOut)
			return r.code == 3 && strings.Contains(last, before), errors.New(r.String())
		})
		m := regexp.MustCompile(`: (kubectl -n svcproxy ` + command + ` configmap svcproxy-helper .*)$`).FindStringSubmatch(last)
		if m == nil {
			t.Fatalf("no command in %q", last)
		}
		return m[1]
	}
	follow := func(command string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		wait(t, "it works after "+command, func() (bool, error) {
			r := svcproxy(t, append([]string{"trace", app, "--node", nodes[0]}, asOperator...)...)
			return r.code == 0, errors.New(r.String())
		})
	}
	follow(advice("the image "+image+" is not allowed", "patch"))
	if _, err := kubectl("", "-n", deployed, "delete", "configmap", helperPolicy); err != nil {
		t.Fatal(err)
	}
	follow(advice("there is no ConfigMap svcproxy-helper", "create"))
	noHelperPods(t)

	// Elsewhere the policy says nothing.
	p := helperPod(t, launch.Options{Namespace: namespace})
	hostPath(p)
	if err := dryCreate(t, p); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
}

// helperPod is one that the plugin would make.
func helperPod(t *testing.T, o launch.Options) *corev1.Pod {
	t.Helper()
	o.Run, o.Image = launch.NewRun(), image
	if o.Namespace == "" {
		o.Namespace = deployed
	}
	return launch.Pod(o, nodes[0])
}

func dryCreate(t *testing.T, p *corev1.Pod) error {
	t.Helper()
	by := client
	if p.Labels["app.kubernetes.io/component"] != "" { // as the controller of DaemonSets does, who alone may
		by = impersonating(t, "system:serviceaccount:kube-system:daemon-set-controller")
	}
	return dryCreateBy(t, by, p)
}

func dryCreateBy(t *testing.T, by kubernetes.Interface, p *corev1.Pod) error {
	t.Helper()
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := by.CoreV1().Pods(p.Namespace).Create(t.Context(), p, options)
	return err
}

// impersonating is a client of another user, who may do everything but for the policies.
func impersonating(t *testing.T, user string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// refusedFor fails where it was not the policy that refused, and for this.
func refusedFor(t *testing.T, err error, want string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+helperPolicy) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v; want the policy to say %q", err, want)
	}
}

// patchImages adds to the parameter.
func patchImages(t *testing.T, kubectl kubectl, data string) {
	t.Helper()
	if _, err := kubectl("", "-n", deployed, "patch", "configmap", helperPolicy, "--type", "merge", "-p",
		fmt.Sprintf(`{"data":%s}`, data)); err != nil {
		t.Fatal(err)
	}
}
