// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// interactive are the shells that kubectl supports completion for and that the test can complete lines in: the command
// that prints what is offered after a line, its last argument, and a file without which it does not work.
var interactive = []struct {
	name, needs string
	argv        []string
}{
	{"bash", "/usr/share/bash-completion/bash_completion", []string{"bash", "--norc", "testdata/tab.bash"}},
	{"zsh", "testdata/tab-inside.zsh", []string{"zsh", "-f", "testdata/tab.zsh"}},
	{"fish", "testdata/tab.fish", []string{"fish", "--no-config", "testdata/tab.fish"}},
}

// What a person gets at TAB, in the shells themselves, through kubectl.
func TestShellsComplete(t *testing.T) {
	s := newShell(t, apiServer(t).URL)
	snapshot, err := filepath.Abs("../../examples/broken-node")
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		line string // behind kubectl svcproxy
		want []string
		// The words of shells that offer others: bash what follows a colon, fish a flag with its value.
		own map[string][]string
	}{
		{"tra", []string{"trace"}, nil},
		{"trace ", []string{"api", "web"}, nil},
		{"trace -n other ", []string{"away"}, nil},
		{"trace svc/w", []string{"svc/web"}, nil},
		{
			"trace web:",
			[]string{"web:443", "web:80", "web:http", "web:https"},
			map[string][]string{"bash": {"443", "80", "http", "https"}},
		},
		{"trace none:", nil, nil},
		{"trace web --node ", []string{"control", "worker-1", "worker-2"}, nil},
		{
			"trace web --node=w",
			[]string{"worker-1", "worker-2"},
			map[string][]string{"fish": {"--node=worker-1", "--node=worker-2"}},
		},
		{"trace web --from pod/", []string{"pod/web-1", "pod/web-2"}, nil},
		{"verify --all-n", []string{"--all-namespaces", "--all-nodes"}, nil},
		{"trace web -n shop --snapshot " + snapshot + " --node ", []string{"worker-1"}, nil},
	}
	for _, shell := range interactive {
		t.Run(shell.name, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(shell.argv[0])
			if err != nil {
				t.Skipf("%s is not installed: %v", shell.name, err)
			}
			if _, err := os.Stat(shell.needs); err != nil {
				t.Skipf("%s cannot complete: %v", shell.name, err)
			}
			for _, tt := range cases {
				want := tt.want
				if own, ok := tt.own[shell.name]; ok {
					want = own
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				cmd := exec.CommandContext(ctx, program,
					append(shell.argv[1:len(shell.argv):len(shell.argv)], "kubectl svcproxy "+tt.line)...)
				var stderr bytes.Buffer
				cmd.Env, cmd.Stderr, cmd.WaitDelay = slices.Concat(s.env, []string{"TERM=dumb"}), &stderr, time.Second
				out, err := cmd.Output()
				cancel()
				var got []string
				for line := range strings.Lines(string(out)) {
					// Behind a tab there is what it means.
					choice, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
					got = append(got, choice)
				}
				slices.Sort(got)
				if got = slices.Compact(got); err != nil || !slices.Equal(got, want) {
					t.Errorf("%q: offered %q, want %q (%v)\n%s", tt.line, got, want, err, &stderr)
				}
			}
		})
	}
}
