// SPDX-License-Identifier: Apache-2.0

// Command gotest runs go test with the arguments it is given and prints a line per package, the whole output of
// what failed, and every test that was skipped, with the reason. With CI=true a skipped test is a failure: a test
// that needs root or a tool has to get it there, and must not vanish without anybody noticing. For the same reason
// it fails where no test was run at all. At the end it names the tests that took longest, as a list that runs at every
// push has to stay short.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Getenv("CI") == "true", os.Stdout, os.Stderr))
}

func run(args []string, ci bool, stdout, stderr io.Writer) int {
	//nolint:gosec // the arguments are the caller's own
	c := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	c.Stderr = stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		return fail(stderr, err)
	}
	if err := c.Start(); err != nil {
		return fail(stderr, err)
	}
	var s summary
	if err := s.read(pipe, stdout); err != nil {
		return fail(stderr, err)
	}
	err = c.Wait()
	s.report(stdout)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		return fail(stderr, err)
	case len(s.failed) > 0:
		return 1
	case s.passed+len(s.skipped) == 0:
		fmt.Fprintln(stderr, "gotest: no test was run")
		return 1
	case ci && len(s.skipped) > 0:
		fmt.Fprintf(stderr, "gotest: %d tests were skipped, and CI=true\n", len(s.skipped))
		return 1
	}
	return 0
}

func fail(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "gotest:", err)
	return 2
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Output     string
	Elapsed    float64
}

// name identifies what an event is about: a test, or its package.
func (e *event) name() string {
	if e.Test == "" {
		return e.Package
	}
	return e.Package + " " + e.Test
}

// summary is what was seen so far.
type summary struct {
	passed  int
	failed  []string
	skipped []string            // tests, each with what it said
	output  map[string][]string // of what has not ended yet
	slow    []slowTest
}

// slowTest is a test, without its subtests, that took long.
type slowTest struct {
	name    string
	seconds float64
}

// From how many seconds on a test is called slow, and how many are named.
const (
	slowFrom  = 10
	slowShown = 12
)

func (s *summary) read(r io.Reader, w io.Writer) error {
	s.output = map[string][]string{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprint(w, string(line)) // not an event: a message of the go command
			} else {
				s.take(&e, w)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) take(e *event, w io.Writer) {
	name := e.name()
	switch e.Action {
	case "build-output":
		fmt.Fprint(w, e.Output)
	case "output":
		s.output[name] = append(s.output[name], e.Output)
	case "pass":
		if e.Test == "" {
			fmt.Fprintf(w, "ok    %s %.1fs\n", e.Package, e.Elapsed)
		} else {
			s.passed++
			s.time(e)
		}
		delete(s.output, name)
	case "skip":
		if e.Test != "" { // a package is "skipped" when it has no tests
			s.skipped = append(s.skipped, name+reason(s.output[name]))
		}
		delete(s.output, name)
	case "fail":
		s.failed = append(s.failed, name)
		fmt.Fprintf(w, "FAIL  %s %.1fs\n%s", name, e.Elapsed, strings.Join(s.output[name], ""))
		delete(s.output, name)
		if e.Test == "" {
			s.notEnded(e.Package, w)
		}
	}
}

// notEnded prints the tests of a package that had not ended when it did: where its time was over, or its process ended
// otherwise, nothing else says why.
func (s *summary) notEnded(pkg string, w io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(s.output)) {
		if strings.HasPrefix(name, pkg+" ") {
			fmt.Fprintf(w, "had not ended: %s\n%s", name, strings.Join(s.output[name], ""))
			delete(s.output, name)
		}
	}
}

// time keeps a test that took long.
func (s *summary) time(e *event) {
	if e.Elapsed >= slowFrom && !strings.Contains(e.Test, "/") {
		s.slow = append(s.slow, slowTest{e.name(), e.Elapsed})
	}
}

// reason is what a skipped test said, without go test's own lines.
func reason(output []string) string {
	var words []string
	for _, o := range output {
		if o = strings.TrimSpace(o); o != "" && !strings.HasPrefix(o, "=== ") && !strings.HasPrefix(o, "--- ") {
			words = append(words, o)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return ": " + strings.Join(words, " ")
}

func (s *summary) report(w io.Writer) {
	slices.SortFunc(s.slow, func(a, b slowTest) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range s.slow[:min(len(s.slow), slowShown)] {
		fmt.Fprintf(w, "slow  %s %.1fs\n", t.name, t.seconds)
	}
	for _, name := range s.skipped {
		fmt.Fprintf(w, "SKIP  %s\n", name)
	}
	for _, name := range s.failed {
		fmt.Fprintf(w, "FAIL  %s\n", name)
	}
	fmt.Fprintf(w, "%d tests passed, %d failed, %d skipped\n", s.passed, len(s.failed), len(s.skipped))
}
