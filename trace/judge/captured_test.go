// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// capturedNode is a captured node and cluster that a test may damage.
type capturedNode struct {
	t       *testing.T
	cluster *snapshot.Cluster
	files   map[string][]byte
}

// openSnapshot opens a snapshot of the repository.
func openSnapshot(t testing.TB, dir, node string) (*snapshot.Cluster, *snapshot.Node) {
	t.Helper()
	return snap.Node(t, filepath.Join("..", "..", dir), node)
}

func openCaptured(t *testing.T, name string) *capturedNode {
	t.Helper()
	c, n := openSnapshot(t, filepath.Join("testdata", "snapshots", name), "node1")
	w := &capturedNode{t: t, cluster: c, files: snap.Files(t, n)}
	// One file a family, so that a fault need be put into one place only.
	for _, v := range []string{"iptables", "ip6tables"} {
		delete(w.files, v+"-nft-save.txt")
		delete(w.files, v+"-legacy-save.txt")
	}
	return w
}

// run judges the node. In what is said of a mismatch in a few words, what happens must never read as what should; and
// what is Unknown has a code that says why.
func (w *capturedNode) run() report.NodeReport {
	r := Files(
		w.cluster,
		snapshot.NewNode("node1", w.files),
		Request{Backwards: true, Matching: true, PerPathService: true},
	)
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Verdict == report.Mismatch && p.Expected.Summary == p.Actual.Summary {
			w.t.Errorf("%s: the path is a mismatch, and expected and actual are both %q", pathKey(p), p.Actual.Summary)
		}
		if p.Verdict == report.Unknown && len(p.Findings) == 0 {
			w.t.Errorf("%s: the path is Unknown, and no finding says why", pathKey(p))
		}
		for k := range p.Findings {
			w.filledIn(&p.Findings[k])
		}
	}
	for i := range r.Findings {
		w.filledIn(&r.Findings[i])
	}
	return r
}

// filledIn tests that no placeholder of a remedy was printed as it is ("{node}").
func (w *capturedNode) filledIn(f *report.Finding) {
	for _, text := range append([]string{f.Message, f.Remedy, f.Effect}, commandLines(f)...) {
		for _, name := range []string{"{node}", "{where}", "{subject}", "{actual}"} {
			if strings.Contains(text, name) {
				w.t.Errorf("%s says %s: %s", f.Code, name, text)
			}
		}
	}
}

func commandLines(f *report.Finding) []string {
	var out []string
	for _, c := range f.Commands {
		out = append(out, c.Line)
	}
	return out
}

const v4, v6 = "iptables-save.txt", "ip6tables-save.txt"

// edit changes the lines of a save file for which f returns something else; every edit must change something.
func (w *capturedNode) edit(file string, f func(line string) []string) {
	w.t.Helper()
	var out []string
	changed := false
	for line := range strings.Lines(string(w.files[file])) {
		line = strings.TrimSuffix(line, "\n")
		got := f(line)
		changed = changed || len(got) != 1 || got[0] != line
		out = append(out, got...)
	}
	if !changed {
		w.t.Fatalf("the fault changes nothing in %s", file)
	}
	w.files[file] = []byte(strings.Join(out, "\n") + "\n")
}

func has(line string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
}

// drop removes the rules that contain all parts.
func (w *capturedNode) drop(file string, parts ...string) {
	w.t.Helper()
	w.edit(file, func(l string) []string {
		if has(l, parts...) && !strings.HasPrefix(l, ":") {
			return nil
		}
		return []string{l}
	})
}

// replace changes text in the rules that contain all parts.
func (w *capturedNode) replace(file, old, repl string, parts ...string) {
	w.t.Helper()
	w.edit(file, func(l string) []string {
		if has(l, parts...) {
			return []string{strings.Replace(l, old, repl, 1)}
		}
		return []string{l}
	})
}

// table runs f on the lines of one table only.
func (w *capturedNode) table(file, table string, f func(line string) []string) {
	w.t.Helper()
	in := false
	w.edit(file, func(l string) []string {
		if strings.HasPrefix(l, "*") {
			in = l == "*"+table
		}
		if !in {
			return []string{l}
		}
		return f(l)
	})
}

// first puts a rule before the first one of a chain, or before COMMIT.
func (w *capturedNode) first(file, table, chain, rule string) {
	w.t.Helper()
	done := false
	w.table(file, table, func(l string) []string {
		if !done && (strings.Contains(l, "-A "+chain+" ") || l == "COMMIT") {
			done = true
			return []string{"-A " + chain + " " + rule, l}
		}
		return []string{l}
	})
}

// last puts a rule behind all of a table.
func (w *capturedNode) last(file, table, rule string) {
	w.t.Helper()
	w.table(file, table, func(l string) []string {
		if l == "COMMIT" {
			return []string{rule, l}
		}
		return []string{l}
	})
}

// policy makes a base chain drop what it does not accept.
func (w *capturedNode) policy(file, table, chain string) {
	w.t.Helper()
	w.table(file, table, func(l string) []string {
		return []string{strings.Replace(l, ":"+chain+" ACCEPT", ":"+chain+" DROP", 1)}
	})
}

// addTable appends a table to a save file.
func (w *capturedNode) addTable(file, text string) { w.files[file] = append(w.files[file], text...) }

func (w *capturedNode) service(name string) *corev1.Service {
	for _, s := range w.cluster.Services {
		if s.Namespace+"/"+s.Name == name {
			return s
		}
	}
	w.t.Fatalf("no Service %s", name)
	return nil
}

func (w *capturedNode) slice(name string) *discoveryv1.EndpointSlice {
	for _, s := range w.cluster.EndpointSlices {
		if s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName] == name {
			return s
		}
	}
	w.t.Fatalf("no EndpointSlice of %s", name)
	return nil
}

func (w *capturedNode) sep(port, ep string) string {
	return kubeproxy.EndpointChain(port, corev1.ProtocolTCP, netip.MustParseAddrPort(ep))
}

// severities are those of the findings by docs/findings.md.
var severities = sync.OnceValues(func() (map[string]report.Severity, error) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "findings.md"))
	out := map[string]report.Severity{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)\n\n\*(\w+)\*`).FindAllStringSubmatch(string(page), -1) {
		out[m[1]] = report.Severity(m[2])
	}
	return out, err
})

// facts says for each path, and for the node, which codes were found: "shop/np NodePort 10.77.0.11 external" → codes. A
// severity other than docs/findings.md has for a code stands behind it, "ConntrackFull (warning)".
func facts(r report.NodeReport) map[string]string {
	out := map[string]string{}
	add := func(key string, fs []report.Finding) {
		var codes []string
		for _, f := range fs {
			if f.Code != NotCollected && f.Code != FileNotRead && f.Code != RuleNotEvaluated { // TestUnknownHasACode
				code := f.Code
				if documented, _ := severities(); documented[code] != f.Severity {
					code += " (" + string(f.Severity) + ")"
				}
				codes = append(codes, strings.TrimSpace(code+" "+f.Subject))
			}
		}
		slices.Sort(codes)
		out[key] = strings.Join(slices.Compact(codes), "; ")
	}
	add("node", r.Findings)
	for _, p := range r.Paths {
		key := fmt.Sprintf(
			"%s/%s %s %s:%d/%s from %s",
			p.Service.Namespace,
			p.Service.Name,
			p.Frontend.Kind,
			p.Frontend.Address,
			p.Frontend.Port,
			p.Frontend.Protocol,
			p.Origin.Kind,
		)
		if p.Frontend.Kind == "LoadBalancerIP" && p.Origin.Kind == "external" {
			key += " " + p.Origin.Address
		}
		if _, twice := out[key]; twice {
			key += " " + p.Origin.Address
		}
		add(key, p.Findings)
		out[key] = strings.TrimSuffix(string(p.Verdict)+": "+out[key], ": ")
	}
	return out
}

// changes returns what a fault changed in the facts, a line each.
func changes(before, after map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(after)) {
		is := after[k]
		if k == "node" { // what is noted of the undamaged node stays
			was := strings.Split(before[k], "; ")
			is = strings.Join(slices.DeleteFunc(strings.Split(is, "; "), func(s string) bool {
				return slices.Contains(was, s)
			}), "; ")
		}
		if after[k] != before[k] {
			out = append(out, k+" → "+is)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[k]; !ok {
			out = append(out, k+" → gone")
		}
	}
	return out
}

func TestFixturesHaveNoMismatch(t *testing.T) {
	for _, name := range []string{
		"iptables", "iptables-legacy", "real-2node-iptables", "nftables", "real-2node-nftables", "ipvs",
	} {
		t.Run(name, func(t *testing.T) {
			r := openCaptured(t, name).run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			for _, p := range r.Paths {
				if p.Verdict != report.Match && p.Verdict != report.ByDesign {
					t.Errorf(
						"%s/%s %+v from %+v: %s %+v\nexpected %+v\nactual %+v",
						p.Service.Namespace,
						p.Service.Name,
						p.Frontend,
						p.Origin,
						p.Verdict,
						p.Findings,
						p.Expected,
						p.Actual,
					)
				}
			}
			for _, f := range r.Findings {
				if f.Severity != report.Info {
					t.Errorf("node: %+v", f)
				}
			}
			t.Logf("%+v", r.Summary)
			if r.Summary.Matched == 0 {
				t.Error("nothing matched: nothing was judged")
			}
		})
	}
}

func TestEveryServiceOfTheFixtureIsJudged(t *testing.T) {
	w := openCaptured(t, "iptables")
	seen := map[string]bool{}
	for _, p := range w.run().Paths {
		seen[p.Service.Namespace+"/"+p.Service.Name] = true
	}
	for _, s := range w.cluster.Services {
		if !seen[s.Namespace+"/"+s.Name] {
			t.Errorf("Service %s/%s has no path in the report", s.Namespace, s.Name)
		}
	}
}

// legacyCopy loads the same rules into the other backend as well.
func (w *capturedNode) legacyCopy() {
	w.files["iptables-nft-save.txt"] = w.files[v4]
	w.files["iptables-legacy-save.txt"] = bytes.ReplaceAll(w.files[v4], []byte(" (nf_tables)"), nil)
	delete(w.files, v4)
}
