// SPDX-License-Identifier: Apache-2.0

// Package deploy_test renders what is here as kubectl apply -k does, and holds it against what the plugin relies on.
package deploy_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// render returns the objects of a kustomization by kind and namespace/name. A field that Kubernetes does not know is an
// error.
func render(t *testing.T, dir string) map[string]runtime.Object {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := map[string]runtime.Object{}
	for _, r := range all.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o, kind, err := decoder.Decode(text, nil, nil)
		if runtime.IsNotRegisteredError(err) { // a CustomResourceDefinition: the API server checks it (test/e2e)
			var fields map[string]any
			if fields, err = r.Map(); err == nil {
				u := &unstructured.Unstructured{Object: fields}
				o, kind = u, new(u.GroupVersionKind())
			}
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		objects[kind.Kind+" "+r.GetNamespace()+"/"+r.GetName()] = o
	}
	return objects
}

// get returns an object that there has to be.
func get[T runtime.Object](t *testing.T, objects map[string]runtime.Object, name string) T {
	t.Helper()
	o, ok := objects[name].(T)
	if !ok {
		t.Fatalf("there is no %s among %v", name, slices.Sorted(maps.Keys(objects)))
	}
	return o
}

func TestBase(t *testing.T) {
	objects := render(t, ".")
	want := []string{
		"ClusterRole /svcproxy-reader", "ClusterRoleBinding /svcproxy-reader", "ConfigMap svcproxy/svcproxy-helper",
		"Namespace /svcproxy", "NetworkPolicy svcproxy/svcproxy-deny-all",
		"Role kube-system/svcproxy-reader", "Role svcproxy/svcproxy-helper",
		"RoleBinding kube-system/svcproxy-reader", "RoleBinding svcproxy/svcproxy-helper",
		"ValidatingAdmissionPolicy /svcproxy-helper", "ValidatingAdmissionPolicy /svcproxy-helper-connect",
		"ValidatingAdmissionPolicyBinding /svcproxy-helper", "ValidatingAdmissionPolicyBinding /svcproxy-helper-connect",
	}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
	ns := get[*corev1.Namespace](t, objects, "Namespace /svcproxy")
	if l := ns.Labels["pod-security.kubernetes.io/enforce"]; l != "privileged" {
		t.Errorf("the namespace enforces %q: it would refuse the helpers", l)
	}
	policy := get[*networkingv1.NetworkPolicy](t, objects, "NetworkPolicy svcproxy/svcproxy-deny-all").Spec
	selectors := len(policy.PodSelector.MatchLabels) + len(policy.PodSelector.MatchExpressions)
	if selectors+len(policy.Ingress)+len(policy.Egress) > 0 || len(policy.PolicyTypes) != 2 {
		t.Errorf("the policy lets something through: %+v", policy)
	}
	// What may be done with pods may be done in one namespace, and nothing may be done with everything.
	for name, o := range objects {
		var rules []rbacv1.PolicyRule
		switch o := o.(type) {
		case *rbacv1.Role:
			rules = o.Rules
		case *rbacv1.ClusterRole:
			rules = o.Rules
		}
		for _, r := range rules {
			if slices.Contains(slices.Concat(r.Verbs, r.Resources, r.APIGroups), "*") {
				t.Errorf("%s grants %v", name, r)
			}
			writes := slices.ContainsFunc(r.Verbs, func(v string) bool {
				return !slices.Contains([]string{"get", "list", "watch"}, v)
			})
			if writes && name != "Role svcproxy/svcproxy-helper" {
				t.Errorf("%s grants %v", name, r.Verbs)
			}
		}
	}
	for _, kind := range []string{"RoleBinding svcproxy/svcproxy-helper", "RoleBinding kube-system/svcproxy-reader"} {
		b := get[*rbacv1.RoleBinding](t, objects, kind)
		get[*rbacv1.Role](t, objects, "Role "+b.Namespace+"/"+b.RoleRef.Name)
	}
}

// daemonSet is the one of deploy/daemonset, which has nothing else.
func daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	objects := render(t, "daemonset")
	if len(objects) != 1 {
		t.Errorf("it has %v", slices.Sorted(maps.Keys(objects)))
	}
	return get[*appsv1.DaemonSet](t, objects, "DaemonSet svcproxy/svcproxy-nodehelper")
}

// A pod of the DaemonSet is what a run launches, but for that it waits and stays.
func TestDaemonSet(t *testing.T) {
	ds := daemonSet(t)
	get[*corev1.Namespace](t, render(t, "."), "Namespace /"+ds.Namespace)

	got := ds.Spec.Template
	want := launch.Pod(launch.Options{Run: "run"}, "node")
	name := "app.kubernetes.io/name"
	if got.Labels[name] != want.Labels[name] || got.Labels["app.kubernetes.io/component"] != "daemon" {
		t.Errorf("the plugin does not find it by %v", got.Labels)
	}
	if !equality.Semantic.DeepEqual(ds.Spec.Selector, &metav1.LabelSelector{MatchLabels: got.Labels}) {
		t.Errorf("it selects %v", ds.Spec.Selector)
	}
	if _, ok := got.Labels["svcproxy.dev/run-id"]; ok {
		t.Error("a cleanup would remove it")
	}
	if !slices.Equal(got.Spec.Containers[0].Command, []string{"/svcproxy-nodehelper", "wait"}) {
		t.Errorf("it runs %v", got.Spec.Containers[0].Command)
	}
	// The differences that there have to be, made good.
	want.Spec.NodeName, got.Spec.NodeSelector = "", nil
	want.Spec.RestartPolicy, want.Spec.ActiveDeadlineSeconds = "", nil
	w, g := &want.Spec.Containers[0], &got.Spec.Containers[0]
	w.Command, g.Command = nil, nil
	w.Stdin, w.StdinOnce, w.ImagePullPolicy = false, false, ""
	for i := range reflect.TypeFor[corev1.PodSpec]().NumField() {
		field := reflect.TypeFor[corev1.PodSpec]().Field(i).Name
		a, b := reflect.ValueOf(got.Spec).Field(i).Interface(), reflect.ValueOf(want.Spec).Field(i).Interface()
		if !equality.Semantic.DeepEqual(a, b) {
			t.Errorf("%s: the DaemonSet has %+v, a run %+v", field, a, b)
		}
	}
}
