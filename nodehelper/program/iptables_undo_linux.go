// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

func (b *iptables) undo(ctx context.Context, r *Record) error {
	if err := b.release(ctx, r); err != nil {
		return err
	}
	return b.remove(ctx, r)
}

// release removes the hooks of a record: from then on no packet enters its rules. It is little work, so that it
// succeeds also while other programs write rules all the time.
func (b *iptables) release(ctx context.Context, r *Record) error {
	return b.eachFamily(r, func(i int) error {
		if r.Backend == wire.BackendLegacy {
			return b.restoreUntilGone(ctx, i, r.Plan.Name, (*iptInput).unhookings)
		}
		conn, err := dialNF()
		if err != nil {
			return err
		}
		defer conn.Close()
		return nftRuleset{conn}.release(ctx, families[i].v6, r.Plan.Name)
	})
}

// remove removes the chains of a record, and what iptables-nft has made for them.
func (b *iptables) remove(ctx context.Context, r *Record) error {
	err := b.eachFamily(r, func(i int) error {
		if r.Backend == wire.BackendLegacy {
			return b.restoreUntilGone(ctx, i, r.Plan.Name, func(in *iptInput) *iptInput { return in })
		}
		conn, err := dialNF()
		if err != nil {
			return err
		}
		defer conn.Close()
		left, err := nftRuleset{conn}.remove(ctx, families[i].v6, r.Plan.Name, b.chainsOf(r, families[i].v6))
		r.leave(left...)
		return err
	})
	if err != nil || r.Backend != wire.BackendNFT {
		return err
	}
	// What several records have made goes with the last of them. A record that cannot be read is one of them.
	others, unreadable, err := b.journal.others(r, func(o *Record) bool { return o.Backend == r.Backend })
	if err != nil || len(others)+len(unreadable) > 0 {
		return err
	}
	left, err := removeUnused(ctx, &r.Before)
	r.leave(left...)
	return err
}

// undoByName removes the rules of a plan of which nothing but the name is known: those of both backends, and the tables
// of nftables mode. left says what stays.
func (b *iptables) undoByName(ctx context.Context, name string) (left []string, err error) {
	conn, err := dialNF()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var errs []error
	_, err = conn.Generation()
	hasNF := err == nil // the kernel has nf_tables
	for i, f := range families {
		if hasNF {
			table, err := conn.removeTable(ctx, f.v6, name, func() {})
			errs = append(errs, err, nftRuleset{conn}.release(ctx, f.v6, name))
			chains, err := nftRuleset{conn}.remove(ctx, f.v6, name, nil)
			left, errs = append(append(left, table...), chains...), append(errs, err)
		}
		errs = append(errs, b.restoreUntilGone(ctx, i, name, (*iptInput).unhookings),
			b.restoreUntilGone(ctx, i, name, func(in *iptInput) *iptInput { return in }))
	}
	return left, errors.Join(errs...)
}

// taken names a chain of a record's plan that is there.
func (b *iptables) taken(ctx context.Context, r *Record) (what string, err error) {
	for _, f := range families {
		if r.Backend == wire.BackendLegacy {
			save, err := savedTables(ctx, b, f.executable, r.Backend, f.v6)
			if err != nil {
				return "", err
			}
			in := iptRemoval(save, r.Plan.Name)
			if in != nil && len(in.tables[0].gone) > 0 {
				return fmt.Sprintf("the chain %s of table %s (%s)", in.tables[0].gone[0], in.tables[0].name, f.executable), nil
			}
			continue
		}
		conn, err := dialNF()
		if err != nil {
			return "", err
		}
		own, _, err := nftRuleset{conn}.own(f.v6, r.Plan.Name, b.chainsOf(r, f.v6))
		conn.Close()
		if err != nil {
			return "", err
		}
		if len(own) > 0 {
			return fmt.Sprintf("the chain %s of table %s %s", own[0].name, f.nft, own[0].table), nil
		}
	}
	return "", nil
}

// eachFamily calls a function for the IP families of a record, by their indexes.
func (b *iptables) eachFamily(r *Record, do func(int) error) error {
	var errs []error
	for i, f := range families {
		if r.Plan.Has(f.v6) || r.Earlier.Has(f.v6) {
			if err := do(i); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f.executable, err))
			}
		}
	}
	return errors.Join(errs...)
}

// chainsOf returns what tells the names of all chains that a record may have, by tables.
func (b *iptables) chainsOf(r *Record, v6 bool) func() map[string][]string {
	return func() map[string][]string {
		out := map[string][]string{}
		for _, p := range []*plan.Plan{&r.Plan, r.Earlier} {
			if p.Has(v6) {
				b.rules(p, v6, time.Time{}, func(*hook) bool { return true }).chainsInto(out)
			}
		}
		return out
	}
}

func (in *iptInput) chainsInto(out map[string][]string) {
	for _, t := range in.tables {
		out[t.name] = append(out[t.name], t.chains...)
	}
}

// restoreUntilGone removes a part of a plan's rules of iptables-legacy by iptables-legacy-restore, which reads and
// writes a table under the lock that all programs of iptables take, and keeps everything that it is not told of. It is
// tried until there is nothing of that part: if others have the lock, or have changed our rules meanwhile, it fails.
func (b *iptables) restoreUntilGone(ctx context.Context, i int, name string, part func(*iptInput) *iptInput) error {
	f := families[i]
	return until(ctx, func() (bool, error, error) {
		if has, err := tools.HasLegacyTables(f.v6); err != nil || !has {
			return err == nil, nil, err
		}
		all, err := b.removal(ctx, wire.BackendLegacy, name, f.executable)
		if _, missing := errors.AsType[RefusalError](err); missing {
			return false, nil, err
		}
		if err != nil {
			return false, err, nil
		}
		in := part(all)
		if in == nil {
			return true, nil, nil
		}
		return false, b.restore(ctx, f.executable, wire.BackendLegacy, in), nil
	})
}

// unhookings returns the part of a removal that deletes hooks; nil: there is none.
func (in *iptInput) unhookings() *iptInput {
	if in == nil {
		return nil
	}
	out := &iptInput{}
	for _, t := range in.tables {
		if len(t.unhook) > 0 {
			out.tables = append(out.tables, &iptTable{name: t.name, unhook: t.unhook})
		}
	}
	if len(out.tables) == 0 {
		return nil
	}
	return out
}

// removal reads which chains of a plan exist, and returns the input that removes them; nil: there are none. It lists
// each table by its name: to list all of them, the legacy backend reads /proc, which is another one in the file system
// that it may be run from, and prints nothing.
func (b *iptables) removal(ctx context.Context, backend, name, executable string) (*iptInput, error) {
	all, err := b.save(ctx, backend, executable)
	if err != nil {
		return nil, err
	}
	return iptRemoval(all, name), nil
}

// save lists the tables that contain chains of a plan.
func (b *iptables) save(ctx context.Context, backend, executable string) ([]byte, error) {
	t, err := b.find(ctx, executable, backend, "-save")
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, table := range iptTables {
		save, err := t.run(ctx, nil, "-t", table)
		if err != nil {
			return nil, err
		}
		// iptables-nft-save says nothing of a table that is not there.
		if backend == wire.BackendLegacy && !bytes.Contains(save, []byte("\nCOMMIT\n")) {
			return nil, fmt.Errorf("%s-%s-save -t %s does not list the table: %q", executable, backend, table,
				save[:min(len(save), 200)])
		}
		all = append(all, save...)
	}
	return all, nil
}

// iptRemoval returns the input that removes a plan's chains and hooks of a save file; nil: it has none.
func iptRemoval(save []byte, name string) *iptInput {
	in := &iptInput{}
	var t *iptTable
	for line := range strings.Lines(string(save)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			t = &iptTable{name: line[1:]}
		case t == nil:
		case strings.HasPrefix(line, ":"):
			if chain, _, _ := strings.Cut(line[1:], " "); planOfChain(chain) == name {
				t.gone = append(t.gone, chain)
			}
		case line == "COMMIT":
			if len(t.gone)+len(t.unhook) > 0 {
				in.tables = append(in.tables, t)
			}
			t = nil
		case leadsFromOutside(line, name):
			t.unhook = append(t.unhook, "-D"+line[2:])
		}
	}
	if len(in.tables) == 0 {
		return nil
	}
	return in
}

// leadsFromOutside tells whether a line adds a rule to another chain than those of a plan, which jumps to one of those.
// The target comes last, and has no options.
func leadsFromOutside(line, name string) bool {
	words := strings.Fields(line)
	n := len(words)
	return n > 3 && words[0] == "-A" && planOfChain(words[1]) != name &&
		(words[n-2] == "-j" || words[n-2] == "-g") && planOfChain(words[n-1]) == name
}
