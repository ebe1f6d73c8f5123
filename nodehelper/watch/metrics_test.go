// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// exposed are the series of a scrape, with their values.
func exposed(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	out := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		if i := strings.LastIndex(line, " "); i > 0 && !strings.HasPrefix(line, "#") {
			out[line[:i]] = line[i+1:]
		}
	}
	return out
}

// aView has a value of everything.
func aView() *view {
	return &view{
		paths:    map[report.Verdict]int{report.Match: 7, report.Mismatch: 1},
		findings: map[series]int{{"MissingEndpoint", "error", "shop", "web"}: 1},
		mode:     "iptables", backend: "nft", version: "v1.36.3", synced: 1, at: zero, settling: 2, unread: 3,
	}
}

// docs/metrics.md has each metric, with what it says of itself, and nothing else has them.
func TestThePageListsAllMetrics(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `svcproxy_") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	want := make([]string, 0, len(declared))
	for _, d := range declared {
		want = append(want, "| `"+d.name+"` | "+d.kind+" | "+strings.Join(d.labels, ", ")+" | "+d.help+" |")
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table of docs/metrics.md has to be\n%s", strings.Join(want, "\n"))
	}
}

// What is declared is exported, of its kind and with its labels, and nothing else.
func TestAllDeclaredMetricsAreExported(t *testing.T) {
	m := newMetrics()
	m.show(aView())
	m.tracked = func() *snapshot.Tracked { return &snapshot.Tracked{} }
	m.latency.WithLabelValues(string(corev1.IPv4Protocol), "iptables").Observe(1)
	m.passes.WithLabelValues(reasonStart).Inc()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "svcproxy_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		got = append(got, fmt.Sprint(f.GetName(), " ", strings.ToLower(f.GetType().String()), " ", f.GetHelp(), labels))
	}
	for _, d := range declared {
		labels := slices.Sorted(slices.Values(d.labels))
		want = append(want, fmt.Sprint(d.name, " ", d.kind, " ", d.help, labels))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exported\n%s\ndeclared\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// However many Services have findings, the series are bounded, errors come before warnings, and the rest is counted.
func TestFindingsAreBounded(t *testing.T) {
	all := map[series]int{}
	for i := range 150 {
		all[series{"MissingEndpoint", "error", "shop", "web-" + strconv.Itoa(i)}] = 1
		all[series{"UnevenShare", "warning", "shop", "web-" + strconv.Itoa(i)}] = 2
	}
	out, folded := bounded(all)
	if len(out) != maxFindings+1 || folded != 100 {
		t.Errorf("%d series, %d folded", len(out), folded)
	}
	if n := out[series{"UnevenShare", "warning", foldedNamespace, ""}]; n != 200 {
		t.Errorf("%d paths are counted in the last series", n)
	}
	for s, n := range all {
		if s.severity == "error" && out[s] != n {
			t.Errorf("%v is missing", s)
		}
	}
}
