// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An expirer is a process that undoes one record when its time is over and its holder has not: it outlives the holder
// and its container. It is started for records that the kernel does not end by itself, and is in the journal, so that
// whoever undoes the record ends it.

const (
	// holderTime is how long a holder that is still there has for undoing a record by itself.
	holderTime = 10 * time.Second
	// lookAgain is how often an expirer checks whether it is still needed.
	lookAgain = time.Second
	// startTime is how long an expirer has for saying that it runs.
	startTime = 10 * time.Second
	// runs is what an expirer writes then, unless it says why it would end with the container.
	runs = "ok"
)

// outlive makes sure that a record ends at its time also where this process is gone, and has that in the journal. notes
// are for the user: why that is not certain. The lock is held.
func (p *Programmer) outlive(r *Record) (notes []string, err error) {
	// Rules that were written when the kernel could not tell the time still have none, whatever it can by now.
	if r.Expirer == nil && p.modes[r.Mode].endsByItself(r) || r.Expirer != nil && r.Expirer.alive() {
		return nil, nil
	}
	unsure := func(why string) []string {
		return []string{"if this helper and its container are killed, the path stays beyond its time, until kubectl " +
			"svcproxy cleanup removes it: " + why}
	}
	if len(p.o.Expirer) == 0 {
		return unsure("there is no program to end it"), nil
	}
	if r.Expirer != nil { // one that has ended: the next one would leave the record to it
		r.Expirer = nil
		if err := p.journal.write(r); err != nil {
			return nil, err
		}
	}
	expirer, why, err := p.startExpirer(r)
	if err != nil {
		return unsure(err.Error()), nil
	}
	if r.Expirer = &expirer; why != "" {
		notes = unsure(why)
	}
	return notes, p.journal.write(r)
}

// wouldOutlive are the notes of outlive, as far as they are known ahead of it.
func (p *Programmer) wouldOutlive(r *Record) []string {
	if p.modes[r.Mode].endsByItself(r) {
		return nil
	}
	if err := leaveContainer(p.o.Root, true); err != nil {
		return []string{"if the helper and its container were killed, the path would stay beyond its time: " + err.Error()}
	}
	return nil
}

// startExpirer starts a process in a session of its own, without this one's standard input and output. why is what
// keeps it from outliving the container.
func (p *Programmer) startExpirer(r *Record) (expirer Process, why string, err error) {
	// Programs that this process runs inherit the lock (see journal.lock). This one must not: it takes it for itself.
	p.mu.Lock()
	fd := p.locked.Fd()
	p.mu.Unlock()
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return expirer, "", err
	}
	defer func() {
		_, again := unix.FcntlInt(fd, unix.F_SETFD, 0)
		err = errors.Join(err, again)
	}()
	answer, theirs, err := os.Pipe()
	if err != nil {
		return expirer, "", err
	}
	defer answer.Close()
	argv := slices.Concat(p.o.Expirer[1:], []string{"--root", p.o.Root, r.Plan.Name})
	cmd := exec.Command(p.o.Expirer[0], argv...) //nolint:gosec,noctx // this program; it outlives every context
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{theirs}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err = errors.Join(err, theirs.Close()); err != nil {
		return expirer, "", fmt.Errorf("the process that ends the path cannot be started: %w", err)
	}
	go func() { _ = cmd.Wait() }() // takes note of its end, if that comes before this process's
	said := []byte(nil)
	if err = answer.SetReadDeadline(time.Now().Add(startTime)); err == nil {
		said, err = io.ReadAll(answer)
	}
	if err == nil {
		expirer, err = processOf(cmd.Process.Pid)
	}
	if err == nil && len(said) == 0 {
		err = errors.New("it ended without any output")
	}
	if err != nil {
		return expirer, "", errors.Join(fmt.Errorf("the process that ends the path: %w", err), cmd.Process.Kill())
	}
	if string(said) != runs {
		why = string(said)
	}
	return expirer, why, nil
}

// Expire is what an expirer runs: it waits until the record of a plan has expired, and undoes it if nobody else has. It
// returns when there is no such record any more, when another process is responsible for it, and in any case undoTime
// after it began to undo it. First it writes to started whether it outlives its container, or why not, and closes that.
func (p *Programmer) Expire(ctx context.Context, plan string, started io.WriteCloser) error {
	said := runs
	if err := leaveContainer(p.o.Root, false); err != nil {
		said = err.Error()
	}
	// With the value of a pod without requests it would be the first process that the kernel ends where memory is short.
	// Not every helper may change it.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0o644) //nolint:gosec // it is there
	if _, err := io.WriteString(started, said); err != nil {
		return err
	}
	if err := started.Close(); err != nil {
		return err
	}
	self, err := processOf(os.Getpid())
	if err != nil {
		return err
	}
	w := recordWatch{path: p.journal.path(plan), journal: p.journal}
	var failed error
	var end time.Time // of what is tried, of which the first may be late: a machine that sleeps stops this process, too
	for {
		r, err := w.read()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case r.Expirer != nil && *r.Expirer != self:
			return nil
		case failed != nil && time.Now().After(end):
			return fmt.Errorf("%s could not be undone in time: %w", strings.Join(r.Plan.Services, ", "), failed)
		}
		due := r.Expires
		if r.Holder.alive() {
			due = due.Add(holderTime)
		}
		wait := min(time.Until(due), lookAgain)
		if wait <= 0 {
			if end.IsZero() {
				end = time.Now().Add(undoTime)
			}
			if failed = p.undoExpired(ctx, r, end); failed == nil {
				return nil
			}
			wait = lookAgain
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// undoExpired undoes a record that has expired, unless it has been changed since it was read. One that nobody can read
// any more is undone as it was read before.
func (p *Programmer) undoExpired(ctx context.Context, read *Record, end time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := p.journal.read(p.journal.path(read.Plan.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		r = read
	case time.Now().Before(r.Expires):
		return errors.New("its time was extended") // it is read again
	}
	return p.undo(ctx, r)
}

// recordWatch reads a record again only where its file is another one. Where that cannot be read it keeps to the last
// one that could.
type recordWatch struct {
	journal journal
	path    string
	file    fs.FileInfo
	record  *Record
}

func (w *recordWatch) read() (*Record, error) {
	file, err := os.Stat(w.path)
	if err != nil {
		return nil, err
	}
	if w.file == nil || !os.SameFile(file, w.file) || !file.ModTime().Equal(w.file.ModTime()) {
		r, err := w.journal.read(w.path)
		switch {
		case err == nil:
			w.record, w.file = r, file
		case w.record == nil || errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	w.record.Expires = expiry(w.record.Ends)
	return w.record, nil
}

// end ends the expirer of a plan, unless it is this process, or gone. Another process is not touched, be it of the same
// number or named by a record that somebody else has written. The plan's record is gone already, so that the expirer
// would end by itself, if only some time later.
func (p *Process) end(plan string) error {
	if p == nil || p.PID == os.Getpid() {
		return nil
	}
	process, err := os.FindProcess(p.PID) // from here on it is this process alone
	if err != nil {
		return err
	}
	defer process.Release() //nolint:errcheck // frees memory
	if !p.alive() || !expires(p.PID, plan) {
		return nil
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("the process %d that would have ended the path: %w", p.PID, err)
	}
	return nil
}

// expires tells whether a process is an expirer of a plan by its command line, which startExpirer has made.
func expires(pid int, plan string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	words := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	n := len(words)
	return err == nil && n > 3 && words[n-3] == "--root" && words[n-1] == plan
}
