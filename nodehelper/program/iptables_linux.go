// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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

func (b *iptables) remember(_ context.Context, r *Record) error {
	if r.Backend != wire.BackendNFT || r.Earlier != nil {
		return nil
	}
	others, _, err := b.journal.others(r, func(o *Record) bool { return o.Backend == r.Backend })
	if err != nil {
		return err
	}
	tables, chains, err := madeByIPTables()
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
		if here(c, func(o *Record) []string { return o.Before.Chains }) {
			r.Before.Chains = append(r.Before.Chains, c)
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
			hooked = func(h *hook) bool { return b.hooked(ctx, r, v6, executable, h) }
		}
		in := b.rules(&r.Plan, v6, b.until(r), hooked)
		if before {
			in.replace(b.rules(r.Earlier, v6, b.until(r), hooked))
		}
		return in, nil
	case before:
		return b.removal(ctx, r.Backend, r.Plan.Name, executable)
	}
	return nil, nil
}

// hooked reports whether a built-in chain has a hook; a missing one is added again. It lists this chain only. To have
// iptables-nft list it takes ten times as long where there are 100,000 rules: it reads more than this chain.
func (b *iptables) hooked(ctx context.Context, r *Record, v6 bool, executable string, h *hook) bool {
	to := kubeproxy.ProgramChainPrefix + r.Plan.Name + "-" + h.to
	if r.Backend == wire.BackendNFT {
		conn, err := dialNF()
		if err != nil {
			return false
		}
		defer conn.Close()
		rules, _, err := conn.rules(v6, h.table, h.chain)
		return err == nil && slices.ContainsFunc(rules, func(r nfRule) bool { return slices.Contains(r.to, to) })
	}
	t, err := b.find(ctx, executable, r.Backend, "")
	if err != nil {
		return false
	}
	out, err := t.run(ctx, nil, "-w", waitSeconds, "-t", h.table, "-S", h.chain)
	return err == nil && bytes.Contains(out, []byte("-j "+to+"\n"))
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
			return nil, fmt.Errorf("the node rejects the rules: %w", err)
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

// endsByItself: see [iptTable.end].
func (b *iptables) endsByItself(r *Record) bool { return !b.until(r).IsZero() }

// until is the time after which a record's rules take no new connections; zero where the kernel cannot tell the time.
func (b *iptables) until(r *Record) time.Time {
	if !fits(r) || !b.hasTime(r) {
		return time.Time{}
	}
	return r.Expires
}
