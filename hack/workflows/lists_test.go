// SPDX-License-Identifier: Apache-2.0

package workflows_test

import (
	"encoding/json"
	"go/build/constraint"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// list returns the names of a list of hack/test.sh.
func list(t *testing.T, name string) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "hack/test.sh", "list", name)
	c.Dir = root
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := json.Unmarshal(out, &names); err != nil || len(names) == 0 {
		t.Fatalf("%q: %v", out, err)
	}
	return slices.Sorted(slices.Values(names))
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(root + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Each step and shard of hack/steps.txt is a function of hack/test.sh, and each step is run by one job of the
// workflows.
func TestSteps(t *testing.T) {
	text := read(t, "hack/test.sh")
	for kind, name := range map[string]string{"step": "ci", "shard": "nightly"} {
		var functions []string
		for _, m := range regexp.MustCompile(`(?m)^`+kind+`_([a-z0-9-]+)\(\) \{$`).FindAllStringSubmatch(text, -1) {
			functions = append(functions, m[1])
		}
		slices.Sort(functions)
		if want := list(t, name); !slices.Equal(functions, want) {
			t.Errorf("hack/test.sh has the functions %v, hack/steps.txt %v", functions, want)
		}
	}
	var steps []string
	for name, text := range workflows(t) {
		var w workflow
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w.Permissions == nil {
			t.Errorf("%s does not say what it may do, and may do everything", name)
		}
		for job, j := range w.Jobs {
			steps = append(steps, j.Strategy.Matrix.Step...)
			for _, i := range j.Strategy.Matrix.Include {
				steps = append(steps, strings.Fields(i.Steps)...)
			}
			if j.Uses == "" && (j.Timeout == 0 || j.Timeout > 80) {
				t.Errorf("%s: job %s may take %d minutes", name, job, j.Timeout)
			}
		}
	}
	slices.Sort(steps)
	if want := list(t, "ci"); !slices.Equal(steps, want) {
		t.Errorf("the workflows run the steps %v, hack/test.sh %v", steps, want)
	}
}

// Each file of tests that needs a tag is run by a command of hack/test.sh that names the tag and the folder, and each
// module with tests by one that goes there.
func TestEveryTestIsRun(t *testing.T) {
	commands := strings.Split(regexp.MustCompile(`\\\n\s*`).ReplaceAllString(read(t, "hack/test.sh")+read(t, "Makefile"), ""), "\n")
	tools := regexp.MustCompile(`(?m)^tools=\((.*)\)$`).FindStringSubmatch(read(t, "hack/test.sh"))
	if tools == nil {
		t.Fatal("hack/test.sh has no list of tools")
	}
	modules := append(strings.Fields(tools[1]), ".", "test/oracle/kubeproxy")
	files := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() && (rel == ".git" || rel == "bin" || rel == "dist" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		files++
		dir := path.Dir(filepath.ToSlash(rel))
		if m := moduleOf(dir); !slices.Contains(modules, m) {
			t.Errorf("nothing runs the tests of module %s", m)
		}
		for _, tag := range tagsOf(t, read(t, rel)) {
			d := regexp.QuoteMeta(dir)
			where := regexp.MustCompile(`-tags ` + tag + ` .*\./` + d + `(\s|$)|cd ` + d + ` &&.* -tags ` + tag + ` `)
			if !slices.ContainsFunc(commands, where.MatchString) {
				t.Errorf("no command runs %s, which needs tag %s", rel, tag)
			}
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatal(files, err)
	}
}

// moduleOf is the folder of the module that a folder belongs to.
func moduleOf(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(root + dir + "/go.mod"); err == nil {
			return dir
		}
	}
	return dir
}

// tagsOf returns the tags that a file needs and that Linux does not have by itself.
func tagsOf(t *testing.T, text string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^//go:build .*$`).FindString(text)
	if m == "" {
		return nil
	}
	expr, err := constraint.Parse(m)
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	usual := func(tag string) bool { return tag == "linux" || tag == "unix" || tag == "amd64" }
	if expr.Eval(usual) {
		return nil
	}
	expr.Eval(func(tag string) bool {
		if !usual(tag) {
			tags = append(tags, tag)
		}
		return true
	})
	return tags
}
