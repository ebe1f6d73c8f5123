// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What TAB offers is inserted into a command line: a name that is more than a word is not offered, and in no shell's
// protocol can it begin another line or a description.
func TestPoisonedCompletion(t *testing.T) {
	var o outputs
	injected := []string{
		poison, "\t" + forged, "$(reboot)", "`reboot`", "a;reboot", "a b", "-rf", "a'b", "a\nb", "a*", "~a", "#a",
	}
	config := filepath.Join(t.TempDir(), "config")
	names := map[string]any{"good": map[string]any{}}
	for _, n := range injected {
		names["good"+n], names[n] = map[string]any{}, map[string]any{}
	}
	entries := func(kind string) (out []any) {
		for n := range names {
			out = append(out, map[string]any{"name": n, kind: map[string]any{}})
		}
		return out
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config",
		"contexts": entries("context"), "clusters": entries("cluster"), "users": entries("user"),
	})
	if err != nil {
		t.Fatal(err)
	}
	// A kubeconfig is YAML, which has some characters as escapes only.
	var ascii strings.Builder
	for _, r := range string(data) {
		if r >= 0x7F {
			fmt.Fprintf(&ascii, `\U%08x`, r)
		} else {
			ascii.WriteRune(r)
		}
	}
	if err := os.WriteFile(config, []byte(ascii.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	k := &objectKinds[0]
	leaves := leavesOf(k.typeOf())
	list := k.list(t, clusterOf(t, broken), leaves[".ObjectMeta.Name"], leaves[".Spec.Ports.Name"])
	dir := poisonedCopy(t, broken, map[string][]byte{"cluster/services.json": k.untyped(list)})
	for _, args := range [][]string{
		{"trace", "--context", ""},
		{"trace", "--cluster", ""},
		{"trace", "--user", ""},
		{"trace", "--context", "good"},
		{"trace", "--snapshot", dir, "-n", "shop", ""},
		{"trace", "--snapshot", dir, "-n", "shop", "web:"},
		{"trace", "--snapshot", dir, "-n", ""},
	} {
		_, stdout, stderr := runWith(t, config, append([]string{"__complete"}, args...)...)
		o.look(t, "__complete", strings.Join(args, " "), stdout, false)
		o.look(t, "__complete (stderr)", strings.Join(args, " "), stderr, false)
		for line := range strings.Lines(stdout) {
			line = strings.TrimSuffix(line, "\n")
			if report.ShellWord(line) != line || strings.HasPrefix(line, "-") {
				t.Errorf("%q: %q is offered", args, line)
			}
		}
		if strings.HasPrefix(args[1], "--c") && !strings.Contains(stdout, "good\n") {
			t.Errorf("%q: what is harmless is not offered: %q", args, stdout)
		}
	}
	for _, flag := range []string{"--context", "--cluster", "--user"} {
		_, stdout, stderr := runWith(t, config, "trace", "web", flag, "no"+poison)
		o.look(t, "kubeconfig", flag, stdout+stderr, false)
	}
	o.came(t, "kubeconfig")
}
