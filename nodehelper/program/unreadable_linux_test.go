// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// unreadables put something in the place of a record that cannot be read, and are named by a part of what is said.
var unreadables = map[string]func(path string, good []byte) error{
	"unexpected end of JSON input": func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
	"invalid character": func(path string, _ []byte) error {
		return os.WriteFile(path, []byte("\x00garbage"), 0o600)
	},
	"unexpected end of JSON": func(path string, good []byte) error {
		return os.WriteFile(path, good[:len(good)/2], 0o600)
	},
	"it is of version 99": func(path string, good []byte) error {
		return os.WriteFile(path, bytes.Replace(good, []byte(`"version":1`), []byte(`"version":99`), 1), 0o600)
	},
	"it is not a file, but d": func(path string, _ []byte) error { return os.Mkdir(path, 0o700) },
	"it is not a file, but p": func(path string, _ []byte) error { return unix.Mkfifo(path, 0o600) },
	"symbolic link": func(path string, good []byte) error {
		if err := os.WriteFile(path+".elsewhere", good, 0o600); err != nil {
			return err
		}
		return os.Symlink(path+".elsewhere", path)
	},
	"bytes, and may have": func(path string, _ []byte) error {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			return err
		}
		return os.Truncate(path, 1<<40) // without blocks
	},
	"not the name of the file": func(path string, good []byte) error {
		return os.WriteFile(path, bytes.ReplaceAll(good, []byte("ffff0003"), []byte("ffff0004")), 0o600)
	},
	"is not a name of a plan": func(path string, good []byte) error {
		return os.WriteFile(filepath.Join(filepath.Dir(path), "x -j DROP.json"),
			bytes.ReplaceAll(good, []byte("ffff0003"), []byte("x -j DROP")), 0o600)
	},
	"is not a mode": func(path string, good []byte) error {
		return os.WriteFile(path, bytes.Replace(good, []byte(`"mode":"iptables"`), []byte(`"mode":"rm"`), 1), 0o600)
	},
	"the earlier state of the plan is": func(path string, good []byte) error {
		earlier, err := json.Marshal(dualStack())
		if err != nil {
			return err
		}
		return os.WriteFile(path, append(append(good[:len(good)-1:len(good)-1], `,"earlier":`...), append(earlier, '}')...),
			0o600)
	},
	"is not a setting of IPVS": func(path string, good []byte) error {
		return os.WriteFile(path, bytes.Replace(good, []byte(`"before":{`),
			[]byte(`"before":{"ipvs":{"servers":null,"sysctls":{"../../../kernel/hostname":"x"}},`), 1), 0o600)
	},
	"belongs to no frontend of the plan": func(path string, good []byte) error {
		return os.WriteFile(path, bytes.Replace(good, []byte(`"before":{`),
			[]byte(`"before":{"ipvs":{"servers":[{"after":{"protocol":"UDP","address":"10.96.0.53:53"}}]},`), 1), 0o600)
	},
}

// A record that cannot be read keeps no other one from being undone or taken over, and no other Service from being
// programmed. It is named, and its rules are removed by their names; those of others stay.
func TestUnreadableRecord(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for said, put := range unreadables {
		t.Run(said, func(t *testing.T) {
			resetRules(t)
			testutil.Run(t, "", "iptables-nft", "-N", "SVCPROXY-ffff0003-THEIRS")
			testutil.Run(t, "", "iptables-nft", "-A", "FORWARD", "-j", "SVCPROXY-ffff0003-THEIRS")
			testutil.Run(t, "", "nft", "add", "table", "ip", "svcproxy-ffff0003")
			testutil.LegacyTables(t)
			root := t.TempDir()
			old := newProgrammer(t, root)
			other := web(0, "10.244.9.9:8080")
			other.Name = "ffff0003"
			for i := range other.Frontends {
				other.Frontends[i].Address = netip.AddrPortFrom(other.Frontends[i].Address.Addr(), 99)
			}
			if _, err := old.Apply(t.Context(), params(other, wire.IPTables, wire.BackendNFT, "b")); err != nil {
				t.Fatal(err)
			}
			path := old.journal.path(other.Name)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := put(path, good); err != nil {
				t.Fatal(err)
			}
			byName := said != "is not a name of a plan" // otherwise its rules are not known

			prog := newProgrammer(t, root)
			r, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "a"))
			if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], said) ||
				!strings.Contains(r.Notes[0], old.journal.dir) {
				t.Fatalf("another Service: %+v %v", r, err)
			}
			// Its process ends, and the next one takes over.
			var logged []string
			next := dies(t, prog, func(*Record) {})
			next.o.Log = func(line string) { logged = append(logged, line) }
			if err := next.Adopt(t.Context(), "a"); err != nil || len(next.Held()) != 1 || len(logged) != 1 {
				t.Errorf("taken over: %v %v, %q", next.Held(), err, logged)
			}
			if undone, err := next.Undo(t.Context(), wire.UndoMine); err != nil || len(undone) != 1 {
				t.Errorf("its own: %v %v", undone, err)
			}
			// One that is left, and somebody who cleans up.
			if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")); err != nil {
				t.Fatal(err)
			}
			cleaner := dies(t, prog, func(*Record) {})
			undone, err := cleaner.Undo(t.Context(), wire.UndoDead)
			if err == nil || !strings.Contains(err.Error(), said) || len(undone) != 1 ||
				!strings.Contains(testutil.Listing(t, testutil.Rules...), "10.244.9.9") {
				t.Errorf("what is left undone: %v %v", undone, err)
			}
			undone, err = cleaner.Undo(t.Context(), wire.UndoAll)
			if err == nil || !strings.Contains(err.Error(), said) || len(undone) != 0 ||
				strings.Contains(err.Error(), "are removed, by their names") != byName {
				t.Errorf("all undone: %v %v", undone, err)
			}
			got := testutil.Listing(t, testutil.Rules...)
			if strings.Contains(got, "10.244.9.9") == byName || strings.Contains(got, "10.244.1.1") {
				t.Errorf("ours: %s", got)
			}
			for _, theirs := range []string{"-A FORWARD -j SVCPROXY-ffff0003-THEIRS", "table ip svcproxy-ffff0003"} {
				if !strings.Contains(got, theirs) {
					t.Errorf("%s of others is gone: %s", theirs, got)
				}
			}
			if _, err := os.Lstat(path); err != nil && byName {
				t.Errorf("the record: %v", err)
			}
		})
	}
}

// The record of the same plan that cannot be read is not written over.
func TestUnreadableRecordOfTheSamePlan(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	if err := os.MkdirAll(prog.journal.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := prog.journal.path("0123abcd")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := testutil.Listing(t, testutil.Rules...)
	_, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a"))
	if err == nil || !strings.Contains(err.Error(), path+" of the journal cannot be read") {
		t.Errorf("programmed over it: %v", err)
	}
	if got := testutil.Listing(t, testutil.Rules...); got != before {
		t.Errorf("changed to %s", got)
	}
}

// A process knows what it holds also if somebody has changed its record.
func TestOwnRecordIsChanged(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, which := range []string{wire.UndoMine, wire.UndoAll} {
		for said, change := range map[string]func(path string) error{
			"garbage": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, "nothing": os.Remove,
		} {
			resetRules(t)
			before := testutil.Listing(t, testutil.Rules...)
			prog := newProgrammer(t, t.TempDir())
			if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")); err != nil {
				t.Fatal(err)
			}
			if err := change(prog.journal.path("0123abcd")); err != nil {
				t.Fatal(err)
			}
			if undone, err := prog.Undo(t.Context(), which); err != nil || len(undone) != 1 {
				t.Errorf("%s, %s: %v %v", which, said, undone, err)
			}
			if got := testutil.Listing(t, testutil.Rules...); got != before {
				t.Errorf("%s, %s: left: %s", which, said, got)
			}
		}
	}
}

// Whoever programs something also undoes what is over, of whichever Service.
func TestNextProgramUndoesWhatIsOver(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	if _, err := prog.Apply(t.Context(), params(web(0, "10.244.9.9:8080"), wire.NFTables, "", "a")); err != nil {
		t.Fatal(err)
	}
	other := web(0, "10.244.1.1:8080")
	other.Name = "ffff0005"
	for i := range other.Frontends {
		other.Frontends[i].Address = netip.AddrPortFrom(other.Frontends[i].Address.Addr(), 99)
	}
	for _, c := range []struct {
		name   string
		change func(*Record)
		stays  bool
	}{
		{"its time is not over", func(*Record) {}, true},
		{"its time is over", func(r *Record) { r.Ends = sinceStart() - time.Second }, false},
	} {
		next := dies(t, prog, c.change)
		if _, err := next.Apply(t.Context(), params(other, wire.NFTables, "", "b")); err != nil {
			t.Fatal(err)
		}
		if got := testutil.Listing(t, testutil.Rules...); strings.Contains(got, "10.244.9.9") != c.stays {
			t.Errorf("%s: %s", c.name, got)
		}
		if _, err := next.Undo(t.Context(), wire.UndoMine); err != nil {
			t.Fatal(err)
		}
	}
}
