// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What the chains of a plan hold: their suffixes, the targets of their rules, and the modules of their matches.
var (
	chainSuffixes = regexp.MustCompile(`^(NAT|POST|DROP|FORWARD|INPUT|OUTPUT|[FWRH]-?[0-9]+|E[a-z2-7]{9})$`)
	chainTargets  = []string{"ACCEPT", "DROP", "RETURN", "MARK", "MASQUERADE", "DNAT", "REDIRECT"}
	chainModules  = []string{
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
					return removeGroup(ctx, b, f.executable, backend, f.v6, name, records)
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
		name, ok := planOfRules(chain)
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
	parts := strings.SplitN(strings.TrimPrefix(chain, kubeproxy.ProgramChainPrefix), "-", 2)
	if len(parts) != 2 || !programName.MatchString(parts[0]) || !chainSuffixes.MatchString(parts[1]) {
		g.orphan.doubt("%s is no name of a chain that program writes", chain)
	}
	if !slices.Contains(iptTables, table) {
		g.orphan.doubt("%s is in the table %s, in which program writes nothing", chain, table)
	}
}

// rule looks at a rule of one of a group's chains.
func (g *chainGroup) rule(words []string, target string) {
	plan, _ := planOfRules(words[1])
	other, ours := planOfRules(target)
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

// removeGroup removes the chains of a name and the rules that lead to them, each table in one transaction, and reads
// them again until none is left.
func removeGroup(
	ctx context.Context, b *iptables, executable, backend string, v6 bool, name string, records *snapshot.Journal,
) error {
	restore, err := b.find(ctx, executable, backend, "-restore")
	if err != nil {
		return err
	}
	last := errors.New("its chains are there again each time that they are removed")
	for range undoTries {
		save, err := savedTables(ctx, b, executable, backend, v6)
		if err != nil {
			return err
		}
		g := chainGroups(save, records)[name]
		if g == nil {
			return nil
		}
		var text bytes.Buffer
		for _, t := range g.tables {
			fmt.Fprintf(&text, "*%s\n", t.name)
			for _, c := range t.chains {
				fmt.Fprintf(&text, ":%s - [0:0]\n", c)
			}
			for _, r := range t.unhook {
				fmt.Fprintln(&text, r)
			}
			for _, c := range t.chains {
				fmt.Fprintf(&text, "-X %s\n", c)
			}
			text.WriteString("COMMIT\n")
		}
		if _, err := restore.run(ctx, text.Bytes(), "-w", waitSeconds, "--noflush"); err != nil {
			last = err
		}
	}
	return fmt.Errorf("%s: %w", executable, last)
}
