// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/flock"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
)

// journalDir is below the node's /run, whose contents end with the kernel's own state.
const journalDir = "run/svcproxy-trace"

// The setting that says who writes a family's log (net/netfilter/nf_log.c, nf_log_proc_dostring), and our writer: traces come over netlink then.
const (
	loggers = "/proc/sys/net/netfilter/nf_log/"
	netlink = "nfnetlink_log"
)

// withLog are the families whose log is led here.
var withLog = []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}

// Logger has the kernel say which rules of iptables-legacy a traced packet meets: as ip_tables itself tells only the log, the log comes over
// netlink meanwhile. It belongs to this process's network namespace.
type Logger struct {
	journal *os.File        // what was before, locked
	before  map[byte]string // the loggers, by family
}

// HasLegacy tells whether the network namespace has tables of iptables-legacy.
func HasLegacy() (bool, error) {
	v4, err4 := tools.HasLegacyTables(false)
	v6, err6 := tools.HasLegacyTables(true)
	return v4 || v6, errors.Join(err4, err6)
}

// Log has a Listener told of the rules of iptables-legacy, too. root is the node's file system: what is changed is written below its /run, and
// synced, before it is. The caller closes the Logger before the Listener; what a process left that was killed, [Restore] puts back. It is an error
// where another program of the network namespace listens to nfnetlink_log's group 0, where traces go.
func Log(l *Listener, root string) (*Logger, error) {
	g, err := takeJournal(root)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.New("another helper traces rules of iptables-legacy on this node")
	}
	if err != nil {
		return nil, fmt.Errorf("the journal of tracing: %w", err)
	}
	// What was left there is put back first: it is not what was before.
	if err := errors.Join(g.recall(), g.restore()); err != nil {
		return nil, errors.Join(err, g.journal.Close())
	}
	if err := g.change(l); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Logger) change(l *Listener) error {
	if err := l.listenToLog(); errors.Is(err, unix.EPERM) {
		return errors.New("another program listens to nfnetlink_log's group 0, where the kernel reports rules of iptables-legacy")
	} else if err != nil {
		return fmt.Errorf("nfnetlink_log: %w", err)
	}
	now := map[byte]string{}
	for _, family := range withLog {
		name, err := os.ReadFile(loggerOf(family))
		if err != nil {
			return err
		}
		if s := strings.TrimSpace(string(name)); s != netlink {
			now[family] = s
		}
	}
	if len(now) == 0 {
		return nil
	}
	if err := g.note(now); err != nil {
		return fmt.Errorf("nothing was changed, as the journal cannot be written: %w", err)
	}
	g.before = now
	for family := range now {
		if err := os.WriteFile(loggerOf(family), []byte(netlink), 0); err != nil {
			return err
		}
	}
	return nil
}

func loggerOf(family byte) string { return loggers + strconv.Itoa(int(family)) }

// Close puts the loggers back that were there before, and forgets them.
func (g *Logger) Close() error {
	if err := g.restore(); err != nil {
		return errors.Join(err, g.journal.Close()) // the journal stays, for Restore
	}
	name := g.journal.Name()
	err := os.Remove(name)
	_ = os.Remove(filepath.Dir(name)) // not where somebody has come meanwhile
	return errors.Join(err, g.journal.Close())
}

// restore puts the loggers back, but not where somebody else has set another one meanwhile.
func (g *Logger) restore() error {
	for family, before := range g.before {
		now, err := os.ReadFile(loggerOf(family))
		if err == nil && strings.TrimSpace(string(now)) == netlink {
			err = os.WriteFile(loggerOf(family), []byte(before), 0)
		}
		if err != nil {
			return fmt.Errorf("%s cannot be set back to %s: %w", loggerOf(family), before, err)
		}
	}
	g.before = nil
	return nil
}

// takeJournal locks the journal of this network namespace for as long as it is open.
func takeJournal(root string) (*Logger, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return nil, err
	}
	dir := filepath.Join(root, journalDir)
	for {
		err := os.MkdirAll(dir, 0o700)
		var f *os.File
		if err == nil {
			f, err = flock.Take(filepath.Join(dir, strconv.FormatUint(s.Ino, 10)))
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINTR) {
			return &Logger{journal: f}, err
		}
	}
}

// recall reads what the journal says; nothing where it was not written to its end, as then nothing was changed.
func (g *Logger) recall() error {
	data, err := io.ReadAll(g.journal)
	if err != nil {
		return err
	}
	if json.Unmarshal(data, &g.before) != nil {
		g.before = nil
	}
	return nil
}

// note writes what was before, and returns when it is on its medium.
func (g *Logger) note(before map[byte]string) error {
	data, err := json.Marshal(before)
	if err != nil {
		return err
	}
	if err := g.journal.Truncate(0); err != nil {
		return err
	}
	_, err = g.journal.WriteAt(data, 0)
	return errors.Join(err, g.journal.Sync())
}

// Restore puts back what a process changed that is gone. It does nothing where none has, or where the process still is there.
func Restore(root string) error {
	if _, err := os.Stat(filepath.Join(root, journalDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	g, err := takeJournal(root)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the journal of tracing: %w", err)
	}
	return errors.Join(g.recall(), g.Close())
}
