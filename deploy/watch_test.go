// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The agent reads what kube-proxy reads and no more, and is the helper of deploy/daemonset but for what it needs
// besides: the pod network, its own token, the name of its node, a port of its pod.
func TestWatch(t *testing.T) {
	objects := render(t, "watch")
	want := []string{
		"ClusterRole /svcproxy-watch", "ClusterRoleBinding /svcproxy-watch",
		"CustomResourceDefinition /nodereports.svcproxy.dev", "DaemonSet svcproxy/svcproxy-watch",
		"NetworkPolicy svcproxy/svcproxy-watch", "ServiceAccount svcproxy/svcproxy-watch",
		"ValidatingAdmissionPolicy /svcproxy-nodereport", "ValidatingAdmissionPolicyBinding /svcproxy-nodereport",
	}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
	for _, r := range get[*rbacv1.ClusterRole](t, objects, "ClusterRole /svcproxy-watch").Rules {
		verbs, kinds := []string{"list", "watch"}, []string{"services", "nodes", "endpointslices"}
		if slices.Equal(r.APIGroups, []string{"svcproxy.dev"}) {
			verbs, kinds = []string{"get", "create", "update"}, []string{nodereport.Resource}
		}
		for _, kind := range r.Resources {
			if !slices.Equal(r.Verbs, verbs) || !slices.Contains(kinds, kind) {
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

// What an agent publishes is what the schema of its kind takes, however little room there is; what it never writes is
// refused.
func TestTheSchemaOfReports(t *testing.T) {
	crd := get[*unstructured.Unstructured](t, render(t, "watch"), "CustomResourceDefinition /nodereports.svcproxy.dev")
	spec, _ := crd.Object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any) // with integers, which unstructured's own functions do not take
	if len(versions) != 1 {
		t.Fatalf("%v", versions)
	}
	version := versions[0].(map[string]any)
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	if got := group + "/" + version["name"].(string); got != nodereport.APIVersion || kind != nodereport.Kind ||
		plural != nodereport.Resource {
		t.Errorf("it is %s %s %s", got, kind, plural)
	}
	text, err := json.Marshal(version["schema"].(map[string]any)["openAPIV3Schema"])
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("crd.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("crd.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(o *nodereport.Object) error {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	now := metav1.Now()
	o := &nodereport.Object{Status: nodereport.Status{
		Agent:   peer.Peer{Protocol: peer.Protocol, Build: "v1.2.3"},
		Verdict: report.Unknown, RenewedAt: now, RenewSeconds: 180, JudgedAt: &now, Error: strings.Repeat("e", 600),
		Mode: nodereport.ModeOf(&report.Mode{
			Actual: "iptables", LastSync: "2026-11-20T12:00:00Z", Values: slices.Repeat([]report.Value{
				{Name: strings.Repeat("n", 64), Value: strings.Repeat("v", 128)},
			}, 30),
		}),
	}}
	var findings []nodereport.Finding
	for i := range 3000 {
		findings = append(findings, nodereport.Finding{
			Code: fmt.Sprintf("Code%d", i%40), Severity: []report.Severity{report.Error, report.Warn, report.Info}[i%3],
			Namespace: strings.Repeat("n", 63), Service: fmt.Sprintf("web-%d", i), Paths: i, Since: &now,
		})
	}
	o.Fit(findings)
	if err := valid(o); err != nil {
		t.Error(err)
	}
	if len(o.Status.Folded) == 0 || len(o.Status.Findings) == 0 {
		t.Errorf("%d findings and %d counts", len(o.Status.Findings), len(o.Status.Folded))
	}
	for name, change := range map[string]func(s *nodereport.Status){
		"a verdict":     func(s *nodereport.Status) { s.Verdict = "Fine" },
		"a long error":  func(s *nodereport.Status) { s.Error = strings.Repeat("e", 513) },
		"many findings": func(s *nodereport.Status) { s.Findings = slices.Repeat(s.Findings[:1], 81) },
		"many counts":   func(s *nodereport.Status) { s.Folded = slices.Repeat(s.Folded[:1], 17) },
		"a name": func(s *nodereport.Status) {
			s.Findings = []nodereport.Finding{{Code: "A", Severity: "error", Service: "\x1b"}}
		},
		"never due": func(s *nodereport.Status) { s.RenewSeconds = 86400 },
	} {
		other := *o
		change(&other.Status)
		if valid(&other) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
