// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	versions "github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// endlessMemory is what a run may take at an API server whose answers do not end. It was 866 MB.
const endlessMemory = 300 << 20

// TestEndlessAPIServer runs the plugin, in a process of its own, at API servers that list without end: one clear error
// within the limits, growing buffers included.
func TestEndlessAPIServer(t *testing.T) {
	plugin := builtPlugin(t)
	long := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		name   string
		answer func(w io.Writer) error // one part of a list, after its beginning
		more   bool                    // the list ends, and another one follows
		want   string
	}{
		{"small objects", func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Repeat(`{"metadata":{"name":"a"}},`, 40_000))
			return err
		}, false, "expected"},
		{"one object", func(w io.Writer) error {
			_, err := io.WriteString(w, `{"metadata":{"name":"a","labels":{`+strings.Repeat(`"a":"`+long+`",`, 10))
			return err
		}, false, "expected"},
		{"pages of large objects", func(w io.Writer) error {
			for i := range 50 {
				if _, err := fmt.Fprintf(w, `{"metadata":{"name":"a%d","labels":{"x":"%s"}}},`, i, long); err != nil {
					return err
				}
			}
			return nil
		}, true, "expected"},
		{"pages of many objects", func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Repeat(`{"metadata":{"name":"a"}},`, 500))
			return err
		}, true, "expected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				kind, ok := map[string]string{
					"services": "ServiceList", "endpointslices": "EndpointSliceList", "nodes": "NodeList", "pods": "PodList",
				}[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
				if !ok {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				version := "v1"
				if kind == "EndpointSliceList" {
					version = "discovery.k8s.io/v1"
				}
				w.Header().Set("Content-Type", "application/json")
				_, err := io.WriteString(w, `{"kind":"`+kind+`","apiVersion":"`+version+`","metadata":{"continue":"more"},"items":[`)
				for err == nil {
					if err = tt.answer(w); tt.more && err == nil {
						_, _ = io.WriteString(w, `{"metadata":{"name":"last"}}]}`)
						return
					}
				}
			}))
			defer server.Close()
			code, stdout, stderr, memory, spent := measuredRun(t, plugin, "verify", "-A", "--all-nodes", "--server", server.URL)
			t.Logf("%d MB, %v: %s", memory>>20, spent.Round(time.Millisecond), strings.TrimSpace(stderr))
			if code == 0 || code == 1 || stdout != "" || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit code %d, stdout %.200q, stderr\n%.600s", code, stdout, stderr)
			}
			if memory > endlessMemory || spent > hostileTime {
				t.Errorf("%d MB and %v; want at most %d MB and %v", memory>>20, spent, endlessMemory>>20, hostileTime)
			}
		})
	}
}

// What status may cost with 10,000 nodes whose reports are as large as they may be: it was 212 s and 851 MB.
const (
	statusMemory = 400 << 20
	statusTime   = 15 * time.Second
)

// TestStatusOfTenThousandNodes: 80 findings on each node, of Services of its own, or of a part of the Services each.
func TestStatusOfTenThousandNodes(t *testing.T) {
	plugin := builtPlugin(t)
	const nodes = 10_000
	for name, service := range map[string]func(node, i int) int{
		"others on each node":      func(node, i int) int { return node*80 + i },
		"of a thousand, at random": func(node, i int) int { return (node*7919 + i*(1+node%997)*131) % 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			server := statusServer(t, nodes, service)
			code, stdout, stderr, memory, spent := measuredRun(t, plugin, "status", "--server", server)
			t.Logf("%d MB, %v", memory>>20, spent.Round(time.Millisecond))
			if code != run.ExitMismatch || !strings.Contains(stdout, "10000: 10000 wrong") {
				t.Errorf("exit code %d, %.300s\n%.300s", code, stdout, stderr)
			}
			if memory > statusMemory || spent > statusTime {
				t.Errorf("%d MB and %v; want at most %d MB and %v", memory>>20, spent, statusMemory>>20, statusTime)
			}
		})
	}
}

// statusServer serves Nodes and their NodeReports, page by page.
func statusServer(t *testing.T, nodes int, service func(node, i int) int) string {
	t.Helper()
	now := nodereport.TimeOf(time.Now())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		first, limit := 0, nodes
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &first)
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		last := min(first+limit, nodes)
		more := ""
		if last < nodes {
			more = fmt.Sprint(last)
		}
		items := make([]any, 0, last-first)
		kind, version := "NodeList", "v1"
		for i := first; i < last; i++ {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("node-%d.example.internal", i), UID: "u", CreationTimestamp: now,
				Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3), "pool": fmt.Sprint("pool-", i%17)},
			}}
			n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.KubeletVersion = "6.12.9", "v1.37.1"
			switch {
			case strings.HasSuffix(r.URL.Path, "/nodes"):
				items = append(items, n)
			case strings.HasSuffix(r.URL.Path, "/nodereports"):
				kind, version = nodereport.Kind+"List", "svcproxy.dev/v1alpha1"
				items = append(items, publishedOf(&n, now, func(k int) int { return service(i, k) }))
			default:
				w.WriteHeader(http.StatusNotFound)
				return
			}
		}
		err := json.NewEncoder(w).Encode(map[string]any{
			"kind": kind, "apiVersion": version, "metadata": map[string]string{"continue": more}, "items": items,
		})
		if err != nil {
			t.Log(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func publishedOf(n *corev1.Node, now metav1.Time, service func(i int) int) *nodereport.Object {
	o := &nodereport.Object{}
	o.Name = n.Name
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	s := &o.Status
	s.Agent.Protocol = versions.Protocol
	s.Verdict, s.RenewedAt, s.JudgedAt, s.RenewSeconds = report.Mismatch, now, &now, 300
	s.Paths.Total, s.Paths.Mismatched = 80, 80
	s.FindingsTotal = 80
	s.Mode = &nodereport.Mode{Actual: "iptables", KubeProxyVersion: "v1.37.1", LastSync: &now}
	for i := range 80 {
		s.Findings = append(s.Findings, nodereport.Finding{
			Code: "MissingEndpoint", Severity: report.Error, Namespace: fmt.Sprintf("team-%d", i%7),
			Service: fmt.Sprintf("service-with-a-name-%d", service(i)), Paths: 1, Since: &now,
		})
	}
	return o
}
