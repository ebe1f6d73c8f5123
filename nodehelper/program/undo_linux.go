// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// undoTime bounds undoing one record, which goes on when the context of what failed has ended. Until then what other
// programs prevent is tried again.
const undoTime = 2 * time.Minute

// undo undoes a record, and forgets it. The lock is held. It goes on when the context has ended.
func (p *Programmer) undo(ctx context.Context, r *Record) error {
	mode := p.modes[r.Mode]
	if mode == nil {
		return fmt.Errorf("%q is not a mode that this program knows", r.Mode)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if r.Complete {
		r.Complete = false
		// Where that cannot be written, whoever has to go on with this takes it for whole, and undoes it at its time.
		_ = p.journal.write(r)
	}
	err := until(ctx, func() (bool, error, error) {
		r.Left = nil
		err := mode.undo(ctx, r)
		if scarce(err) {
			return false, err, nil
		}
		return err == nil, nil, err
	})
	if err != nil {
		return err
	}
	for _, what := range r.Left {
		p.o.Log(strings.Join(r.Plan.Services, ", ") + " is undone: " + what)
	}
	p.forget(r)
	if err := p.journal.remove(r.Plan.Name); err != nil {
		return err
	}
	return r.Expirer.end(r.Plan.Name)
}

// scarce reports whether an error says that the kernel had no memory, file or buffer left for a moment, or that a
// system call or a listing was interrupted: what failed may succeed when it is tried again.
func scarce(err error) bool {
	for _, e := range []error{
		unix.ENOMEM, unix.ENOBUFS, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.EINTR, netlink.ErrDumpInterrupted,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *Programmer) forget(r *Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, r.Plan.Name)
}

// Undo undoes records, wire.UndoMine, wire.UndoDead or wire.UndoAll of them, and returns those that are undone. The
// error names the others, and those that cannot be read; with wire.UndoAll the rules of these are removed by their
// names.
func (p *Programmer) Undo(ctx context.Context, which string) (undone []*Record, err error) {
	if !slices.Contains([]string{wire.UndoMine, wire.UndoDead, wire.UndoAll}, which) {
		return nil, fmt.Errorf("%q does not say what to undo", which)
	}
	if which == wire.UndoMine && len(p.Held()) == 0 {
		return nil, nil
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// What this process holds it knows also where others have changed the journal.
	held := p.stillHeld()
	var errs []error
	do := func(r *Record) {
		if err := p.undo(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.Join(r.Plan.Services, ", "), err))
			return
		}
		undone = append(undone, r)
	}
	if which != wire.UndoDead {
		for _, r := range held {
			do(r)
		}
	}
	if which == wire.UndoMine {
		return undone, errors.Join(errs...)
	}
	records, unreadable, err := p.journal.list()
	errs = append(errs, err)
	for _, r := range records {
		if isHeld(held, r.Plan.Name) || which == wire.UndoDead && r.Holder.alive() {
			continue
		}
		do(r)
	}
	for _, u := range unreadable {
		if isHeld(held, u.Plan) {
			continue
		}
		if which == wire.UndoAll {
			errs = append(errs, p.undoByName(ctx, u))
		}
		errs = append(errs, u)
	}
	return undone, errors.Join(errs...)
}

// stillHeld forgets what this process held and others have programmed since, after somebody had undone it: that is of
// the same name, and theirs. It returns the rest. The lock is held.
func (p *Programmer) stillHeld() []*Record {
	return slices.DeleteFunc(p.Held(), func(r *Record) bool {
		now, err := p.journal.read(p.journal.path(r.Plan.Name))
		theirs := err == nil && now.Holder != r.Holder
		if theirs {
			p.forget(r)
		}
		return theirs
	})
}

func isHeld(held []*Record, name string) bool {
	return slices.ContainsFunc(held, func(r *Record) bool { return r.Plan.Name == name })
}

// undoByName removes the rules of a record that cannot be read, of all modes and backends, by the name of its plan. The
// record stays: what else it speaks of is not known.
func (p *Programmer) undoByName(ctx context.Context, u *UnreadableError) error {
	if !plan.IsName(u.Plan) {
		return nil // no rules have such a name
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	left, err := p.rules.undoByName(ctx, u.Plan)
	for _, what := range left {
		u.Err = fmt.Errorf("%w; %s", u.Err, what)
	}
	u.byName = err == nil
	return err
}

// Adopt takes over what a helper of the same run left that is gone: this process holds it from now on. What is not to
// be held is undone. A record that cannot be read, or not be undone, keeps no other from being taken over.
func (p *Programmer) Adopt(ctx context.Context, run string) error {
	if _, err := os.Stat(p.journal.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	records, unreadable, err := p.journal.list()
	if err != nil {
		return err
	}
	for _, u := range unreadable {
		p.o.Log(u.Error())
	}
	var errs []error
	for _, r := range records {
		if r.Run == run && !r.Holder.alive() {
			errs = append(errs, p.adopt(ctx, r))
		}
	}
	return errors.Join(errs...)
}

func (p *Programmer) adopt(ctx context.Context, r *Record) (err error) {
	// A proxy ends with its process.
	if !r.Complete || r.Mode == wire.Userspace || time.Now().After(r.Expires) {
		return p.undo(ctx, r)
	}
	if r.Holder, err = processOf(os.Getpid()); err != nil {
		return err
	}
	if err := p.journal.write(r); err != nil {
		return err
	}
	// The user was told of what is uncertain when the record was made.
	if _, err := p.outlive(r); err != nil {
		return err
	}
	p.mu.Lock()
	p.held[r.Plan.Name] = r
	p.mu.Unlock()
	return nil
}

// Hold waits until what this process holds has expired, and undoes it; all of it where the context ends. Where undoing
// one path fails, the others are held on, and it is tried again whenever one of them ends; the error says what is left.
func (p *Programmer) Hold(ctx context.Context) error {
	failed := map[string]error{}
	for {
		held := slices.DeleteFunc(p.Held(), func(r *Record) bool { return failed[r.Plan.Name] != nil })
		if len(held) == 0 {
			return joined(failed)
		}
		select {
		case <-time.After(time.Until(held[0].Expires)):
		case <-ctx.Done():
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		failed = p.expire(end, ctx.Err() != nil)
		cancel()
	}
}

// joined joins errors in the order of their keys.
func joined(by map[string]error) error {
	errs := make([]error, 0, len(by))
	for _, name := range slices.Sorted(maps.Keys(by)) {
		errs = append(errs, by[name])
	}
	return errors.Join(errs...)
}

// expire undoes what is past its time, or all, and returns the errors by the names of the paths.
func (p *Programmer) expire(ctx context.Context, all bool) map[string]error {
	failed := map[string]error{}
	ended := func(r *Record) bool { return all || time.Now().After(r.Expires) }
	fails := func(r *Record, err error) {
		failed[r.Plan.Name] = fmt.Errorf("%s: %w", strings.Join(r.Plan.Services, ", "), err)
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		for _, r := range p.Held() {
			if ended(r) {
				fails(r, err)
			}
		}
		return failed
	}
	defer unlock()
	for _, r := range p.stillHeld() {
		if _, err := os.Stat(p.journal.path(r.Plan.Name)); errors.Is(err, os.ErrNotExist) {
			p.forget(r) // somebody else has undone it
			continue
		}
		if ended(r) {
			if err := p.undo(ctx, r); err != nil {
				fails(r, err)
			}
		}
	}
	return failed
}
