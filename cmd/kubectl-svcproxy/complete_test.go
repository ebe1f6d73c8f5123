// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMain makes this program the plugin where it is run by the plugin's name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl-svcproxy" {
		main()
	}
	m.Run()
}

// shell is a machine with kubectl, the plugin and its completion on the PATH.
type shell struct {
	kubectl, completion string // paths
	env                 []string
}

func newShell(t *testing.T, server string) *shell {
	t.Helper()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed:", err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script, err := filepath.Abs("../../completion/kubectl_complete-svcproxy")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{program: "kubectl-svcproxy", script: "kubectl_complete-svcproxy"} {
		if err := os.Symlink(from, filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "config")
	kubeconfig := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"here",
		"clusters":[{"name":"c","cluster":{"server":%q}}],
		"contexts":[{"name":"here","context":{"cluster":"c","namespace":"shop"}}]}`, server)
	if err := os.WriteFile(config, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return &shell{
		kubectl, filepath.Join(dir, "kubectl_complete-svcproxy"),
		append(os.Environ(), "PATH="+dir+":"+filepath.Dir(kubectl)+":/usr/bin:/bin", "KUBECONFIG="+config, "HOME="+dir),
	}
}

// tab presses TAB behind a line of words, of which the last is what is completed. It returns what is offered, and the
// directive.
func (s *shell) tab(t *testing.T, words ...string) (offered []string, directive string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.kubectl, append([]string{"__complete", "svcproxy"}, words...)...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = s.env, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", words, err, stderr.String())
	}
	// kubectl's own last words are the only ones.
	for line := range strings.Lines(stderr.String()) {
		if !strings.HasPrefix(line, "Completion ended with directive") && !strings.HasPrefix(line, "[Debug] ") {
			t.Errorf("%v: on stderr: %s", words, line)
		}
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if d, ok := strings.CutPrefix(line, ":"); ok {
			return offered, d
		}
		choice, _, _ := strings.Cut(line, "\t")
		offered = append(offered, choice)
	}
	t.Fatalf("%v: there is no directive in %q", words, out)
	return nil, ""
}

// apiServer is a stand-in that lists what completion asks for.
func apiServer(t *testing.T) *httptest.Server {
	t.Helper()
	service := func(ns, name string, ports ...corev1.ServicePort) corev1.Service {
		return corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{Ports: ports},
		}
	}
	pod := func(name, node string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: phase},
		}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	kind := func(k string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: k} }
	lists := map[string]any{
		"/api/v1/namespaces/shop/services": corev1.ServiceList{TypeMeta: kind("ServiceList"), Items: []corev1.Service{
			service("shop", "web", corev1.ServicePort{Name: "http", Port: 80}, corev1.ServicePort{Name: "https", Port: 443}),
			service("shop", "api", corev1.ServicePort{Port: 80}),
		}},
		"/api/v1/namespaces/other/services": corev1.ServiceList{TypeMeta: kind("ServiceList"), Items: []corev1.Service{
			service("other", "away"),
		}},
		"/api/v1/namespaces/shop/pods": corev1.PodList{TypeMeta: kind("PodList"), Items: []corev1.Pod{
			pod("web-1", "worker-1", corev1.PodRunning), pod("web-2", "worker-2", corev1.PodRunning),
			pod("job", "worker-1", corev1.PodSucceeded), pod("new", "", corev1.PodPending),
		}},
		"/api/v1/nodes": corev1.NodeList{TypeMeta: kind("NodeList"), Items: []corev1.Node{
			{ObjectMeta: named("worker-2")}, {ObjectMeta: named("worker-1")}, {ObjectMeta: named("control")},
		}},
		"/api/v1/namespaces": corev1.NamespaceList{TypeMeta: kind("NamespaceList"), Items: []corev1.Namespace{
			{ObjectMeta: named("shop")}, {ObjectMeta: named("other")},
		}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, ok := lists[r.URL.Path]
		if !ok {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	return server
}

// The directives of cobra that are seen below.
const (
	anything = "0"
	noFile   = "4"
	noSpace  = "6" // and no file
)

// What kubectl itself gets to offer.
func TestKubectlCompletes(t *testing.T) {
	s := newShell(t, apiServer(t).URL)
	snapshot, err := filepath.Abs("../../examples/broken-node")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line      string // what stands behind kubectl svcproxy; its last word is completed
		want      []string
		directive string
	}{
		{"tra", []string{"trace"}, noFile},
		{"trace ", []string{"api", "web"}, noFile},
		{"trace -n other ", []string{"away"}, noFile},
		{"trace -n forbidden ", nil, noFile},
		{"trace w", []string{"web"}, noFile},
		{"trace svc/w", []string{"svc/web"}, noFile},
		{"trace web:", []string{"web:443", "web:80", "web:http", "web:https"}, noFile},
		{"trace svc/web:htt", []string{"svc/web:http", "svc/web:https"}, noFile},
		{"trace none:", nil, noFile},
		{"trace web ", nil, noFile},
		{"verify web ", []string{"api"}, noFile},
		{"resolve api:", []string{"api:80"}, noFile},
		{"trace web --node ", []string{"control", "worker-1", "worker-2"}, noFile},
		{"trace web --node worker-1,", []string{"worker-1,control", "worker-1,worker-2"}, noFile},
		{"trace web --node=w", []string{"worker-1", "worker-2"}, noFile},
		{"mode worker-1 w", []string{"worker-2"}, noFile},
		{"trace web --from ", []string{"external", "node", "node/", "pod", "pod/"}, noSpace},
		{"trace web --from pod/", []string{"pod/web-1", "pod/web-2"}, noFile},
		{"trace web --from node/", []string{"node/control", "node/worker-1", "node/worker-2"}, noFile},
		{"trace web --from pod/shop/w", []string{"pod/shop/web-1", "pod/shop/web-2"}, noFile},
		{"trace web --node worker-2 --from pod/", []string{"pod/web-2"}, noFile},
		{"trace web -n ", []string{"other", "shop"}, noFile},
		{"trace web --helper-namespace ", []string{"other", "shop"}, noFile},
		{"cleanup --helper-namespace ", []string{"other", "shop"}, noFile},
		{"trace web --context ", []string{"here"}, noFile},
		{"trace web --cluster ", []string{"c"}, noFile},
		{
			"trace web -o ",
			[]string{
				"table", "wide", "json", "yaml", "name", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file=", "html",
				"markdown", "mermaid",
			},
			noSpace,
		},
		{"trace web --security-profile ", []string{"privileged", "netadmin"}, noFile},
		{"trace web --image-pull-policy ", []string{"Always", "IfNotPresent", "Never"}, noFile},
		{"trace web --dry-run ", []string{"client", "none"}, noFile},
		{"trace web --image ", nil, noFile},
		{"version ", nil, noFile},
		{"trace web --kubeconfig ", nil, anything},
		{"trace web --snapshot ", nil, anything},
		{"dump -o ", []string{"tar.gz", "tgz"}, "8"},
		// Without a cluster.
		{"trace -n shop --snapshot " + snapshot + " fr", []string{"frontend"}, noFile},
		{"trace -n shop --snapshot " + snapshot + " web:", []string{"web:80", "web:http"}, noFile},
		{"trace web -n shop --snapshot " + snapshot + " --node ", []string{"worker-1"}, noFile},
		{
			"trace web -n shop --snapshot " + snapshot + " --from pod/web-7c9d8f6b5d-2",
			[]string{"pod/web-7c9d8f6b5d-2xkqp"},
			noFile,
		},
		{"trace web --snapshot " + snapshot + " -n ", []string{"default", "kube-system", "shop"}, noFile},
		{"trace --snapshot /nowhere ", nil, noFile},
	} {
		t.Run(tt.line, func(t *testing.T) {
			t.Parallel()
			got, directive := s.tab(t, strings.Split(tt.line, " ")...)
			if !slices.Equal(got, tt.want) || directive != tt.directive {
				t.Errorf("offered %q :%s, want %q :%s", got, directive, tt.want, tt.directive)
			}
		})
	}
}

// An API server that does not answer costs the person two seconds, and leaves nothing on the terminal.
func TestKubectlCompletesInTime(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-gone:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(gone)
	s := newShell(t, server.URL)
	// Not through kubectl: some ask the server something themselves, and wait.
	cmd := exec.CommandContext(t.Context(), s.completion, "trace", "")
	cmd.Env = s.env
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != ":"+noFile+"\n" {
		t.Errorf("it printed %q: %v", out, err)
	}
	// What is beyond two seconds is for starting programs on a busy machine.
	if d := time.Since(start); d < time.Second || d > 10*time.Second {
		t.Errorf("it took %v", d)
	}
}
