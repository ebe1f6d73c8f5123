// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

func TestReportsSayWhereTheyComeFrom(t *testing.T) {
	r := reportOf(t, "verify shop/frontend --snapshot "+broken)
	s := r.Source
	if s == nil || s.Snapshot != broken || s.MadeAt != "2026-11-20T19:38:00Z" || s.MadeBy == "" || s.ReadAt != "" ||
		s.Command != "kubectl svcproxy verify shop/frontend --snapshot "+broken+" -o json" ||
		!strings.HasPrefix(s.Tool, "kubectl-svcproxy ") || strings.Join(s.Nodes, ",") != "worker-1" {
		t.Errorf("got %+v", s)
	}
	_, stdout, _ := runPlugin(t, "mode", "--snapshot", broken)
	if want := "Source   snapshot " + broken + "  made 2026-11-20T19:38:00Z\n"; !strings.HasPrefix(stdout, want) {
		t.Errorf("got %s, want first %s", stdout, want)
	}
	_, stdout, _ = runPlugin(t, "mode", "--snapshot", broken, "-o", "html")
	if !strings.Contains(stdout, "made <time") || !strings.Contains(stdout, "kubectl svcproxy mode") {
		t.Errorf("got %s", stdout)
	}
	without := twoNodes(t)
	if err := os.Remove(filepath.Join(without, "snapshot.json")); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ = runPlugin(t, "mode", "--snapshot", without)
	if !strings.Contains(stdout, "it does not say when it was made\n") {
		t.Errorf("got %s", stdout)
	}
}

// A terminal shows how old a snapshot is; what is kept does not change from day to day.
func TestAgeOfASnapshot(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	env := newEnvironment(streams, System{})
	env.out = terminal.Live(out, terminal.Style{Width: 200})
	cmd := newRoot(env)
	cmd.SetArgs([]string{"mode", "--snapshot", broken})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if line, _, _ := strings.Cut(out.String(), "\n"); !strings.HasSuffix(line, " ago)") {
		t.Errorf("got %s", line)
	}
}

func TestCommandLineHasNoCredentials(t *testing.T) {
	for in, want := range map[string]string{
		"trace web --token secret":                 "trace web --token REDACTED",
		"trace web --token=secret -n x":            "trace web --token=REDACTED -n x",
		"trace http://me:secret@web.shop/":         "trace http://me:xxxxx@web.shop/",
		"trace web --server=https://me:secret@api": "trace web --server=https://me:xxxxx@api",
		"trace web --server https://api:6443":      "trace web --server https://api:6443",
		"trace http://me:secret@[/":                "trace URL",
	} {
		if got := commandLine(strings.Fields(in)); got != name+" "+want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestColors(t *testing.T) {
	for color, want := range map[string]bool{"auto": false, "always": true, "never": false} {
		_, stdout, _ := runPlugin(t, "trace", "shop/web", "--snapshot", broken, "--color", color)
		if got := strings.Contains(stdout, "\x1b["); got != want {
			t.Errorf("%s: colours %v, want %v", color, got, want)
		}
	}
}

// The environment stands for flags of the helper, and flags go before it.
func TestEnvironmentOfTheHelper(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	env := newEnvironment(streams, System{})
	env.getenv = func(key string) string {
		return map[string]string{envImage: "example/helper:1", envNamespace: "tools", envPullSecret: "pull"}[key]
	}
	for _, cmd := range newRoot(env).Commands() {
		for flag, want := range map[string]string{
			"image": "example/helper:1", "helper-namespace": "tools", "image-pull-secret": "pull",
		} {
			f := cmd.Flags().Lookup(flag)
			if f == nil {
				continue
			}
			if f.Value.String() != want {
				t.Errorf("%s --%s: got %s", cmd.Name(), flag, f.Value)
			}
			if err := f.Value.Set("other"); err != nil || f.Value.String() != "other" {
				t.Errorf("%s --%s cannot be set: %v", cmd.Name(), flag, err)
			}
		}
	}
}
