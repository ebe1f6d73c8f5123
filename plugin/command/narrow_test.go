// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// printedAt is what a command prints on a terminal of a width.
func printedAt(columns int, args ...string) string {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	env := newEnvironment(streams, System{})
	env.out = terminal.Live(out, terminal.Style{Width: columns})
	cmd := newRoot(env)
	cmd.SetArgs(args)
	_ = cmd.Execute() // an error says what is wrong with the node
	return out.String()
}

// terminalWidths are those that people have: a part of a screen, a terminal's own, and wide ones.
var terminalWidths = []int{60, 80, 100, 160}

// fitting are commands with all that they print.
var fitting = [][]string{
	{"trace", "web", "-n", "shop", "--snapshot", broken},
	{"trace", "api", "-n", "shop", "--snapshot", broken},
	{"trace", "checkout", "-n", "shop", "--snapshot", broken},
	{"trace", "admin", "-n", "shop", "--snapshot", broken},
	{"trace", "shop/web", "--from", "pod/shop/web-76bbf6d6cc-m4dxw", "--end-to-end", "--snapshot", threeNodes},
	{"verify", "-A", "--snapshot", broken},
	{"verify", "-A", "--show-all", "--snapshot", broken},
	{"verify", "-A", "--snapshot", threeNodes},
	{"mode", "--snapshot", broken},
	{"mode", "--snapshot", threeNodes},
	{"resolve", "web", "-n", "shop", "--snapshot", broken},
	{"resolve", "admin", "-n", "shop", "--snapshot", broken},
}

// toCopy is what stands in one piece, however wide it is: commands, addresses of pages and names of files.
var toCopy = regexp.MustCompile(`^ *(Next +|Explain +|keep +|fix +|links +)?(kubectl |https://|iptables|ps |conntrack )`)

// cutName is a name or an address with its middle cut out.
var cutName = regexp.MustCompile(`[[:alnum:]]…|…[[:alnum:]]`)

// On a terminal every line fits, and whatever does not fit is wrapped or left out as a whole: half of a name or of an
// address is none. Wide output leaves nothing out.
func TestOutputFitsTheTerminal(t *testing.T) {
	for _, args := range fitting {
		for _, columns := range terminalWidths {
			for _, format := range []string{"table", "wide"} {
				t.Run(fmt.Sprintf("%s at %d as %s", strings.Join(args, " "), columns, format), func(t *testing.T) {
					args := append(slices.Clone(args), "-o", format)
					printed := printedAt(columns, args...)
					if len(printed) < 100 {
						t.Fatalf("nothing is printed: %s", printed)
					}
					for line := range strings.Lines(printed) {
						line = strings.TrimSuffix(line, "\n")
						if w := plaintext.Width(line); w > columns && !toCopy.MatchString(line) {
							t.Errorf("%d columns: %q", w, line)
						}
						if cutName.MatchString(line) {
							t.Errorf("a name is cut: %q", line)
						}
						if format == "wide" && strings.Contains(line, "…") {
							t.Errorf("something is left out: %q", line)
						}
					}
				})
			}
		}
	}
}

// Every word of wide output is there at every width: it is wrapped, and never cut.
func TestWideOutputIsTheSameAtEveryWidth(t *testing.T) {
	for _, args := range fitting {
		if args[0] == "trace" || args[0] == "verify" { // these have headings, marks and labels for narrow terminals
			continue
		}
		args := append(slices.Clone(args), "-o", "wide")
		want := words(printedAt(0, args...))
		for _, columns := range terminalWidths {
			got := words(printedAt(columns, args...))
			for _, word := range want {
				if !slices.Contains(got, word) {
					t.Errorf("%v at %d columns: no %q", args, columns, word)
				}
			}
		}
	}
}

// Without headers there are rows and nothing else, for a program: the same at every width, each with all that it is of.
func TestRowsAlone(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"trace web -n shop --snapshot " + broken, `
ClusterIP 10.96.21.191:80  pod,node  10.244.1.15:8080  web-7c9d8f6b5d-2xkqp  worker-1  33.3%  50.0%  uneven
ClusterIP 10.96.21.191:80  pod,node  10.244.2.9:8080   web-7c9d8f6b5d-hh6mr  worker-2  33.3%  50.0%  uneven
ClusterIP 10.96.21.191:80  pod,node  10.244.3.4:8080   web-7c9d8f6b5d-q9v4n  worker-3  33.3%      -  MISSING
`},
		{"verify -n shop checkout web --snapshot " + broken, `
shop/checkout  ClusterIP 10.96.77.154:80  pod       2 endpoints  1 endpoint, 10.244.2.12:8080 dropped  Dropped
shop/web       ClusterIP 10.96.21.191:80  pod,node  3 endpoints  2 endpoints, 10.244.3.4:8080 missing  MissingEndpoint
`},
		{"verify -n shop admin --snapshot " + broken, "\n"},
		{"mode --snapshot " + broken, `
worker-1  iptables (nft)  iptables  v1.36.3  2026-11-20T19:37:57Z  0  ok
`},
		{"resolve web -n shop --snapshot " + broken, `
http  10.244.1.15:8080  web-7c9d8f6b5d-2xkqp  worker-1  ready      yes  ready
http  10.244.2.9:8080   web-7c9d8f6b5d-hh6mr  worker-2  ready      yes  ready
http  10.244.2.31:8080  web-7c9d8f6b5d-zc8td  worker-2  not ready  no   not ready
http  10.244.3.4:8080   web-7c9d8f6b5d-q9v4n  worker-3  ready      yes  ready
`},
	} {
		for _, columns := range append([]int{0}, terminalWidths...) {
			got := printedAt(columns, append(strings.Fields(tt.args), "--no-headers")...)
			squeezed := func(s string) string { return regexp.MustCompile(`  +`).ReplaceAllString(s, "  ") }
			if squeezed("\n"+got) != squeezed(tt.want) {
				t.Errorf("%s at %d columns: got\n%s", tt.args, columns, got)
			}
		}
	}
}

// Help fits, too, but for commands to copy; and nothing of it is lost.
func TestHelpFitsTheTerminal(t *testing.T) {
	texts := [][]string{{"help"}, {"options"}, {"explain"}}
	for _, c := range New(genericiooptions.NewTestIOStreamsDiscard(), System{}).Commands() {
		texts = append(texts, []string{c.Name(), "--help"})
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		texts = append(texts, []string{"completion", shell, "--help"})
	}
	for _, code := range codes() {
		texts = append(texts, []string{"explain", code})
	}
	whole := regexp.MustCompile(`^(\t| {2}kubectl |(- Upstream: )?https?://| *https?://)`)
	for _, args := range texts {
		all := strings.Fields(strings.ReplaceAll(printedAt(0, args...), "#", ""))
		for _, columns := range terminalWidths {
			printed := printedAt(columns, args...)
			for line := range strings.Lines(printed) {
				line = strings.TrimSuffix(line, "\n")
				if w := plaintext.Width(line); w > columns && !whole.MatchString(line) {
					t.Errorf("%v at %d: %d columns: %q", args, columns, w, line)
				}
				if strings.HasSuffix(line, " ") {
					t.Errorf("%v at %d: a space ends %q", args, columns, line)
				}
			}
			if got := strings.Fields(strings.ReplaceAll(printed, "#", "")); !slices.Equal(got, all) {
				t.Errorf("%v at %d: other words than without a terminal:\n%s", args, columns, printed)
			}
		}
	}
}

// words are those of a text that a column's name is not.
func words(s string) []string {
	var out []string
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \n,/", r) }) {
		if word != strings.ToUpper(word) || strings.ContainsAny(word, "0123456789") {
			out = append(out, word)
		}
	}
	return out
}

// The status of every path is seen on a narrow terminal.
func TestVerifyFitsANarrowTerminal(t *testing.T) {
	printed := printedAt(terminalWidths[0], "verify", "-n", "shop", "--snapshot", broken)
	_, table, ok := strings.Cut(printed, "SERVICE ")
	table, _, _ = strings.Cut("SERVICE "+table, "\n\n")
	if !ok || strings.Count(table, "MissingEndpoint") < 4 {
		t.Errorf("no table with its statuses:\n%s", printed)
	}
}

// Where a node's or a Service's name is wider than the terminal, it stands below its row: beside it, the terminal would
// break the row, and the status would be anywhere.
func TestNamesWiderThanTheTerminal(t *testing.T) {
	long := strings.Repeat("a-long-name.", 8) + "internal"
	dir := hostileNames(t, long, strings.Repeat("service-", 7)+"1", "kube-proxy-x2v9p")
	for args, heads := range map[string]string{
		"mode": "MODE STATUS", "mode -o wide": "KUBE-PROXY STATUS", "verify -A": "PATHS VERDICT",
		"verify -A --show-all": "FROM STATUS",
	} {
		first, last, _ := strings.Cut(heads, " ")
		row := regexp.MustCompile(`(?m)^[A-Z -]*` + first + ` .*` + last + `$`)
		printed := printedAt(60, append(strings.Fields(args), "--snapshot", dir)...)
		if head := row.FindString(printed); head == "" || plaintext.Width(head) > 60 {
			t.Errorf("%s: no head of %s that fits:\n%s", args, heads, printed)
		}
		if !strings.Contains(printed, long) {
			t.Errorf("%s: the name is not there", args)
		}
	}
}
