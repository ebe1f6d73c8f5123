// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for name, tc := range map[string]struct {
		test string
		ci   bool
		exit int
		want string
	}{
		"passes":          {`func TestA(t *testing.T) {}`, true, 0, "1 tests passed, 0 failed, 0 skipped"},
		"fails":           {`func TestA(t *testing.T) { t.Error("told so") }`, false, 1, "told so"},
		"skipped at home": {`func TestA(t *testing.T) { t.Skip("no root") }`, false, 0, "TestA: x_test.go:3: no root"},
		"skipped in CI": {
			`func TestA(t *testing.T) { t.Skip("no root") }`, true, 1, "0 tests passed, 0 failed, 1 skipped",
		},
		"does not compile": {`func TestA(t *testing.T) { nothing() }`, true, 1, "undefined: nothing"},
		"runs nothing":     {`var _ testing.TB`, false, 1, "0 tests passed, 0 failed, 0 skipped"},
		"subtest is skipped": {
			`func TestA(t *testing.T) { t.Run("b", func(t *testing.T) { t.Skip() }) }`, true, 1, "SKIP  x TestA/b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":    "module x\ngo 1.26\n",
				"x_test.go": "package x\nimport \"testing\"\n" + tc.test + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			var out, errs bytes.Buffer
			if exit := run([]string{"./..."}, tc.ci, &out, &errs); exit != tc.exit {
				t.Errorf("exit code %d, want %d", exit, tc.exit)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("%q is not in the output:\n%s%s", tc.want, &out, &errs)
			}
		})
	}
}

// TestSlow: the tests that took longest are named, longest first, without their subtests.
func TestSlow(t *testing.T) {
	var s summary
	if err := s.read(strings.NewReader(`{"Action":"pass","Package":"x","Test":"TestA","Elapsed":12.25}
{"Action":"pass","Package":"x","Test":"TestB/long","Elapsed":60}
{"Action":"pass","Package":"x","Test":"TestB","Elapsed":61}
{"Action":"pass","Package":"x","Test":"TestC","Elapsed":9.9}
`), &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s.report(&out)
	want := "slow  x TestB 61.0s\nslow  x TestA 12.2s\n4 tests passed, 0 failed, 0 skipped\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestNotEnded: where the time of a package is over, the test that was running is named, with what it printed.
func TestNotEnded(t *testing.T) {
	var s summary
	var out bytes.Buffer
	if err := s.read(strings.NewReader(`{"Action":"output","Package":"x","Test":"TestA","Output":"a\n"}
{"Action":"pass","Package":"x","Test":"TestA","Elapsed":1}
{"Action":"output","Package":"x","Test":"TestB","Output":"panic: test timed out after 1s\n"}
{"Action":"output","Package":"xy","Test":"TestC","Output":"c\n"}
{"Action":"output","Package":"x","Output":"FAIL\tx\t1.0s\n"}
{"Action":"fail","Package":"x","Elapsed":1}
`), &out); err != nil {
		t.Fatal(err)
	}
	const want = "FAIL  x 1.0s\nFAIL\tx\t1.0s\nhad not ended: x TestB\npanic: test timed out after 1s\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
