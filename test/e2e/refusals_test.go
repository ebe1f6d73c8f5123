// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
)

// Whatever keeps a helper from running is told in one sentence that names it, with exit code 3.
func TestRefusals(t *testing.T) {
	restricted := namespaceWith(t, "svcproxy-e2e-restricted",
		map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	full := namespaceWith(t, "svcproxy-e2e-quota", nil)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	if _, err := client.CoreV1().ResourceQuotas(full).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ghost := ghostNode(t)
	for _, tt := range []struct {
		name string
		args []string
		want []string // in the sentence
	}{
		{
			"no such image",
			[]string{"--node", nodes[0], "--image", "svcproxy.invalid/none:v1", "--image-pull-policy", "Never"},
			[]string{"svcproxy.invalid/none:v1", "ErrImageNeverPull"},
		},
		{
			"an image that cannot be pulled",
			[]string{"--node", nodes[0], "--image", "127.0.0.1:1/none:v1"},
			[]string{"127.0.0.1:1/none:v1", "ImagePull"},
		},
		{"a node that is not ready", []string{"--node", ghost}, []string{ghost, "not ready"}},
		{"Pod Security", []string{"--node", nodes[0], "--helper-namespace", restricted}, []string{restricted, "privileged"}},
		{"a quota", []string{"--node", nodes[0], "--helper-namespace", full}, []string{full, "quota"}},
		{
			"a namespace that there is not",
			[]string{"--node", nodes[0], "--helper-namespace", "svcproxy-e2e-nowhere"},
			[]string{"svcproxy-e2e-nowhere"},
		},
		{
			"no rights at all",
			[]string{"--node", nodes[0], "--as", "nobody"},
			[]string{`User "nobody" cannot list resource "services"`, "deploy/rbac.yaml"},
		},
		{
			"no right to make pods",
			[]string{"--node", nodes[0], "--as", "reader"},
			[]string{"cannot create pods in", "kube-system", "deploy/rbac.yaml"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			allowReading(t)
			r := svcproxy(t, append([]string{"trace", app, "--timeout", "20s"}, tt.args...)...)
			if r.code != 3 {
				t.Errorf("want exit code 3\n%s", r)
			}
			last := lastLine(r.errOut)
			for _, want := range tt.want {
				if !strings.Contains(last, want) {
					t.Errorf("%q is missing in %q", want, last)
				}
			}
			if !strings.HasPrefix(last, "error: ") || strings.Contains(r.out, "MATCH:") && !strings.Contains(r.out, "UNKNOWN") {
				t.Errorf("want one sentence, and no claim\n%s", r)
			}
		})
	}
	noHelperPods(t)
}

// deploy/rbac.yaml grants what is needed, and readers no pods.
func TestRBAC(t *testing.T) {
	applyRBAC(t)
	reader := []string{"--as", "someone", "--as-group", "svcproxy:readers"}
	operator := []string{"--as", "someone", "--as-group", "svcproxy:operators"}
	for _, tt := range []struct {
		args, as []string
		code     int
		says     string
	}{
		{[]string{"resolve", app}, reader, 0, ""},
		{[]string{"trace", app, "--node", nodes[0]}, reader, 3, "cannot create pods in"},
		{[]string{"trace", app, "--node", nodes[0]}, operator, 0, ""},
		{[]string{"verify", "-A", "--node", nodes[1]}, operator, 0, ""},
	} {
		r := svcproxy(t, slices.Concat(tt.args, tt.as)...)
		if r.code != tt.code || !strings.Contains(r.errOut, tt.says) {
			t.Errorf("%v %v: want exit code %d, %q\n%s", tt.args, tt.as, tt.code, tt.says, r)
		}
	}
	// Without this, many nodes are judged by a list for each.
	for _, watched := range []schema.GroupResource{corev1.Resource("services"), discoveryv1.Resource("endpointslices")} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "someone", Groups: []string{"svcproxy:operators"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "watch", Group: watched.Group, Resource: watched.Resource,
			},
		}}
		got, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil || !got.Status.Allowed {
			t.Errorf("%v may not be watched: %+v, %v", watched, got.Status, err)
		}
	}
}

func namespaceWith(t *testing.T, name string, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return name
}

// ghostNode is a Node whose kubelet is no more.
func ghostNode(t *testing.T) string {
	t.Helper()
	const name = "svcproxy-e2e-ghost"
	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// The controllers write to a new Node, too.
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
		}}
		_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

// allowReading lets the user reader read everything, and nothing more.
func allowReading(t *testing.T) {
	t.Helper()
	const name = "svcproxy-e2e-reader"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{"", "discovery.k8s.io"},
			Resources: []string{"services", "endpointslices", "nodes", "pods", "namespaces"},
			Verbs:     []string{"get", "list", "watch"},
		},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := client.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := client.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// applyRBAC makes the objects of deploy/rbac.yaml, and removes them after the test.
func applyRBAC(t *testing.T) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	api, ctx := client.RbacV1(), t.Context()
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(f)); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var remove func(context.Context, string, metav1.DeleteOptions) error
		var name string
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			_, err = api.ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
			name, remove = o.Name, api.ClusterRoles().Delete
		case *rbacv1.ClusterRoleBinding:
			_, err = api.ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
			name, remove = o.Name, api.ClusterRoleBindings().Delete
		case *rbacv1.Role:
			_, err = api.Roles(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
			name, remove = o.Name, api.Roles(o.Namespace).Delete
		case *rbacv1.RoleBinding:
			_, err = api.RoleBindings(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
			name, remove = o.Name, api.RoleBindings(o.Namespace).Delete
		default:
			t.Fatalf("deploy/rbac.yaml has a %T", o)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remove(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// harness has the program that runs the cluster do what Kubernetes cannot.
func harness(t *testing.T, args ...string) {
	t.Helper()
	program := harnessProgram(t)
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// harnessProgram is the program of test/cluster. Without it the test is skipped.
func harnessProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("E2E_CLUSTER")
	if program == "" {
		t.Skip("E2E_CLUSTER is not set: only the cluster of test/cluster can do this")
	}
	return program
}
