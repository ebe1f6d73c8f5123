// SPDX-License-Identifier: Apache-2.0

//go:build linux && prometheus

// Package alerts_test tries the alerts and the dashboard of deploy/watch with Prometheus itself. Its programs are named
// by SVCPROXY_PROMTOOL and SVCPROXY_PROMETHEUS (hack/test.sh nightly alerts builds them).
package alerts_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const monitoring = "../../deploy/watch/monitoring/"

// program returns a program that a variable names.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s does not name a program (hack/tool.sh builds it)", variable)
	}
	return path
}

// writeRules writes the rules as a Prometheus without the operator reads them, and returns the file.
func writeRules(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(monitoring + "rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.json") // JSON is YAML
	if err := os.WriteFile(path, object.Spec, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// promtool runs promtool in a folder.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "SVCPROXY_PROMTOOL"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// promtool finds no fault with the rules, and they fire when alerts.yaml says so, and not before.
func TestAlerts(t *testing.T) {
	rules := writeRules(t)
	dir := filepath.Dir(rules)
	tests, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "alerts.yaml"), tests, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "rules", "--lint=all", "--lint-fatal", "rules.json")
	promtool(t, dir, "test", "rules", "alerts.yaml")
}

// Every query of the dashboard is one, with Grafana's variables filled in.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile(monitoring + "dashboard.json")
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
	queries := 0
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			queries++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").Replace(q.Expr)
			promtool(t, ".", "promql", "--experimental", "format", expr)
		}
	}
	if queries == 0 {
		t.Error("there is no query")
	}
}
