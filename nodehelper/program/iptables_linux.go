// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// iptables writes rules of iptables, of the backend that the record names.
type iptables struct {
	roots   func() []string
	rules   iptWriter
	journal journal
	hasTime func(*Record) bool // the match time can be used
}

// waitSeconds is how long iptables waits for its lock, which kube-proxy holds while it writes.
const waitSeconds = "10"

// families are the IP families, and the executables of each.
var families = []struct {
	v6         bool
	executable string
	nft        string // what nf_tables calls the family
}{{false, "iptables", "ip"}, {true, "ip6tables", "ip6"}}

// tool is an executable in a file system.
type tool struct{ root, path string }

func (t tool) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	out, _, err := tools.Run(ctx, t.root, t.path, bytes.NewReader(input), args...)
	return out, err
}

// find finds the executable of a backend: iptables-nft-restore, or iptables-restore if that has the backend.
func (b *iptables) find(ctx context.Context, executable, backend, suffix string) (tool, error) {
	for _, root := range b.roots() {
		if path := tools.Find(root, executable+"-"+backend+suffix); path != "" {
			return tool{root, path}, nil
		}
		path := tools.Find(root, executable+suffix)
		if path == "" {
			continue
		}
		version, _, err := tools.Run(ctx, root, path, nil, "--version")
		want := map[string]string{wire.BackendNFT: "(nf_tables)", wire.BackendLegacy: "(legacy)"}[backend]
		if err == nil && bytes.Contains(version, []byte(want)) {
			return tool{root, path}, nil
		}
	}
	return tool{}, RefusalError(fmt.Sprintf("%s-%s%s is neither in the helper's image nor on the node",
		executable, backend, suffix))
}

func (b *iptables) check(ctx context.Context, r *Record) error {
	for _, f := range families {
		if !r.Plan.Has(f.v6) {
			continue
		}
		for _, suffix := range []string{"", "-save", "-restore"} {
			if _, err := b.find(ctx, f.executable, r.Backend, suffix); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *iptables) remember(ctx context.Context, r *Record) error {
	if r.Backend != wire.BackendNFT || r.Earlier != nil {
		return nil
	}
	others, err := b.journal.others(r, func(o *Record) bool { return o.Backend == r.Backend })
	if err != nil {
		return err
	}
	tables, chains, err := madeByIPTables(ctx)
	if err != nil {
		return err
	}
	// What others of us have made goes with the last one.
	here := func(name string, before func(*Record) []string) bool {
		return !slices.ContainsFunc(others, func(o *Record) bool { return !slices.Contains(before(o), name) })
	}
	for _, t := range tables {
		if here(t, func(o *Record) []string { return o.Before.Tables }) {
			r.Before.Tables = append(r.Before.Tables, t)
		}
	}
	for _, c := range chains {
		if here(c.String(), func(o *Record) []string { return o.Before.Chains }) {
			r.Before.Chains = append(r.Before.Chains, c.String())
		}
	}
	return nil
}

// input returns the input of a family's iptables-restore; nil if there is nothing to do.
func (b *iptables) input(ctx context.Context, r *Record, v6 bool, executable string) (*iptInput, error) {
	now, before := r.Plan.Has(v6), r.Earlier.Has(v6)
	switch {
	case now:
		hooked := func(*hook) bool { return false }
		if before {
			hooked = func(h *hook) bool { return b.hooked(ctx, r, executable, h) }
		}
		in := b.rules(&r.Plan, v6, b.until(r), hooked)
		if before {
			in.replace(b.rules(r.Earlier, v6, b.until(r), hooked))
		}
		return in, nil
	case before:
		return b.removal(ctx, r, executable)
	}
	return nil, nil
}

// hooked tells whether a built-in chain has a hook; a missing one is added again. It lists this chain only.
func (b *iptables) hooked(ctx context.Context, r *Record, executable string, h *hook) bool {
	t, err := b.find(ctx, executable, r.Backend, "")
	if err != nil {
		return false
	}
	out, err := t.run(ctx, nil, "-w", waitSeconds, "-t", h.table, "-S", h.chain)
	return err == nil && bytes.Contains(out, []byte("-j "+kubeproxy.ProgramChainPrefix+r.Plan.Name+"-"+h.to+"\n"))
}

// removal reads which chains of a plan exist, and returns the input that removes them; nil: there are none. It lists
// each table by its name: to list all of them, the legacy backend reads /proc, which is another one in the file system
// that it may be run from, and prints nothing.
func (b *iptables) removal(ctx context.Context, r *Record, executable string) (*iptInput, error) {
	t, err := b.find(ctx, executable, r.Backend, "-save")
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
		if r.Backend == wire.BackendLegacy && !bytes.Contains(save, []byte("\nCOMMIT\n")) {
			return nil, fmt.Errorf("%s-%s-save -t %s does not list the table: %q", executable, r.Backend, table,
				save[:min(len(save), 200)])
		}
		all = append(all, save...)
	}
	return iptRemoval(all, r.Plan.Name), nil
}

func (b *iptables) plan(ctx context.Context, r *Record) (*wire.ProgramResult, error) {
	out := &wire.ProgramResult{}
	for _, f := range families {
		in, err := b.input(ctx, r, f.v6, f.executable)
		if err != nil {
			return nil, err
		}
		if in == nil {
			continue
		}
		var text bytes.Buffer
		in.write(&text)
		t, err := b.find(ctx, f.executable, r.Backend, "-restore")
		if err != nil {
			return nil, err
		}
		if _, err := t.run(ctx, text.Bytes(), "-w", waitSeconds, "--noflush", "--test"); err != nil {
			return nil, fmt.Errorf("the node does not take the rules: %w", err)
		}
		out.Commands = append(out.Commands, wire.Command{
			Line: f.executable + "-" + r.Backend + "-restore -w " + waitSeconds + " --noflush", Input: text.String(),
		})
		added, removed := b.rules.diff(r, f.v6, b.until(r))
		out.Added = append(out.Added, added...)
		out.Removed = append(out.Removed, removed...)
	}
	return out, nil
}

func (b *iptables) apply(ctx context.Context, r *Record) error {
	for _, f := range families {
		in, err := b.input(ctx, r, f.v6, f.executable)
		if err == nil && in != nil {
			err = b.restore(ctx, f.executable, r.Backend, in)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *iptables) restore(ctx context.Context, executable, backend string, in *iptInput) error {
	t, err := b.find(ctx, executable, backend, "-restore")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	in.write(&text)
	_, err = t.run(ctx, text.Bytes(), "-w", waitSeconds, "--noflush")
	return err
}

// undoTries is how often undoing is tried if other programs change the rules between reading and removing them.
const undoTries = 5

func (b *iptables) undo(ctx context.Context, r *Record) error {
	var errs []error
	for _, f := range families {
		if r.Plan.Has(f.v6) || r.Earlier.Has(f.v6) {
			errs = append(errs, b.undoFamily(ctx, r, f.executable))
		}
	}
	if r.Backend == wire.BackendNFT {
		errs = append(errs, removeEmpty(ctx, &r.Before))
	}
	return errors.Join(errs...)
}

// undoFamily removes the chains that exist, and reads them again, until there are none.
func (b *iptables) undoFamily(ctx context.Context, r *Record, executable string) error {
	var last error
	for range undoTries {
		in, err := b.removal(ctx, r, executable)
		if err != nil || in == nil {
			return err
		}
		last = b.restore(ctx, executable, r.Backend, in)
	}
	if last == nil {
		last = errors.New("its rules are there again each time that they are taken away")
	}
	return fmt.Errorf("%s: %w", executable, last)
}

// iptRemoval returns the input that removes a plan's chains and hooks of a save file; nil: it has none.
func iptRemoval(save []byte, name string) *iptInput {
	in := &iptInput{}
	var t *iptTable
	own := kubeproxy.ProgramChainPrefix + name + "-"
	for line := range strings.Lines(string(save)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			t = &iptTable{name: line[1:]}
		case t == nil:
		case strings.HasPrefix(line, ":"+own):
			chain, _, _ := strings.Cut(line[1:], " ")
			t.gone = append(t.gone, chain)
		case line == "COMMIT":
			if len(t.gone)+len(t.unhook) > 0 {
				in.tables = append(in.tables, t)
			}
			t = nil
		case strings.HasPrefix(line, "-A ") && !strings.HasPrefix(line, "-A "+own) && jumpsTo(line, own):
			t.unhook = append(t.unhook, "-D"+line[2:])
		}
	}
	if len(in.tables) == 0 {
		return nil
	}
	return in
}

// jumpsTo tells whether a rule jumps to a chain whose name has a prefix. The target comes last, and has no options.
func jumpsTo(rule, prefix string) bool {
	words := strings.Fields(rule)
	return len(words) > 2 && (words[len(words)-2] == "-j" || words[len(words)-2] == "-g") &&
		strings.HasPrefix(words[len(words)-1], prefix)
}

// endsByItself: see [iptTable.end].
func (b *iptables) endsByItself(r *Record) bool { return !b.until(r).IsZero() }

// until is the time after which a record's rules take no new connections; zero where the kernel cannot tell the time.
func (b *iptables) until(r *Record) time.Time {
	if !fits(r) || !b.hasTime(r) {
		return time.Time{}
	}
	return r.Expires
}
