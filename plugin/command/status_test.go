// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	versions "github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
)

// agents is an API server with the nodes worker-1 to worker-12 and what their agents have published: the first three
// have findings.
type agents struct {
	without int    // how many of the last nodes have no report
	text    string // in place of the list of reports
	code    int    // of the answer to it; 0: 200
	hostile string // in every text of the reports
	wrong   int    // nodes with findings
	pages   int    // how many were asked for
}

// answer serves nodes and reports; the Services are those of the snapshot broken.
func (a *agents) answer(t *testing.T) func(w http.ResponseWriter, r *http.Request) bool {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Accept") == "" {
			t.Errorf("%s is asked for in any form", r.URL)
		}
		var out string
		switch {
		case r.URL.Path == "/api/v1/nodes":
			var items []string
			for i := range 12 {
				kernel := "6.1.0"
				if i < 3 {
					kernel = "5.10.0"
				}
				items = append(items, fmt.Sprintf(`{"metadata":{"name":"worker-%d","uid":"uid-%d"},"status":{"nodeInfo":`+
					`{"kernelVersion":%q}}}`, i+1, i+1, kernel))
			}
			out = `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
		case r.URL.Path == nodereport.Path && a.text != "":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(max(a.code, http.StatusOK))
			out = a.text
		case r.URL.Path == nodereport.Path:
			a.pages++
			from, more := 0, "more"
			if r.URL.Query().Get("continue") == "more" {
				from, more = 6, ""
			}
			var items []string
			for i := from; i < min(from+6, 12-a.without); i++ {
				items = append(items, a.report(t, i))
			}
			out = fmt.Sprintf(`{"kind":"NodeReportList","apiVersion":"svcproxy.dev/v1alpha1","metadata":{"continue":%q},`+
				`"items":[%s]}`, more, strings.Join(items, ","))
		default:
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(out)); err != nil {
			t.Log(err)
		}
		return true
	}
}

// report is the object of a node.
func (a *agents) report(t *testing.T, i int) string {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	o := map[string]any{
		"metadata": map[string]any{
			"name":            fmt.Sprintf("worker-%d", i+1),
			"ownerReferences": []any{map[string]any{"uid": fmt.Sprintf("uid-%d", i+1)}},
		},
	}
	s := map[string]any{
		"agent":   map[string]any{"protocol": versions.Protocol, "build": "v1"},
		"verdict": "Match", "renewedAt": now, "renewSeconds": 180, "judgedAt": now, "findingsTotal": 0,
		"mode":  map[string]any{"actual": "iptables" + a.hostile, "health": "healthy" + a.hostile},
		"paths": map[string]any{"total": 20, "matched": 20},
	}
	if i < a.wrong {
		s["verdict"], s["findingsTotal"] = "Mismatch", 2
		var findings []any
		for _, name := range []string{"web", "frontend"} {
			findings = append(findings, map[string]any{
				"code": "MissingEndpoint", "severity": "error", "namespace": "shop", "service": name, "paths": 2,
				"since": now.Add(-time.Duration(i+1) * time.Hour),
			})
		}
		s["findings"] = findings
	}
	if a.hostile != "" {
		s["error"] = a.hostile
		s["findings"] = []any{map[string]any{
			"code": a.hostile, "severity": "error", "namespace": a.hostile, "service": a.hostile,
		}}
		if i%2 == 0 {
			delete(s, "findings")
		}
	}
	o["status"] = s
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// statusWith runs status against an API server.
func (a *agents) statusWith(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	server := apiServer(t, nil, a.answer(t))
	config := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: "+
		"{cluster: k}\nclusters:\n- name: k\n  cluster: {server: %q}\n", server)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return runWith(t, config, append([]string{"status"}, args...)...)
}

// What the agents have found is grouped, over all pages of the list, with what the nodes share; exit codes are those of
// the other commands.
func TestStatus(t *testing.T) {
	a := &agents{wrong: 3}
	code, stdout, stderr := a.statusWith(t)
	if code != run.ExitMismatch || stderr != "" || a.pages != 2 {
		t.Errorf("%d, %d pages: %s", code, a.pages, stderr)
	}
	for _, want := range []string{
		"Nodes    12: 9 right, 3 wrong\n", "\nMISMATCH  MissingEndpoint  shop/frontend, shop/web\n",
		"\n  nodes  3 of 12 nodes: worker-[1-3]\n", " (3h ago), first on worker-3\n",
		"\n  shared kernel is 5.10.0: 3 of these 3 nodes, 0 of the other 9\n",
		"\nNext     kubectl svcproxy trace frontend -n shop --node worker-3\n",
		"\nExplain  kubectl svcproxy explain MissingEndpoint\n",
		"\nMISMATCH: 2 findings, on 3 of 12 nodes\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	_, stdout, _ = a.statusWith(t, "-o", "json")
	if strings.Contains(stdout, ": null") { // the only way in which a type can depart from its schema
		t.Errorf("a list is null:\n%s", stdout)
	}
	for _, c := range []struct {
		agents agents
		args   string
		code   int
		last   string
		stderr string
	}{
		{agents{}, "", run.ExitRight, "MATCH: nothing is wrong, on 12 of 12 nodes, as their agents judged them", ""},
		{
			agents{without: 2},
			"", run.ExitNotInspected,
			"UNKNOWN: 2 of 12 nodes not known, so nothing is claimed of the cluster", "",
		},
		{
			agents{without: 2, wrong: 1},
			"", run.ExitMismatch,
			"MISMATCH: 2 findings, on 1 of 12 nodes; 2 of 12 nodes not known", "",
		},
		{agents{wrong: 3}, "shop/web", run.ExitMismatch, "MISMATCH: 1 finding with shop/web, on 3 of 12 nodes", ""},
		{
			agents{wrong: 3},
			"admin -n shop", run.ExitRight,
			"MATCH: nothing is wrong with shop/admin, on 12 of 12 nodes, as their agents judged them", "",
		},
		{agents{wrong: 2}, "-o name", run.ExitMismatch, "node/worker-2", ""},
		{
			agents{without: 1},
			"-o name", run.ExitNotInspected, "node/worker-12",
			"error: node worker-12 is not known: there is no report of it",
		},
		{agents{wrong: 3}, "-o jsonpath={.summary.mismatched}", run.ExitMismatch, "3", ""},
		{agents{}, "wbe -n shop", run.ExitUsage, "", `service "wbe" not found in namespace "shop"; did you mean web?`},
		{agents{}, "a b", run.ExitUsage, "", "status takes one Service at most, and 2 were given"},
		{agents{}, "-l a,,=", run.ExitUsage, "", `--selector "a,,="`},
		{agents{}, "-o html", run.ExitUsage, "", "-o html is not an output format of this command"},
		{
			agents{text: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, code: 404},
			"",
			run.ExitNotInspected, "",
			"error: the cluster has no reports of agents (nodereports): install the agents with kubectl apply -k deploy",
		},
		{
			agents{
				text: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`,
				code: 403,
			},
			"", run.ExitNotInspected, "", "(deploy/rbac.yaml of kubectl svcproxy grants it)",
		},
		{agents{text: `{"kind":"List"}`}, "", run.ExitNotInspected, "", `list of nodereports is of kind "List"`},
		{agents{text: `nothing`}, "", run.ExitNotInspected, "", "list of nodereports cannot be read"},
	} {
		code, stdout, stderr := c.agents.statusWith(t, strings.Fields(c.args)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if last := lines[len(lines)-1]; code != c.code || last != c.last || !strings.Contains(stderr, c.stderr) ||
			c.stderr == "" && stderr != "" {
			t.Errorf("%+v %s: %d, %q, %q; want %d, %q, %q", c.agents, c.args, code, last, stderr, c.code, c.last, c.stderr)
		}
	}
}

// Whatever reports hold, no order reaches a terminal, and no line is theirs.
func TestStatusOfHostileReports(t *testing.T) {
	for _, format := range []string{"table", "wide", "json", "yaml", "name", "jsonpath={.nodes[*].error}"} {
		a := &agents{hostile: "\x1b]0;x\x07\nMATCH: all is right\u202e\x9b31m"}
		code, stdout, stderr := a.statusWith(t, "-o", format)
		if code != run.ExitNotInspected {
			t.Errorf("%s: exit code %d", format, code)
		}
		for _, bad := range []string{"\x1b", "\x07", "\u202e", "\x9b", "\nMATCH"} {
			if strings.Contains(stdout+stderr, bad) {
				t.Errorf("%s: %q is in %q", format, bad, stdout+stderr)
			}
		}
	}
}
