// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/command"
)

const root = "../.."

var (
	file  = filepath.Join(root, "docs", "report.schema.json")
	diffs = filepath.Join(root, "docs", "diff.schema.json")
	stats = filepath.Join(root, "docs", "status.schema.json")
)

func TestTheSchemaIsCurrent(t *testing.T) {
	for i, name := range []string{file, diffs, stats} {
		want, err := schema(documents[i])
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not current: make docs", name)
		}
	}
}

// What is printed of two snapshots, and of two nodes, is as the schema says.
func TestDiffsFollowTheSchema(t *testing.T) {
	s, err := jsonschema.NewCompiler().Compile(diffs)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func(name string) string { return filepath.Join(root, "testdata", filepath.FromSlash(name)) }
	for _, args := range [][]string{
		{"diff", snapshot("snapshots/iptables"), snapshot("snapshots/nftables")},
		{"diff", snapshot("endtoend/vxlan.tar.gz"), snapshot("endtoend/forward-drop.tar.gz")},
		{"diff", snapshot("snapshots/v1.31-nftables"), snapshot("snapshots/v1.30-iptables")},
		{"trace", "shop/web", "--compare", "node1,node2", "--snapshot", snapshot("endtoend/vxlan.tar.gz")},
	} {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		command.Main(t.Context(), append(args, "-o", "json"), streams, command.System{})
		diff, err := jsonschema.UnmarshalJSON(out)
		if err != nil {
			t.Errorf("%v: %v; %s", args, err, errOut)
			continue
		}
		if err := s.Validate(diff); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// compiled is the schema that is published.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What the commands print of every captured node is as the schema says.
func TestReportsFollowTheSchema(t *testing.T) {
	s := compiled(t)
	snapshots, err := filepath.Glob(filepath.Join(root, "testdata", "snapshots", "*", "cluster"))
	if err != nil || len(snapshots) == 0 {
		t.Fatalf("there is no snapshot: %v", err)
	}
	commands := [][]string{
		{"trace", "shop/web"}, {"trace", "shop/batch"}, {"verify", "-A", "--show-all"}, {"mode"},
	}
	for i := range commands {
		commands[i] = append(commands[i], "--snapshot", filepath.Join(root, "examples", "broken-node"))
	}
	for _, cluster := range snapshots {
		dir := filepath.Dir(cluster)
		commands = append(commands, []string{"verify", "-A", "--snapshot", dir}, []string{"mode", "--snapshot", dir})
	}
	for _, args := range commands {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		command.Main(t.Context(), append(args, "-o", "json"), streams, command.System{})
		report, err := jsonschema.UnmarshalJSON(out)
		if err != nil {
			t.Errorf("%v: %v; %s", args, err, errOut)
			continue
		}
		if err := s.Validate(report); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// The schema refuses a field and a verdict that there are not, and a report without a field.
func TestTheSchemaRefuses(t *testing.T) {
	s := compiled(t)
	const right = `{"apiVersion":"svcproxy.dev/v1alpha1","kind":"ModeReport","verdict":"Match","nodes":[],` +
		`"summary":{"paths":0,"matched":0,"mismatched":0,"byDesign":0,"unknown":0,"warnings":0}}`
	for text, valid := range map[string]bool{
		right: true,
		strings.Replace(right, "Match", "Fine", 1):                    false,
		strings.Replace(right, `"nodes"`, `"x":1,"nodes"`, 1):         false,
		strings.Replace(right, `"nodes":[],`, "", 1):                  false,
		strings.Replace(right, "svcproxy.dev/v1alpha1", "apps/v1", 1): false,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
