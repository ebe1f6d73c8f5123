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
	rules   *iptables
	tables  *nftables

	mu   sync.Mutex
	held map[string]*Record // what this process holds, by the plan's name

	locked *os.File // the journal's lock, while it is held
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
	// undo takes away what the record speaks of, whatever of it is there. What others have made, or use now, stays, and is
	// added to the record's Left.
	undo(ctx context.Context, r *Record) error
	// endsByItself tells whether the kernel keeps new connections from what apply wrote when the record has expired.
	endsByItself(r *Record) bool
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
	if p.o.Log == nil {
		p.o.Log = func(string) {}
	}
	rules := iptables{roots: sync.OnceValue(p.o.Roots), rules: iptRules, journal: p.journal}
	rules.hasTime = timeProbe(o.Root, &rules)
	around := rules
	around.rules = ipvsRules
	p.rules, p.tables = &rules, &nftables{open: sync.OnceValues(openNFT)}
	p.modes = map[string]backend{
		wire.IPTables:  &rules,
		wire.NFTables:  p.tables,
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
			p.mu.Lock()
			p.locked = f
			p.mu.Unlock()
			return func() { p.journal.unlock(f) }, nil
		case !errors.Is(err, os.ErrNotExist) && !scarce(err): // EWOULDBLOCK is EAGAIN
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
// not be safe; then the node is as before. On any other error nothing of the plan is left programmed: where a change of
// it fails half-way, no state of it can be relied on, so that the earlier one is undone too, and the error says so.
func (p *Programmer) Apply(ctx context.Context, req *Request) (*wire.ProgramResult, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	mode := p.modes[req.Mode]
	if mode == nil {
		return nil, fmt.Errorf("%q is not a mode: use one of %s", req.Mode, strings.Join(wire.Modes, ", "))
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
	there, notes, err := p.settle(ctx, r, req.DryRun)
	if err != nil {
		return nil, err
	}
	if there != nil && !now.Before(there.Expires) {
		return nil, RefusalError(fmt.Sprintf("the time of %s ended at %s, and cannot be extended: its helper is removing it",
			r.Plan.Name, there.Expires.Format(time.RFC3339)))
	}
	if there != nil && same(there, r) {
		return &wire.ProgramResult{
			What: wire.Unchanged, Plan: r.Plan.Name, Mode: r.Mode, Expires: there.Expires, By: there.By, Notes: notes,
		}, nil
	}
	what := wire.Programmed
	if there != nil {
		what, r.Before, r.Created, r.Earlier = wire.Updated, there.Before, there.Created, &there.Plan
		r.Expires, r.Ends, r.Expirer = there.Expires, there.Ends, there.Expirer // nothing extends the time
	}
	if err := mode.check(ctx, r); err != nil {
		return nil, err
	}
	if there == nil {
		what, err := p.taken(ctx, r)
		if err != nil {
			return nil, err
		}
		if what != "" {
			return nil, RefusalError(what + " already exists, and no record of the journal mentions it: remove it first, " +
				"with cleanup if a helper created it")
		}
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
		result.Notes = slices.Concat(notes, p.wouldOutlive(r))
		return result, nil
	}
	if err := p.journal.write(r); err != nil {
		return nil, fmt.Errorf("nothing was changed, as the journal cannot be written: %w", err)
	}
	uncertain, err := p.outlive(r)
	notes = append(notes, uncertain...)
	if err == nil {
		err = mode.apply(ctx, r)
	}
	if err != nil {
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
	return &wire.ProgramResult{What: what, Plan: r.Plan.Name, Mode: r.Mode, Expires: r.Expires, Notes: notes}, nil
}

// rollBack undoes a change that failed.
func (p *Programmer) rollBack(r *Record, why error) error {
	updated := r.Earlier != nil
	if err := p.undo(context.Background(), r); err != nil {
		return errors.Join(why, fmt.Errorf("and it could not be undone: %w", err))
	}
	if updated {
		return fmt.Errorf("%w (the path is no longer programmed: its earlier state was undone as well)", why)
	}
	return why
}

// settle compares a record with those of the journal. It returns the record of the same plan, if a running process
// holds it. A record of the same plan or the same frontends whose process has ended is undone; so is, if that succeeds,
// one whose time is over or that was never complete. notes say what else was found or left.
func (p *Programmer) settle(ctx context.Context, r *Record, dryRun bool) (there *Record, notes []string, err error) {
	records, unreadable, err := p.journal.list()
	if err != nil {
		return nil, nil, err
	}
	for _, u := range unreadable {
		if u.Plan == r.Plan.Name {
			return nil, nil, u
		}
		notes = append(notes, u.Error())
	}
	for _, old := range records {
		mine := old.Plan.Name == r.Plan.Name
		shared := overlap(&old.Plan, &r.Plan)
		alive := old.Holder.alive()
		switch {
		case !mine && shared == nil:
			if !alive && !dryRun && (!old.Complete || time.Now().After(old.Expires)) {
				if err := p.undo(ctx, old); err != nil {
					notes = append(notes, fmt.Sprintf("what %s left programmed cannot be undone: %v", old.By, err))
				}
				notes = append(notes, old.Left...)
			}
		case mine && alive && old.Mode == r.Mode && old.Backend == r.Backend && (old.Run == r.Run || same(old, r)):
			there = old
		case alive:
			what := r.Plan.Name
			if shared != nil {
				what = fmt.Sprintf("%s at %s", shared.Port, shared.Address)
			}
			return nil, nil, RefusalError(fmt.Sprintf("%s is programmed on this node already, in %s mode, by %s, until %s: "+
				"wait, or end that with cleanup --running", what, old.Mode, old.By, old.Expires.Format(time.RFC3339)))
		case dryRun:
			return nil, nil, RefusalError(fmt.Sprintf("%s left %s programmed, and is gone: undo that first, with cleanup",
				old.By, strings.Join(old.Plan.Services, ", ")))
		default:
			if err := p.undo(ctx, old); err != nil {
				return nil, nil, fmt.Errorf("what %s left programmed cannot be undone: %w", old.By, err)
			}
			notes = append(notes, old.Left...)
		}
	}
	return there, notes, nil
}

// same tells whether two records ask for the same.
func same(a, b *Record) bool {
	x, errX := json.Marshal(&a.Plan)
	y, errY := json.Marshal(&b.Plan)
	return a.Mode == b.Mode && a.Backend == b.Backend && a.Scheduler == b.Scheduler && a.Complete && errX == nil &&
		errY == nil && bytes.Equal(x, y)
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
