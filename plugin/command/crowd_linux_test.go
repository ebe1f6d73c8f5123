// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Beside 100,000 rules of others, which no packet of a Service matches, and 65,000 connections, the verdict is what it
// is without them, within the limits.
func TestBesideManyRulesAndConnections(t *testing.T) {
	verify := func(path string) (code int, last string, memory uint64) {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		memory = peak(func() { code = Main(t.Context(), []string{"verify", "-A", "--snapshot", path}, streams, System{}) })
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return code, lines[len(lines)-1], memory
	}
	code, want, _ := verify(broken)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, saveFile)
	rules, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]string{}
	for table, chain := range map[string]string{"filter": "FORWARD", "nat": "PREROUTING"} {
		var b strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&b, "-A %s -s 198.18.%d.%d/32 -p tcp -m tcp --dport %d -j ACCEPT\n", chain, i/256, i%256, i+1)
		}
		others[table] = b.String()
	}
	var crowded bytes.Buffer
	table := ""
	for line := range strings.Lines(string(rules)) {
		if strings.HasPrefix(line, "*") {
			table = strings.TrimSpace(line[1:])
		}
		if line == "COMMIT\n" {
			crowded.WriteString(others[table])
		}
		crowded.WriteString(line)
	}
	var connections bytes.Buffer
	for i := range 65_000 {
		fmt.Fprintf(&connections, "ipv4     2 udp      17 29 src=198.18.%[1]d.%[2]d dst=198.51.100.1 sport=%[3]d dport=53 "+
			"[UNREPLIED] src=198.51.100.1 dst=198.18.%[1]d.%[2]d sport=53 dport=%[3]d mark=0 use=1\n", i/256, i%256, i+1)
	}
	err = os.WriteFile(file, crowded.Bytes(), 0o600)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, node, "conntrack.txt"), connections.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, last, memory := verify(dir)
	if got != code || last != want {
		t.Errorf("exit code %d, and was %d: %s; and was: %s", got, code, last, want)
	}
	if memory > hostileMemory {
		t.Errorf("it took %d MB", memory>>20)
	}
}
