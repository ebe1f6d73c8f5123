// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Files of a snapshot that a record leaves out: what changes by itself and tells of no fault.
var unrecorded = []string{snapshot.ConntrackFile}

// steady are files that a fault does not change, whatever differs in them.
var steady = []string{
	"snapshot.json", "pods.json", "nodes.json", "configmaps.json", snapshot.TimeFile, snapshot.MetricsFile,
	snapshot.HealthzFile, snapshot.LivezFile, snapshot.ProcessesFile, snapshot.VersionsFile,
}

// judged tells whether the changes of a file belong to the fault.
func judged(name string) bool { return !slices.Contains(steady, path.Base(name)) }

// passingValues are those that change by themselves, or name the machine, by what they are replaced with.
var passingValues = []struct {
	pattern *regexp.Regexp
	value   string
}{
	{regexp.MustCompile(`\[\d+:\d+\]`), "[0:0]"},
	{regexp.MustCompile(`("(?:packets|bytes|refcnt|used|confirmed|updated|probes|num_learned)": ?)\d+`), "${1}0"},
	{regexp.MustCompile(`("(?:machineID|systemUUID|bootID)": ?)"[^"]*"`), `${1}""`},
	{regexp.MustCompile(`("expires": ?)\d+`), "${1}0"},
	{regexp.MustCompile(`("(?:[a-z_]+_timer|topology_change_ack|config_pending)": ?)[0-9.]+`), "${1}0"},
	{regexp.MustCompile(`"(?:REACHABLE|DELAY|PROBE)"`), `"STALE"`},
	{regexp.MustCompile(`("(?:resourceVersion)": ?)"\d+"`), `${1}"1"`},
	{regexp.MustCompile(`(\d+\.\d+\.\d+)-[a-z0-9-]+( #|")`), "$1$2"}, // the local version of the kernel
	{regexp.MustCompile(`(?m)^# (?:Generated|Completed).*\n`), ""},
}

// normalised are the files of a dump, one value a line where they are JSON, without what changes by itself.
func normalised(t *testing.T, dump string) map[string][]byte {
	t.Helper()
	f, err := os.Open(dump)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(path.Clean(h.Name), "./")
		if h.Typeflag != tar.TypeReg || slices.Contains(unrecorded, path.Base(name)) {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.Index(name, "cluster/"); i > 0 && !strings.HasPrefix(name, "nodes/") {
			name = name[i:]
		}
		files[name] = normal(t, name, data)
	}
}

func normal(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	switch path.Base(name) {
	case snapshot.MetricsFile:
		data = only(data, `^(# (HELP|TYPE) )?(kubeproxy_|kubernetes_build_info)`)
		data = regexp.MustCompile(`git_commit="[^"]*"`).ReplaceAll(data, []byte(`git_commit=""`))
	case snapshot.ListenFile:
		data = sorted(data)
	}
	if strings.HasSuffix(name, ".json") {
		var err error
		if data, err = spread(data); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, p := range passingValues {
		data = p.pattern.ReplaceAll(data, []byte(p.value))
	}
	return data
}

// spread writes JSON in many lines: one for each element of a list, or of the only list of an object, as the rules of
// nft; else one for each value.
func spread(data []byte) ([]byte, error) {
	var elements []json.RawMessage
	var object map[string]json.RawMessage
	before, after := "[\n", "]\n"
	if json.Unmarshal(data, &object) == nil && len(object) == 1 {
		for key, value := range object {
			if json.Unmarshal(value, &elements) == nil {
				before, after = fmt.Sprintf("{%q: [\n", key), "]}\n"
			}
		}
	} else if object == nil {
		if err := json.Unmarshal(data, &elements); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	if elements == nil {
		err := json.Indent(&b, bytes.TrimSpace(data), "", " ")
		return append(b.Bytes(), '\n'), err
	}
	b.WriteString(before)
	for i, e := range elements {
		if i > 0 {
			b.WriteString(",") // in front: a line more changes no other
		}
		if err := json.Compact(&b, e); err != nil {
			return nil, err
		}
		b.WriteString("\n")
	}
	b.WriteString(after)
	return b.Bytes(), nil
}

// only keeps the lines that match.
func only(data []byte, pattern string) []byte {
	keep := regexp.MustCompile(pattern)
	var out []byte
	for line := range bytes.Lines(data) {
		if keep.Match(line) {
			out = append(out, line...)
		}
	}
	return out
}

func sorted(data []byte) []byte {
	lines := slices.Sorted(strings.Lines(string(data)))
	return []byte(strings.Join(lines, ""))
}
