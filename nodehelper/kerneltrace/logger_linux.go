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

// journalDir is the directory of the journals below the node's root. What is in /run does not outlive a restart, nor
// does what they are about.
const journalDir = "run/svcproxy-trace"

// The sysctls that name the kernel's logger of each family (nf_log_proc_dostring in net/netfilter/nf_log.c), and the
// logger that sends over netlink.
const (
	loggerSysctls = "/proc/sys/net/netfilter/nf_log/"
	netlinkLogger = "nfnetlink_log"
)

// loggedFamilies are those whose logger is changed.
var loggedFamilies = []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}

// Logger makes the kernel report which rules of iptables-legacy a traced packet traverses: ip_tables writes that to the
// kernel's log only, which is sent over netlink as long as the Logger is open. It belongs to this process's network
// namespace.
type Logger struct {
	journal *os.File        // has the content of before; it is locked
	before  map[byte]string // the loggers that were replaced, by family
}

// HasLegacy tells whether the network namespace has tables of iptables-legacy.
func HasLegacy() (bool, error) {
	v4, err4 := tools.HasLegacyTables(false)
	v6, err6 := tools.HasLegacyTables(true)
	return v4 || v6, errors.Join(err4, err6)
}

// Log makes a Listener receive events of iptables-legacy, too. root is the node's file system: a journal of the loggers
// that will be replaced is written below its /run, and synced, before the change. The caller closes the Logger before
// the Listener; [Restore] undoes the change of a process that was killed. It is an error if another program of the
// network namespace receives nfnetlink_log's group 0, which traces are sent to.
func Log(l *Listener, root string) (*Logger, error) {
	g, err := takeJournal(root)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.New("another helper traces rules of iptables-legacy on this node")
	}
	if err != nil {
		return nil, fmt.Errorf("the journal of tracing: %w", err)
	}
	// First the change of a killed process is undone, which is not to be taken for the original state.
	if err := errors.Join(g.readJournal(), g.restore()); err != nil {
		return nil, errors.Join(err, g.journal.Close())
	}
	if err := g.change(l); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// change replaces the loggers.
func (g *Logger) change(l *Listener) error {
	if err := l.listenToLog(); errors.Is(err, unix.EPERM) {
		return errors.New("another program listens to nfnetlink_log's group 0, " +
			"where the kernel reports rules of iptables-legacy")
	} else if err != nil {
		return fmt.Errorf("nfnetlink_log: %w", err)
	}
	replaced := map[byte]string{}
	for _, family := range loggedFamilies {
		name, err := os.ReadFile(loggerSysctl(family))
		if err != nil {
			return err
		}
		if s := strings.TrimSpace(string(name)); s != netlinkLogger {
			replaced[family] = s
		}
	}
	if len(replaced) == 0 {
		return nil
	}
	if err := g.writeJournal(replaced); err != nil {
		return fmt.Errorf("nothing was changed, as the journal cannot be written: %w", err)
	}
	g.before = replaced
	for family := range replaced {
		if err := os.WriteFile(loggerSysctl(family), []byte(netlinkLogger), 0); err != nil {
			return err
		}
	}
	return nil
}

func loggerSysctl(family byte) string { return loggerSysctls + strconv.Itoa(int(family)) }

// Close restores the loggers that were there before, and removes the journal.
func (g *Logger) Close() error {
	if err := g.restore(); err != nil {
		return errors.Join(err, g.journal.Close()) // the journal remains for Restore
	}
	name := g.journal.Name()
	err := os.Remove(name)
	_ = os.Remove(filepath.Dir(name)) // fails if there is the journal of another network namespace
	return errors.Join(err, g.journal.Close())
}

// restore sets the loggers to what they were, except where somebody else has set another one in the meantime.
func (g *Logger) restore() error {
	for family, before := range g.before {
		now, err := os.ReadFile(loggerSysctl(family))
		if err == nil && strings.TrimSpace(string(now)) == netlinkLogger {
			err = os.WriteFile(loggerSysctl(family), []byte(before), 0)
		}
		if err != nil {
			return fmt.Errorf("%s cannot be set back to %s: %w", loggerSysctl(family), before, err)
		}
	}
	g.before = nil
	return nil
}

// takeJournal opens the journal of this network namespace, which it makes if there is none, and locks it as long as it
// is open. The error is EWOULDBLOCK if another process has it.
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

// readJournal sets before to what the journal says; to nothing if it was not written completely, as then nothing was
// changed.
func (g *Logger) readJournal() error {
	data, err := io.ReadAll(g.journal)
	if err != nil {
		return err
	}
	if json.Unmarshal(data, &g.before) != nil {
		g.before = nil
	}
	return nil
}

// writeJournal writes the loggers that will be replaced, and returns when the file is synced.
func (g *Logger) writeJournal(before map[byte]string) error {
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

// Restore undoes the change of a process that was killed. It does nothing if there is none, or if the process is
// running.
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
	return errors.Join(g.readJournal(), g.Close())
}
