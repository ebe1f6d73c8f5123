// SPDX-License-Identifier: Apache-2.0

package workflows_test

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// script is hack/test.sh: its lists, and what its functions are called.
type script struct {
	text          string
	ci, nightly   []string
	steps, shards []string
	commands      []string // lines of the script, and of the targets of the Makefile that it makes, with flags
}

func readScript(t *testing.T) *script {
	t.Helper()
	var s script
	for _, name := range []string{"hack/test.sh", "Makefile"} {
		data, err := os.ReadFile(root + name)
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(data), "")
		if name == "hack/test.sh" {
			s.text = text
			s.commands = strings.Split(text, "\n")
			continue
		}
		for target, body := range targets(text) {
			if regexp.MustCompile(`make --no-print-directory ` + target + `\b`).MatchString(s.text) {
				s.commands = append(s.commands, strings.Split(body, "\n")...)
			}
		}
	}
	list := func(name string) []string {
		m := regexp.MustCompile(`(?m)^` + name + `=\(([a-z0-9 -]+)\)$`).FindStringSubmatch(s.text)
		if m == nil {
			t.Fatalf("hack/test.sh has no list %s", name)
		}
		return slices.Sorted(slices.Values(strings.Fields(m[1])))
	}
	functions := func(kind string) []string {
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^`+kind+`_([a-z0-9-]+)\(\) \{$`).FindAllStringSubmatch(s.text, -1) {
			names = append(names, m[1])
		}
		return slices.Sorted(slices.Values(names))
	}
	s.ci, s.nightly, s.steps, s.shards = list("ci"), list("nightly"), functions("step"), functions("shard")
	return &s
}

// targets are those of a Makefile, with what they run.
func targets(text string) map[string]string {
	bodies := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*\n((?:\t.*\n)*)`).FindAllStringSubmatch(text, -1) {
		bodies[m[1]] = m[2]
	}
	return bodies
}

// Each step and shard of hack/test.sh is in its list, and a job of the workflows, once; the lists and the workflows
// have no other.
func TestSteps(t *testing.T) {
	s := readScript(t)
	if !slices.Equal(s.ci, s.steps) || !slices.Equal(s.nightly, s.shards) {
		t.Errorf("hack/test.sh has the steps %v and the shards %v, and lists %v and %v", s.steps, s.shards, s.ci, s.nightly)
	}
	var steps, shards []string
	for name, text := range workflows(t) {
		var w workflow
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w.Permissions == nil {
			t.Errorf("%s does not say what it may do, and may do everything", name)
		}
		most := 40
		if name == "nightly.yaml" {
			most = 80 // a shard of an hour, and what it builds
		}
		for job, j := range w.Jobs {
			steps = append(steps, j.Strategy.Matrix.Step...)
			shards = append(shards, j.Strategy.Matrix.Shard...)
			for _, i := range j.Strategy.Matrix.Include {
				steps = append(steps, strings.Fields(i.Steps)...)
			}
			if j.Uses == "" && (j.Timeout == 0 || j.Timeout > most) {
				t.Errorf("%s: job %s may take %d minutes", name, job, j.Timeout)
			}
		}
	}
	slices.Sort(steps)
	if !slices.Equal(steps, s.ci) {
		t.Errorf("the workflows run the steps %v, hack/test.sh %v", steps, s.ci)
	}
	slices.Sort(shards)
	if !slices.Equal(shards, s.nightly) {
		t.Errorf("the workflows run the shards %v, hack/test.sh %v", shards, s.nightly)
	}
}

// lengths are what makes a test long, by the shard that says so: in the shard's function or in a target of the
// Makefile that it makes. CI has a short form of the same test.
var lengths = []struct{ shard, says string }{
	{"repeat", `-count "${REPEAT:-`},
	{"fuzz", `run_fuzz "${FUZZTIME:-`},
	{"oracle", `run_oracle "${ORACLE_SERVICES:-10000}" "${oracle_new[@]}"`},
	{"oracle-old", `run_oracle "${ORACLE_SERVICES:-10000}" "${oracle_old[@]}"`},
	{"walk", "differential CASES="},
	{"ipvs", "in_vm 3500 -tags vm ./test/ipvs"},
	{"kills", "SVCPROXY_KILLS="},
	{"versions", "versions < <(test/cluster/cluster versions)"},
	{"faults", "SVCPROXY_FAULTS=all on_cluster"},
	{"live", `SVCPROXY_SOAK="${SOAK:-50}" on_cluster`},
	{"bench", "make --no-print-directory bench\n"},
	{"bench-agent", "bench-agent AGENT_MODES=nftables SERVICES=10000"},
	{"bench-vm", "bench-ipvs RUNS="},
	{"tunnels", "-run '^TestTunnelsAgainstTheKernel$' ./trace/endtoend"},
	{"release", "release-test.sh twice"},
	{"axe", "-tags axe -run '^TestAxe$' ./plugin/print"},
	{"rendered", "-tags rendered -run '^TestRendered' ./plugin/print"},
	{"alerts", "-tags prometheus ./test/alerts"},
	{"fleet", "SVCPROXY_FLEET_NODES=1000 SVCPROXY_FLEET_SERVICES=5000"},
}

func TestShardsAreLong(t *testing.T) {
	s := readScript(t)
	for _, l := range lengths {
		_, body, _ := strings.Cut(s.text, "\nshard_"+l.shard+"() {\n")
		body, _, _ = strings.Cut(body, "\n}\n")
		if !strings.Contains(body+"\n", l.says) {
			t.Errorf("shard %s does not say %q", l.shard, l.says)
		}
	}
	if len(lengths) != len(s.nightly) {
		t.Errorf("of %d shards %d are known", len(s.nightly), len(lengths))
	}
}

// testFile is a file of tests, and the tags without which it is not built on Linux.
type testFile struct {
	module, dir string // of the repository, with slashes
	tags        []string
	tests       []string // its functions
}

// testFiles are all files of tests.
func testFiles(t *testing.T) []testFile {
	t.Helper()
	var files []testFile
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == ".git" || rel == "bin" || rel == "dist" || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(rel, "_test.go") {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			f := testFile{module: moduleOf(path.Dir(rel)), dir: path.Dir(rel), tags: tagsOf(t, rel, string(data))}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(string(data), -1) {
				f.tests = append(f.tests, m[1])
			}
			files = append(files, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
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
func tagsOf(t *testing.T, name, text string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^//go:build .*$`).FindString(text)
	if m == "" {
		return nil
	}
	expr, err := constraint.Parse(m)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
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

// Each file of tests is run: with all packages of its module, or by a command that names its tag and its folder.
func TestEveryTestIsRun(t *testing.T) {
	s := readScript(t)
	for _, line := range []string{ // of the main module: some packages by themselves, the others together
		"go run ./hack/gotest -timeout 30m \"${computing[@]/#/./}\"\n",
		"go run ./hack/gotest -timeout 30m \"${sending[@]/#/./}\"\n",
		"apart=\"$(IFS='|'; echo \"${computing[*]}|${sending[*]}\")\"\n",
		"mapfile -t packages < <(go list ./... | grep -vE \"/($apart)\\$\")\n",
		"go run ./hack/gotest -race -p 3 \"$@\" \"${packages[@]}\" || status=1\n",
		"go run ./hack/gotest -race \"$@\" \"${words[1]}\" \"${words[2]}\" \"./${words[0]}\" || exit 1\n",
		"\trun_tests -timeout 40m\n",
	} {
		if !strings.Contains(s.text, line) {
			t.Errorf("nothing runs the tests of the main module: hack/test.sh has no line %q", line)
		}
	}
	modules := regexp.MustCompile(`(?m)^tools=\((.*)\)$`).FindStringSubmatch(s.text)
	if modules == nil {
		t.Fatal("hack/test.sh has no list of tools")
	}
	// The oracle's own commands: go test in its folder, with the flags of each version (TestOracleVersions).
	const oracle = "test/oracle/kubeproxy"
	if !strings.Contains(s.text, "(cd "+oracle+" && ORACLE_SERVICES=") {
		t.Error("nothing runs the oracle")
	}
	names := map[string][]string{} // of tests, by folder
	seen := map[string]bool{}
	for _, f := range testFiles(t) {
		names[f.dir] = append(names[f.dir], f.tests...)
		seen[f.module] = true
		if f.module != "." && f.module != oracle && !slices.Contains(strings.Fields(modules[1]), f.module) {
			t.Errorf("nothing runs the tests of module %s", f.module)
		}
		for _, tag := range f.tags {
			for _, name := range append(f.tests, "") {
				if !slices.ContainsFunc(s.commands, func(c string) bool { return runs(c, &f, tag, name) }) {
					t.Errorf("no command runs %s of %s, which needs tag %s", name, f.dir, tag)
				}
			}
		}
	}
	var packages []string
	for _, name := range []string{"computing", "sending"} {
		list := regexp.MustCompile(`(?m)^` + name + `=\(([^)"]+)\)$`).FindStringSubmatch(s.text)
		if list == nil {
			t.Fatalf("hack/test.sh does not say which packages are %s", name)
		}
		packages = append(packages, strings.Fields(list[1])...)
	}
	raced := regexp.MustCompile(`(?m)^\t"(\S+) -(?:run|skip) \^(?:Test)?\((.*)\)\$?"$|^\t"(\S+) -skip \^(Test\w+)\$"$`).
		FindAllStringSubmatch(s.text, -1)
	if len(raced) == 0 {
		t.Fatal("hack/test.sh does not say what of the packages that run apart is raced")
	}
	for _, dir := range packages {
		if len(names[dir]) == 0 {
			t.Errorf("%s, of the packages that run apart, has no tests", dir)
		}
	}
	for _, m := range raced {
		dir, tests := m[1]+m[3], m[2]+m[4]
		if !slices.Contains(packages, dir) {
			t.Errorf("%s is not among the packages that run apart", dir)
		}
		for name := range strings.SplitSeq(tests, "|") {
			if !slices.ContainsFunc(names[dir], func(have string) bool {
				return strings.HasPrefix(strings.TrimPrefix(have, "Test"), strings.TrimPrefix(name, "Test"))
			}) {
				t.Errorf("%s has no %s, which hack/test.sh names", dir, name)
			}
		}
	}
	for _, module := range []string{".", oracle, "deploy/image", "hack/licenses"} {
		if !seen[module] {
			t.Errorf("no test of module %s was found", module)
		}
	}
}

// runs says whether a command runs a test of a file with a tag; without name, any.
func runs(command string, f *testFile, tag, name string) bool {
	where := `\s\./` + regexp.QuoteMeta(f.dir) + `(\s|$)`
	if f.module != "." {
		where = `^\s*cd ` + regexp.QuoteMeta(f.dir) + ` &&.* \.(\s|$)`
	}
	if !regexp.MustCompile(`-tags `+regexp.QuoteMeta(tag)+`\s`).MatchString(command) ||
		!regexp.MustCompile(where).MatchString(command) {
		return false
	}
	only := regexp.MustCompile(`-run '?([^ ']+)`).FindStringSubmatch(command)
	return only == nil || name == "" || regexp.MustCompile(strings.ReplaceAll(only[1], "$$", "$")).MatchString(name)
}
