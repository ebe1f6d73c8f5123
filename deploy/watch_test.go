// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// The agent reads what kube-proxy reads and no more, and is the helper of deploy/daemonset but for what it needs
// besides: the pod network, its own token, the name of its node, a port of its pod.
func TestWatch(t *testing.T) {
	objects := render(t, "watch")
	want := []string{
		"ClusterRole /svcproxy-watch", "ClusterRoleBinding /svcproxy-watch", "DaemonSet svcproxy/svcproxy-watch",
		"NetworkPolicy svcproxy/svcproxy-watch", "ServiceAccount svcproxy/svcproxy-watch",
	}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
	for _, r := range get[*rbacv1.ClusterRole](t, objects, "ClusterRole /svcproxy-watch").Rules {
		if !slices.Equal(r.Verbs, []string{"list", "watch"}) {
			t.Errorf("it grants %v", r)
		}
		for _, kind := range r.Resources {
			if !slices.Contains([]string{"services", "nodes", "endpointslices"}, kind) {
				t.Errorf("it grants %v", r)
			}
		}
	}
	binding := get[*rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding /svcproxy-watch")
	if s := binding.Subjects; len(s) != 1 || s[0].Name != "svcproxy-watch" || s[0].Namespace != "svcproxy" {
		t.Errorf("it is granted to %v", s)
	}

	ds := get[*appsv1.DaemonSet](t, objects, "DaemonSet svcproxy/svcproxy-watch")
	pod, c := ds.Spec.Template, ds.Spec.Template.Spec.Containers[0]
	if !maps.Equal(ds.Spec.Selector.MatchLabels, pod.Labels) || pod.Labels["app.kubernetes.io/component"] != "watch" {
		t.Errorf("it selects %v", ds.Spec.Selector)
	}
	if pod.Spec.HostNetwork || !pod.Spec.HostPID || pod.Spec.ServiceAccountName != "svcproxy-watch" {
		t.Errorf("its pods are %+v", pod.Spec)
	}
	if len(c.Ports) != 1 || c.Ports[0].HostPort != 0 {
		t.Errorf("its ports are %v", c.Ports)
	}
	policy := get[*networkingv1.NetworkPolicy](t, objects, "NetworkPolicy svcproxy/svcproxy-watch").Spec
	if policy.PodSelector.MatchLabels["app.kubernetes.io/component"] != "watch" || len(policy.Ingress) != 1 ||
		policy.Ingress[0].Ports[0].Port.IntVal != c.Ports[0].ContainerPort {
		t.Errorf("what may reach it is %+v", policy)
	}
	images := get[*corev1.ConfigMap](t, render(t, "."), "ConfigMap svcproxy/svcproxy-helper").Data
	if !slices.Contains(slices.Collect(maps.Values(images)), c.Image) {
		t.Errorf("it runs %s, and %v is allowed", c.Image, images)
	}
}

// What the alerts and the PodMonitor name is there: metrics of docs/metrics.md, and the port of the DaemonSet.
func TestMonitoring(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("watch/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr string
					Labels      map[string]string
					Annotations map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Spec.Groups {
		for _, r := range g.Rules {
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s: %+v", r.Alert, r)
			}
			namesMetrics(t, string(page), r.Alert, r.Expr)
		}
	}
	data, err = os.ReadFile("watch/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %s shows nothing", p.Title)
		}
		for _, q := range p.Targets {
			namesMetrics(t, string(page), p.Title, q.Expr)
		}
	}
	monitor, err := os.ReadFile("watch/monitoring/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ds := get[*appsv1.DaemonSet](t, render(t, "watch"), "DaemonSet svcproxy/svcproxy-watch")
	if port := ds.Spec.Template.Spec.Containers[0].Ports[0].Name; !strings.Contains(string(monitor), "port: "+port+"\n") {
		t.Errorf("the PodMonitor does not scrape %s", port)
	}
}

// elsewhere are metrics that are not the agent's own: Prometheus makes them, every process has them, or kube-proxy does
// (pkg/proxy/metrics/metrics.go).
var elsewhere = []string{"up", "process_resident_memory_bytes", "kubeproxy_network_programming_duration_seconds"}

// namesMetrics tells whether every metric of a query is there, in docs/metrics.md or elsewhere.
func namesMetrics(t *testing.T, page, where, expr string) {
	t.Helper()
	// What has labels or a range is a metric; so is what begins as ours do.
	names := regexp.MustCompile(`[a-z_]+(?:\{|\[)|svcproxy_\w+`).FindAllString(expr, -1)
	if len(names) == 0 {
		t.Errorf("%s: %s has no metric", where, expr)
	}
	for _, name := range names {
		name = strings.TrimSuffix(strings.TrimRight(name, "{["), "_bucket")
		if !strings.Contains(page, "| `"+name+"` |") && !slices.Contains(elsewhere, name) {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
}
