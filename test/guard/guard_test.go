// SPDX-License-Identifier: Apache-2.0

//go:build guard

// Package guard_test compares verdicts with those of an earlier commit, while the code between is rebuilt: for every
// capture, as it is, and with each of its objects removed or made unreadable, both programs judge the same files, and
// each difference has to be explained in testdata/differences.txt.
package guard_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

const root = "../../"

// captures are the snapshots that are varied: all of testdata/snapshots but the largest, whose 5,000 Services have the
// rules of the others.
func captures(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(root + "testdata/snapshots/*/nodes")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no captures: ", err)
	}
	var out []string
	for _, d := range dirs {
		if d = filepath.Dir(d); filepath.Base(d) != "scale-iptables" {
			out = append(out, d)
		}
	}
	return out
}

// TestVerdictsAreThoseOfBefore judges with both programs. SVCPROXY_GUARD_EVERY takes each so many-th variant, by
// default one in 50; 1 takes all, and then what the list of differences has and no variant shows is an error, too.
func TestVerdictsAreThoseOfBefore(t *testing.T) {
	every := 50
	if s := os.Getenv("SVCPROXY_GUARD_EVERY"); s != "" {
		if _, err := fmt.Sscan(s, &every); err != nil || every < 1 {
			t.Fatalf("SVCPROXY_GUARD_EVERY is %q, not a number from 1 on", s)
		}
	}
	before, after := os.Getenv("SVCPROXY_GUARD_BEFORE"), os.Getenv("SVCPROXY_GUARD_AFTER")
	if before == "" || after == "" {
		t.Skip("SVCPROXY_GUARD_BEFORE and _AFTER name no programs: hack/test.sh nightly guard builds them")
	}
	want := explained(t)
	found := map[string]string{} // by the difference without its place, the first place
	var mu sync.Mutex
	var all []variant
	for _, dir := range captures(t) {
		for i, v := range variants(t, dir) {
			if i == 0 || (i-1)%every == every/2 {
				all = append(all, v)
			}
		}
	}
	next := make(chan variant)
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for v := range next {
				lines, err := v.differences(t.TempDir, before, after)
				mu.Lock()
				if err != nil {
					t.Errorf("%s: %v", v.name(), err)
				}
				for _, l := range lines {
					if _, ok := found[l]; !ok {
						found[l] = v.name()
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, v := range all {
		next <- v
	}
	close(next)
	wait.Wait()
	shown := map[*regexp.Regexp]bool{}
	for _, l := range slices.Sorted(maps.Keys(found)) {
		i := slices.IndexFunc(want, func(r *regexp.Regexp) bool { return r.MatchString(l) })
		if i < 0 {
			t.Errorf("not explained: %s\n\tfirst: %s", l, found[l])
			continue
		}
		shown[want[i]] = true
	}
	for _, r := range want {
		if !shown[r] && every == 1 {
			t.Errorf("no variant shows any more: %s", r)
		}
	}
	t.Logf("%d variants, %d differences", len(all), len(found))
}

// explained are the differences of the list: each line is a regular expression, after a comment that says why the
// verdict differs, and what the kernel does.
func explained(t *testing.T) []*regexp.Regexp {
	t.Helper()
	data, err := os.ReadFile("testdata/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []*regexp.Regexp
	why := false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			why = false
		case strings.HasPrefix(line, "#"):
			why = true
		case !why:
			t.Fatalf("testdata/differences.txt does not say why: %s", line)
		default:
			out = append(out, regexp.MustCompile("^"+line+"$"))
		}
	}
	return out
}

// differences are the paths whose verdicts differ, each as "FILE KIND how: OLD → NEW CODES".
func (v *variant) differences(tempDir func() string, before, after string) ([]string, error) {
	dir := tempDir()
	defer os.RemoveAll(dir)
	if err := v.write(dir); err != nil {
		return nil, err
	}
	was, err := judged(before, dir)
	if err != nil {
		return nil, err
	}
	is, err := judged(after, dir)
	if err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for key, old := range was {
		now, ok := is[key]
		if !ok {
			now.verdict = "none"
		}
		if old.verdict != now.verdict {
			what := "path"
			if strings.HasPrefix(key, "node ") {
				what = "node"
			}
			set[fmt.Sprintf("%s: %s %s → %s %s", v.kind(), what, old.verdict, now.verdict, now.codes)] = true
		}
	}
	for key, now := range is {
		if _, ok := was[key]; !ok {
			set[fmt.Sprintf("%s: path none → %s %s", v.kind(), now.verdict, now.codes)] = true
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

// path is what was said of a path.
type path struct{ verdict, codes string }

// judged are the paths of a snapshot as a program judges them, and each node by itself; what it refuses is a path, too.
func judged(program, dir string) (map[string]path, error) {
	//nolint:gosec // a program that the test was given
	c := exec.Command(program, "verify", "-A", "-o", "json", "--snapshot", dir)
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	paths := map[string]path{}
	if out.Len() == 0 {
		paths["refused"] = path{verdict: fmt.Sprintf("exit %d", c.ProcessState.ExitCode())}
		return paths, nil
	}
	var r report.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, stderr.String())
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		paths["node "+n.Node] = path{verdict: string(n.Verdict), codes: codes(n.Findings)}
		for j := range n.Paths {
			p := &n.Paths[j]
			paths[fmt.Sprint(n.Node, p.Service, p.Frontend, p.Origin.Kind, p.Origin.Address, p.Origin.Pod)] = path{
				verdict: string(p.Verdict), codes: codes(p.Findings),
			}
		}
	}
	return paths, nil
}

// codes are the codes of what is found, without notes.
func codes(findings []report.Finding) string {
	var out []string
	for i := range findings {
		if !slices.Contains(out, string(findings[i].Code)) {
			out = append(out, string(findings[i].Code))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
