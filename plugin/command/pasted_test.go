// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// hostileNames is the snapshot with a node, a Service and a pod of kube-proxy whose names a shell takes for commands.
func hostileNames(t *testing.T, node, service, pod string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "nodes", "worker-1"), filepath.Join(dir, "nodes", node)); err != nil {
		t.Fatal(err)
	}
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	names := strings.NewReplacer(": worker-1\n", ": "+quoted(node)+"\n", ": kube-proxy-x2v9p\n", ": "+quoted(pod)+"\n",
		"service-name: api\n", "service-name: "+quoted(service)+"\n",
		"\n    name: api\n", "\n    name: "+quoted(service)+"\n",
		`"hostnameOverride": "worker-1"`, `"hostnameOverride": ""`)
	for _, file := range []string{
		"cluster/nodes.yaml", "cluster/services.yaml", "cluster/endpointslices.yaml", "cluster/pods.yaml",
		"nodes/" + node + "/configz.json",
	} {
		path := filepath.Join(dir, filepath.FromSlash(file))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(names.Replace(string(data))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Whatever a node, a Service or a pod is called: the commands that are printed have their names as one word.
func TestPastedCommandsOfHostileNames(t *testing.T) {
	for _, name := range []string{"a; touch mark", "a $(touch mark)", "a'; touch mark; '", "a&&touch mark", "a b"} {
		node, service, pod := name+"1", name+"2", name+"3"
		dir := hostileNames(t, node, service, pod)
		_, stdout, stderr := runPlugin(t, "verify", "-A", "--snapshot", dir)
		want := [][]string{
			{"kubectl", "-n", "kube-system", "delete", "pod/" + pod},
			{"kubectl", "svcproxy", "trace", service, "-n", "shop", "--node", node, "--snapshot", dir},
			{"kubectl", "svcproxy", "explain", "MissingEndpoint"},
		}
		work := t.TempDir()
		var got [][]string
		for line := range strings.Lines(stdout) {
			at := strings.Index(line, "kubectl ")
			if at < 0 {
				continue
			}
			cmd := exec.Command("bash", "-c", "set -- "+strings.TrimSpace(line[at:])+`; printf '%s\0' "$@"`)
			cmd.Dir = work
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			if !slices.ContainsFunc(got, func(have []string) bool { return slices.Equal(have, words) }) {
				got = append(got, words)
			}
		}
		if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("%q: got %q\nwant %q\n%s%s", name, got, want, stdout, stderr)
		}
		if made, _ := filepath.Glob(filepath.Join(work, "*")); len(made) > 0 {
			t.Errorf("%q was run as a command", name)
		}
	}
}

// A Service's name is no flag, and flags that were given stay one word each.
func TestNext(t *testing.T) {
	got := next("other nodes", nameArgument("--all"), "-n", "a b", "--context", "it's").Commands[0].Line
	if want := `kubectl svcproxy service/--all -n 'a b' --context 'it'\''s'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What names the cluster again stays one word for each flag, whatever the kubeconfig calls it.
func TestFlagsThatNameTheSameCluster(t *testing.T) {
	kube := genericclioptions.NewConfigFlags(true)
	*kube.KubeConfig, *kube.Context = "/home/a b/config", "prod; touch mark"
	env := &environment{kube: kube}
	want := []string{"--kubeconfig", "/home/a b/config", "--context", "prod; touch mark"}
	if got := (&nodeFlags{}).again(env, &helperFlags{}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	flags := pflag.NewFlagSet("program", pflag.ContinueOnError)
	if got := (&programOptions{}).again(env, flags); !slices.Equal(got, want) {
		t.Errorf("program: got %q, want %q", got, want)
	}
}
