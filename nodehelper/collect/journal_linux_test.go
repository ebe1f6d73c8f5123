// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The journal is listed, also where there is none: an absent record is then known to be absent. What was in it before
// the rules were read is in the file, also if it has gone meanwhile.
func TestJournalIsCollected(t *testing.T) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	read := func(before *snapshot.Journal) *snapshot.Journal {
		t.Helper()
		data, err := readJournal(t.Context(), &reader{Options: Options{Root: root}, journal: before})
		if err != nil {
			t.Fatal(err)
		}
		j, err := snapshot.NewNode("n", map[string][]byte{snapshot.JournalFile: data}).Journal()
		if err != nil || j == nil {
			t.Fatal(j, err)
		}
		return j
	}
	if j := read(nil); len(j.Records) > 0 || j.Has("0123abcd") {
		t.Errorf("%+v", j)
	}
	dir := filepath.Join(root, "run", "svcproxy", fmt.Sprint(s.Ino))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	record := []byte(`{"mode":"nftables","plan":{"frontends":[{"address":"10.96.0.10:80","protocol":"TCP"}]}}`)
	if err := os.WriteFile(filepath.Join(dir, "0123abcd.json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	j := read(&snapshot.Journal{Records: []snapshot.JournalRecord{{Plan: "ffff0000"}, {Plan: "0123abcd"}}})
	if len(j.Records) != 2 || !j.Has("0123abcd") || !j.Has("ffff0000") || j.Has("00000000") ||
		j.Records[0].Frontends[0] != "10.96.0.10:80/TCP" || !j.HasMode("nftables") || j.HasMode("ipvs") {
		t.Errorf("%+v", j)
	}
	if _, err := readJournal(t.Context(), &reader{}); err == nil {
		t.Error("without the node's file system it is said to be read")
	}
}
