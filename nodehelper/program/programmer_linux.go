// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// Programmer programs one network namespace: this process's. It may be used from several goroutines.
type Programmer struct {
	o       Options
	journal journal
	modes   map[string]backend

	mu   sync.Mutex
	held map[string]*Record // what this process holds, by the plan's name
}

// backend writes one mode.
type backend interface {
	// check says why the node cannot do what is asked for; a RefusalError.
	check(ctx context.Context, r *Record) error
	// remember notes what undoing has to know. Of an update it has the Before of what that replaces, and brings it up to
	// the new plan.
	remember(ctx context.Context, r *Record) error
	// plan says what apply would do.
	plan(ctx context.Context, r *Record) (*wire.ProgramResult, error)
	// apply makes the node as the record says. It changes all at once, or nothing, for each family.
	apply(ctx context.Context, r *Record) error
	// undo takes away what the record speaks of, whatever of it is there.
	undo(ctx context.Context, r *Record) error
}

// New makes a Programmer. It touches nothing yet.
func New(o Options) (*Programmer, error) {
	if o.Root == "" {
		o.Root = "/"
	}
	dir, err := journalDirOf(o.Root)
	if err != nil {
		return nil, err
	}
	p := &Programmer{o: o, held: map[string]*Record{}}
	p.journal.dir = dir
	if o.Roots == nil {
		p.o.Roots = func() []string { return []string{"/"} }
	}
	rules := iptables{roots: sync.OnceValue(p.o.Roots), rules: iptRules, journal: p.journal}
	around := rules
	around.rules = ipvsRules
	p.modes = map[string]backend{
		wire.IPTables:  &rules,
		wire.NFTables:  &nftables{open: sync.OnceValues(openNFT)},
		wire.IPVS:      &ipvsMode{rules: around, journal: p.journal, root: o.Root},
		wire.Userspace: &userspace{iptables: &rules, proxies: map[string]*proxy{}},
	}
	return p, nil
}

// lock keeps every other Programmer of the namespace out until unlock is called, which removes what of the journal is
// empty.
func (p *Programmer) lock(ctx context.Context) (unlock func(), err error) {
	for {
		f, err := p.journal.lock()
		switch {
		case err == nil:
			return func() { p.journal.unlock(f) }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) && !errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("cannot lock the journal: %w", err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("another helper changes this node: %w", context.Cause(ctx))
		}
	}
}

// Apply programs a plan, or replaces an earlier state of it by this run. Its error is a RefusalError where that would
// not be safe; then, and on any other error, the node is as before.
func (p *Programmer) Apply(ctx context.Context, req *Request) (*wire.ProgramResult, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	mode := p.modes[req.Mode]
	if mode == nil {
		return nil, fmt.Errorf("%q is no mode: %s are", req.Mode, strings.Join(wire.Modes, ", "))
	}
	if err := p.reach(req); err != nil {
		return nil, err
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := time.Now()
	self, err := processOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	r := &Record{
		Version: recordVersion, Plan: *req.Plan, Mode: req.Mode, Backend: req.Backend, Scheduler: req.Scheduler, Log: req.Log,
		By: req.By, Run: req.Run,
		Created: now, Expires: now.Add(req.TTL), Holder: self,
	}
	there, err := p.settle(ctx, r, req.DryRun)
	if err != nil {
		return nil, err
	}
	if there != nil && same(there, r) {
		return &wire.ProgramResult{
			What: wire.Unchanged, Plan: r.Plan.Name, Mode: r.Mode, Expires: there.Expires, By: there.By,
		}, nil
	}
	what := wire.Programmed
	if there != nil {
		what, r.Before, r.Created, r.Earlier = wire.Updated, there.Before, there.Created, &there.Plan
	}
	if err := mode.check(ctx, r); err != nil {
		return nil, err
	}
	if err := mode.remember(ctx, r); err != nil {
		return nil, err
	}
	if req.DryRun {
		result, err := mode.plan(ctx, r)
		if err != nil {
			return nil, err
		}
		result.What, result.Plan, result.Mode = wire.Planned, r.Plan.Name, r.Mode
		return result, nil
	}
	if err := p.journal.write(r); err != nil {
		return nil, fmt.Errorf("nothing was changed, as the journal cannot be written: %w", err)
	}
	if err := mode.apply(ctx, r); err != nil {
		return nil, p.rollBack(r, err)
	}
	earlier := r.Earlier
	r.Earlier, r.Complete = nil, true
	if err := p.journal.write(r); err != nil {
		r.Earlier = earlier
		return nil, p.rollBack(r, err)
	}
	p.mu.Lock()
	p.held[r.Plan.Name] = r
	p.mu.Unlock()
	return &wire.ProgramResult{What: what, Plan: r.Plan.Name, Mode: r.Mode, Expires: r.Expires}, nil
}

// undoTime bounds undoing, which goes on when the context of what failed has ended.
const undoTime = 2 * time.Minute

// rollBack undoes a change that failed.
func (p *Programmer) rollBack(r *Record, why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	if err := p.undo(ctx, r); err != nil {
		return errors.Join(why, fmt.Errorf("and it could not be taken back: %w", err))
	}
	return why
}

// settle compares a record with those of the journal. It returns the record of the same plan, if a running process
// holds it. A record of the same plan or the same frontends whose process has ended is undone.
func (p *Programmer) settle(ctx context.Context, r *Record, dryRun bool) (there *Record, err error) {
	records, err := p.journal.list()
	if err != nil {
		return nil, err
	}
	for _, old := range records {
		mine := old.Plan.Name == r.Plan.Name
		shared := overlap(&old.Plan, &r.Plan)
		if !mine && shared == nil {
			continue
		}
		alive := old.Holder.alive()
		switch {
		case mine && alive && old.Mode == r.Mode && old.Backend == r.Backend && (old.Run == r.Run || same(old, r)):
			there = old
		case alive:
			what := r.Plan.Name
			if shared != nil {
				what = fmt.Sprintf("%s at %s", shared.Port, shared.Address)
			}
			return nil, RefusalError(fmt.Sprintf("%s is programmed on this node already, in %s mode, by %s, until %s: wait, "+
				"or end that with cleanup --running", what, old.Mode, old.By, old.Expires.Format(time.RFC3339)))
		case dryRun:
			return nil, RefusalError(fmt.Sprintf("%s left %s programmed, and is gone: undo that first, with cleanup", old.By,
				strings.Join(old.Plan.Services, ", ")))
		default:
			if err := p.undo(ctx, old); err != nil {
				return nil, fmt.Errorf("what %s left programmed cannot be undone: %w", old.By, err)
			}
		}
	}
	return there, nil
}

// same tells whether two records ask for the same.
func same(a, b *Record) bool {
	x, errX := json.Marshal(&a.Plan)
	y, errY := json.Marshal(&b.Plan)
	return a.Mode == b.Mode && a.Backend == b.Backend && a.Scheduler == b.Scheduler && a.Complete && errX == nil &&
		errY == nil && bytes.Equal(x, y)
}

// undo undoes a record, and forgets it. The lock is held.
func (p *Programmer) undo(ctx context.Context, r *Record) error {
	mode := p.modes[r.Mode]
	if mode == nil {
		return fmt.Errorf("%q is no mode that this program knows", r.Mode)
	}
	if r.Complete {
		r.Complete = false
		// Where that cannot be written, whoever has to go on with this takes it for whole, and undoes it at its time.
		_ = p.journal.write(r)
	}
	if err := mode.undo(ctx, r); err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.held, r.Plan.Name)
	p.mu.Unlock()
	return p.journal.remove(r.Plan.Name)
}

// Undo undoes records, wire.UndoMine, wire.UndoDead or wire.UndoAll of them, and returns those that are undone.
func (p *Programmer) Undo(ctx context.Context, which string) (undone []*Record, err error) {
	if which == wire.UndoMine && len(p.Held()) == 0 {
		return nil, nil
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	records, err := p.journal.list()
	errs := []error{err}
	if !slices.Contains([]string{wire.UndoMine, wire.UndoDead, wire.UndoAll}, which) {
		return nil, fmt.Errorf("%q says nothing of what to undo", which)
	}
	for _, r := range records {
		if which == wire.UndoMine && !p.holds(r) || which == wire.UndoDead && r.Holder.alive() {
			continue
		}
		if err := p.undo(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.Join(r.Plan.Services, ", "), err))
			continue
		}
		undone = append(undone, r)
	}
	return undone, errors.Join(errs...)
}

// Adopt takes over what a helper of the same run left that is gone: this process holds it from now on.
func (p *Programmer) Adopt(ctx context.Context, run string) error {
	if _, err := os.Stat(p.journal.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	records, err := p.journal.list()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Run != run || r.Holder.alive() {
			continue
		}
		// A proxy ends with its process.
		if !r.Complete || r.Mode == wire.Userspace || time.Now().After(r.Expires) {
			if err := p.undo(ctx, r); err != nil {
				return err
			}
			continue
		}
		if r.Holder, err = processOf(os.Getpid()); err != nil {
			return err
		}
		if err := p.journal.write(r); err != nil {
			return err
		}
		p.mu.Lock()
		p.held[r.Plan.Name] = r
		p.mu.Unlock()
	}
	return nil
}

// Held returns what this process holds, the first to expire first.
func (p *Programmer) Held() []*Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*Record, 0, len(p.held))
	for _, r := range p.held {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *Record) int { return a.Expires.Compare(b.Expires) })
	return out
}

func (p *Programmer) holds(r *Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[r.Plan.Name] != nil
}

// Hold waits until what this process holds has expired, and undoes it; all of it where the context ends.
func (p *Programmer) Hold(ctx context.Context) error {
	for {
		held := p.Held()
		if len(held) == 0 {
			return nil
		}
		select {
		case <-time.After(time.Until(held[0].Expires)):
		case <-ctx.Done():
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		err := p.expire(end, ctx.Err() != nil)
		cancel()
		if err != nil {
			return err
		}
	}
}

// expire undoes what is past its time, or all.
func (p *Programmer) expire(ctx context.Context, all bool) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, r := range p.Held() {
		if all || time.Now().After(r.Expires) {
			if err := p.undo(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// processOf describes a process of the node that runs.
func processOf(pid int) (Process, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	// The name in parentheses may hold anything (proc_pid_stat(5)).
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const starttime = 22 - 3
	if len(fields) <= starttime {
		return Process{}, fmt.Errorf("/proc/%d/stat is cut short", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return Process{}, os.ErrNotExist // it has ended, and nobody has taken note
	}
	started, err := strconv.ParseUint(fields[starttime], 10, 64)
	return Process{PID: pid, Started: started}, err
}

// alive tells whether the process still runs. A process whose state cannot be read counts as alive: its changes must
// not be undone by another one.
func (p Process) alive() bool {
	now, err := processOf(p.PID)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH)
	}
	return now == p
}
