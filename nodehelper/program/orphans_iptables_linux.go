// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What the chains of a plan hold: the targets of their rules, and the modules of their matches.
var (
	chainTargets = []string{"ACCEPT", "DROP", "RETURN", "MARK", "MASQUERADE", "DNAT", "REDIRECT"}
	chainModules = []string{
		"comment", "tcp", "udp", "sctp", "mark", "statistic", "recent", "addrtype", "conntrack", "time",
	}
)

// hookText is in every rule by which a built-in chain leads to a plan's.
const hookText = `--comment "kubectl-svcproxy program"`

// chainGroup is what one backend of one IP family has of one name.
type chainGroup struct {
	tables []*chainTable
	orphan *orphan
	chains int
	jumps  int
}

type chainTable struct {
	name   string
	chains []string
	unhook []string // the rules of other chains that lead to them, to be deleted
}

// orphanChains finds chains of iptables.
func (p *Programmer) orphanChains(ctx context.Context, records *snapshot.Journal) ([]*orphan, error) {
	var out []*orphan
	var errs []error
	for _, backend := range []string{wire.BackendNFT, wire.BackendLegacy} {
		for _, f := range families {
			b := &iptables{roots: p.o.Roots}
			save, err := savedTables(ctx, b, f.executable, backend, f.v6)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			groups := chainGroups(save, records)
			for _, name := range slices.Sorted(maps.Keys(groups)) {
				g := groups[name]
				family := map[bool]string{true: "IPv6", false: "IPv4"}[f.v6]
				tables := make([]string, len(g.tables))
				for i, t := range g.tables {
					tables[i] = t.name
				}
				g.orphan.ID = strings.Join([]string{"iptables", backend, f.nft, name}, " ")
				g.orphan.What = fmt.Sprintf("iptables (%s) %s: %d chains %s%s-… in %s, %d rules that lead to them",
					backend, family, g.chains, kubeproxy.ProgramChainPrefix, name, strings.Join(tables, " and "), g.jumps)
				g.orphan.remove = func(ctx context.Context) error {
					foreign := len(g.orphan.Foreign) > 0
					if backend == wire.BackendNFT && !foreign {
						return removeNFTGroup(ctx, f.v6, name)
					}
					return removeGroup(ctx, b, f.executable, backend, f.v6, name, records, foreign)
				}
				out = append(out, g.orphan)
			}
		}
	}
	return out, errors.Join(errs...)
}

// savedTables lists all tables of a backend. Tables of the legacy backend are asked for by their names, and only where
// they are: to ask for another one makes it.
func savedTables(ctx context.Context, b *iptables, executable, backend string, v6 bool) ([]byte, error) {
	if backend == wire.BackendNFT {
		t, err := b.find(ctx, executable, backend, "-save")
		if err != nil {
			return nil, err
		}
		return t.run(ctx, nil)
	}
	if there, err := tools.HasLegacyTables(v6); err != nil || !there {
		return nil, err
	}
	t, err := b.find(ctx, executable, backend, "-save")
	if err != nil {
		return nil, err
	}
	names, err := os.ReadFile(map[bool]string{
		false: "/proc/thread-self/net/ip_tables_names", true: "/proc/thread-self/net/ip6_tables_names",
	}[v6])
	if err != nil {
		return nil, err
	}
	var all []byte
	for table := range strings.FieldsSeq(string(names)) {
		save, err := t.run(ctx, nil, "-t", table)
		if err != nil {
			return nil, err
		}
		all = append(all, save...)
	}
	return all, nil
}

// chainGroups reads save files, and returns the chains of our names without a record, by the name of the plan.
func chainGroups(save []byte, records *snapshot.Journal) map[string]*chainGroup {
	groups := map[string]*chainGroup{}
	table := ""
	group := func(chain string) *chainGroup {
		name, ok := planOfPrefix(chain)
		if !ok || !strings.HasPrefix(chain, kubeproxy.ProgramChainPrefix) || records.Has(name) {
			return nil
		}
		g := groups[name]
		if g == nil {
			g = &chainGroup{orphan: &orphan{}}
			groups[name] = g
		}
		if len(g.tables) == 0 || g.tables[len(g.tables)-1].name != table {
			g.tables = append(g.tables, &chainTable{name: table})
		}
		return g
	}
	for line := range strings.Lines(string(save)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			if g := group(chain); g != nil {
				g.add(table, chain)
			}
		case strings.HasPrefix(line, "-A "):
			words := strings.Fields(line)
			if len(words) < 2 {
				continue
			}
			target, jump := targetOf(words)
			if g := group(words[1]); g != nil {
				g.rule(words, target)
			} else if g := group(target); g != nil && jump {
				g.hook(table, line, words[1])
			}
		}
	}
	return groups
}

// add adds a chain to a group.
func (g *chainGroup) add(table, chain string) {
	g.chains++
	t := g.tables[len(g.tables)-1]
	t.chains = append(t.chains, chain)
	if planOfChain(chain) == "" {
		g.orphan.doubt("%s is not a name of a chain that program writes", chain)
	}
	if !slices.Contains(iptTables, table) {
		g.orphan.doubt("%s is in the table %s, in which program writes nothing", chain, table)
	}
}

// rule looks at a rule of one of a group's chains.
func (g *chainGroup) rule(words []string, target string) {
	plan, _ := planOfPrefix(words[1])
	other, ours := planOfPrefix(target)
	if !slices.Contains(chainTargets, target) && (!ours || other != plan) {
		g.orphan.doubt("%s has a rule with the target %q", words[1], target)
	}
	for i, w := range words[:len(words)-1] {
		if w == "-m" && !slices.Contains(chainModules, words[i+1]) {
			g.orphan.doubt("%s has a rule with the match %q", words[1], words[i+1])
		}
	}
}

// hook notes a rule of another chain that leads to a group's.
func (g *chainGroup) hook(table, line, from string) {
	g.jumps++
	t := g.tables[len(g.tables)-1]
	t.unhook = append(t.unhook, "-D"+line[2:])
	hooks := slices.Concat(iptHooks, ipvsHooks)
	if !strings.Contains(line, hookText) ||
		!slices.ContainsFunc(hooks, func(h hook) bool { return h.table == table && h.chain == from }) {
		g.orphan.doubt("%s %s leads there by a rule that program does not write", table, from)
	}
}

// targetOf returns the target of a rule of a save file; jump says that it is one without options, as a chain is.
func targetOf(words []string) (target string, jump bool) {
	for i := len(words) - 2; i > 1; i-- {
		if words[i] == "-j" || words[i] == "-g" {
			return words[i+1], i == len(words)-2
		}
	}
	return "", false
}

// removeNFTGroup removes the chains of a name that hold nothing but what this package writes, and the rules that lead
// to them, as those of a record are: see [nftRuleset].
func removeNFTGroup(ctx context.Context, v6 bool, name string) error {
	conn, err := dialNF()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := (nftRuleset{conn}).release(ctx, v6, name); err != nil {
		return err
	}
	left, err := nftRuleset{conn}.remove(ctx, v6, name, nil)
	if err == nil && len(left) > 0 {
		err = errors.New(strings.Join(left, "; "))
	}
	return err
}

// groupTime bounds the removal of chains by iptables-restore.
const groupTime = 20 * time.Second

// removeGroup removes the chains of a name and the rules that lead to them, each table in one transaction, and reads
// them again until none is left. What may be somebody else's by now is removed only with foreign.
func removeGroup(
	ctx context.Context, b *iptables, executable, backend string, v6 bool, name string, records *snapshot.Journal,
	foreign bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, groupTime)
	defer cancel()
	restore, err := b.find(ctx, executable, backend, "-restore")
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error, error) {
		save, err := savedTables(ctx, b, executable, backend, v6)
		if err != nil {
			return false, err, nil
		}
		g := chainGroups(save, records)[name]
		switch {
		case g == nil:
			return true, nil, nil
		case len(g.orphan.Foreign) > 0 && !foreign:
			return false, nil, fmt.Errorf("others have changed it meanwhile: %s", strings.Join(g.orphan.Foreign, "; "))
		}
		if _, err := restore.run(ctx, g.removal(), "-w", waitSeconds, "--noflush"); err != nil {
			return false, fmt.Errorf("%s: %w", executable, err), nil
		}
		return false, errors.New("its chains reappear each time they are removed"), nil
	})
}

// removal is the input of iptables-restore that removes a group.
func (g *chainGroup) removal() []byte {
	var text bytes.Buffer
	in := &iptInput{}
	for _, t := range g.tables {
		in.tables = append(in.tables, &iptTable{name: t.name, gone: t.chains, unhook: t.unhook})
	}
	in.write(&text)
	return text.Bytes()
}
