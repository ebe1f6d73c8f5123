// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/test/tenant"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// othersIn is what a report says of the paths of Services other than a tenant's, and of the node.
func othersIn(t *testing.T, r *report.NodeReport) string {
	t.Helper()
	var out []any
	for i := range r.Paths {
		if p := &r.Paths[i]; p.Service.Namespace != tenant.Namespace {
			out = append(out, p)
		}
	}
	for i := range r.Findings {
		out = append(out, &r.Findings[i])
	}
	text, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What one tenant writes costs other Services nothing: all that is said of them is the same, byte for byte. The
// tenant's own Services are judged, or Unknown for what they cost: those of whose cases that says so here. How much is
// expanded is counted: the paths, and the endpoints that are expected on them.
func TestATenantCostsNoOthersTheirVerdict(t *testing.T) {
	testutil.Long(t)
	const mostPaths, mostEndpoints = 20_000, 1_000_000
	judged := map[string]bool{ // cases whose Services are all judged; the others are not, all or some
		"250 Services at one external IP": true, "2,000 Services at one external IP": true,
		"250 Services at one external IP, with rules": true, "2,000 Services at one external IP, with rules": true,
		"1,000 Services that select 2,000 pods": true, "one Service of 20,000 endpoints, with rules": true,
		"session affinity, 3,000 endpoints, with rules": true,
	}
	beyond := []string{
		"100 ports, 20 slices of 1,000 endpoints", "1,000 ports, 1,000 external IPs", "20,000 source ranges, 500 addresses",
		"100 ports, 1,000 source ranges", "100 addresses, 100 ports, 100 source ranges", "an endpoint in 5 slices, 100 ports",
		"1,000 endpoints, 5,000 addresses, with rules", "5,000 endpoints on the node, with rules",
	}
	base := openCaptured(t, "iptables")
	delete(base.files, snapshot.NFTFile) // the rules once more
	run := func(c *tenant.Case) report.NodeReport {
		cluster, files := base.cluster, base.files
		if c != nil {
			cluster, files = c.Beside(base.cluster, base.files)
		}
		return Files(cluster, snapshot.NewNode("node1", files), Request{
			Backwards: true, Matching: true, PerPathService: true,
		})
	}
	alone := run(nil)
	want := othersIn(t, &alone)
	found := 0
	for i := range tenant.Cases {
		c := &tenant.Cases[i]
		known := judged[c.Name] || slices.Contains(beyond, c.Name)
		if !known && os.Getenv("SVCPROXY_TENANTS") != "all" {
			continue
		}
		if known {
			found++
		}
		t.Run(c.Name, func(t *testing.T) {
			r := run(c)
			firstDifference(t, want, othersIn(t, &r)) // of what is said of others
			own, endpoints, left := 0, 0, map[string]bool{}
			for k := range r.Paths {
				p := &r.Paths[k]
				if p.Service.Namespace != tenant.Namespace {
					continue
				}
				own, endpoints = own+1, endpoints+len(p.Expected.Endpoints)
				if len(p.Findings) > 0 && p.Findings[0].Code == NotJudged {
					left[p.Service.Name] = true
					if p.Verdict != report.Unknown || !strings.Contains(p.Findings[0].Message, "more than ") {
						t.Errorf("%s is %s: %s", p.Service.Name, p.Verdict, p.Findings[0].Message)
					}
				}
			}
			if !known {
				return
			}
			if own > mostPaths || endpoints > mostEndpoints {
				t.Errorf("%d paths with %d endpoints were judged", own, endpoints)
			}
			if len(left) == 0 != judged[c.Name] {
				t.Errorf("not judged: %v", slices.Sorted(maps.Keys(left)))
			}
			if len(left) > 0 && r.Verdict == report.Match {
				t.Error("the node is a match")
			}
		})
	}
	if found != len(judged)+len(beyond) {
		t.Errorf("%d cases were found of %d", found, len(judged)+len(beyond))
	}
}

// Rules for a Service that is not judged are not stale, nor are chains of its endpoints left over.
func TestRulesOfAServiceThatIsNotJudgedAreNotStale(t *testing.T) {
	base := openCaptured(t, "iptables")
	i := slices.IndexFunc(tenant.Cases, func(c tenant.Case) bool {
		return c.Name == "1,000 endpoints, 5,000 addresses, with rules"
	})
	cluster, files := tenant.Cases[i].Beside(base.cluster, base.files)
	for _, left := range []bool{false, true} {
		changed := maps.Clone(files)
		if left { // no packet gets to the chains of endpoints
			var out strings.Builder
			for line := range strings.Lines(string(changed[v4])) {
				if !has(line, "-A KUBE-SVC-", tenant.Namespace+"/", "-> ") {
					out.WriteString(line)
				}
			}
			changed[v4] = []byte(out.String())
		}
		r := Files(cluster, snapshot.NewNode("node1", changed), Request{Backwards: true, PerPathService: true})
		for _, f := range r.Findings {
			if f.Code == StaleService || f.Code == OrphanChain {
				t.Errorf("%s %s: %s", f.Code, f.Subject, f.Message)
			}
		}
	}
}

// A judgement that is ended says of every Service what it found, or that it was not judged.
func TestAJudgementThatIsEnded(t *testing.T) {
	w := openCaptured(t, "iptables")
	done := make(chan struct{})
	asked := 0
	served := map[string]bool{}
	whole := w.run()
	for i := range whole.Paths {
		served[whole.Paths[i].Service.Name] = true
	}
	r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
		Matching: true, PerPathService: true, Done: done,
		Select: func(f expect.Frontend) bool {
			// Workers ask at the same time, each for another Service.
			if f.Service.Name == "lb" && f.Kind == expect.ClusterIP && asked == 0 {
				asked++
				close(done)
			}
			return true
		},
	})
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	left, judged := 0, 0
	for i := range r.Paths {
		p := &r.Paths[i]
		delete(served, p.Service.Name)
		switch {
		case len(p.Findings) > 0 && p.Findings[0].Code == NotJudged:
			left++
			if p.Verdict != report.Unknown {
				t.Errorf("%s is %s", p.Service.Name, p.Verdict)
			}
		case p.Verdict != report.ByDesign:
			judged++
		}
	}
	if left == 0 || judged == 0 || len(served) > 0 || r.Verdict != report.Unknown {
		t.Errorf("%d were judged, %d were not, nothing is said of %v; the node is %s", judged, left, served, r.Verdict)
	}

	closed := make(chan struct{})
	close(closed)
	if r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{Done: closed}); r.Error == "" ||
		r.Verdict != report.Unknown {
		t.Errorf("ended before it began: %s, %q", r.Verdict, r.Error)
	}
}
