// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// tableStatements are the statements of the rules in a table of a plan.
var tableStatements = []string{
	"match", "vmap", "mangle", "goto", "jump", "drop", "return", "masquerade", "dnat", "set",
}

// nftObject is one object of nft -j list.
type nftObject map[string]struct {
	Family, Name, Table, Chain, Hook, Policy string
	Type                                     any // of a chain a string, of a set also a list
	Expr                                     []map[string]json.RawMessage
}

// nftList asks nft for a list.
func nftList(ctx context.Context, t tool, what ...string) ([]nftObject, error) {
	data, err := t.run(ctx, nil, append([]string{"-j", "list"}, what...)...)
	if err != nil {
		return nil, err
	}
	var list struct{ NFTables []nftObject }
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("nft -j list %s: %w", strings.Join(what, " "), err)
	}
	return list.NFTables, nil
}

// orphanTables finds tables of nftables.
func (p *Programmer) orphanTables(ctx context.Context, records *snapshot.Journal) ([]*orphan, error) {
	var nft tool
	for _, root := range p.o.Roots() {
		if path := tools.Find(root, "nft"); path != "" {
			nft = tool{root, path}
			break
		}
	}
	if nft.path == "" {
		return nil, errors.New("whether tables of nftables are left over is not known: nft is neither in the helper's " +
			"image nor on the node")
	}
	tables, err := nftList(ctx, nft, "tables")
	if err != nil {
		return nil, err
	}
	var out []*orphan
	var errs []error
	for _, object := range tables {
		t := object["table"]
		name, ok := planOfPrefix(t.Name)
		if !ok || !strings.HasPrefix(t.Name, kubeproxy.ProgramTablePrefix) || records.Has(name) || traces(t.Name) {
			continue
		}
		o := &orphan{}
		o.ID = strings.Join([]string{"nftables", t.Family, t.Name}, " ")
		content, err := nftList(ctx, nft, "table", t.Family, t.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		counts := map[string]int{}
		for _, c := range content {
			for kind := range c {
				counts[kind]++
			}
		}
		o.What = fmt.Sprintf("nftables: table %s %s, with %d chains, %d rules, %d sets and maps", t.Family, t.Name,
			counts["chain"], counts["rule"], counts["set"]+counts["map"])
		if isTrace := strings.HasPrefix(t.Name, kubeproxy.TraceTablePrefix); isTrace {
			o.ofTrace(t.Family, content)
		} else {
			o.ofTable(t.Family, name, content)
		}
		o.remove = func(ctx context.Context) error {
			if planOfTable(t.Name) != "" && len(o.Foreign) == 0 {
				return removeOwnTable(ctx, t.Family == ipName(true), name)
			}
			_, err := nft.run(ctx, nil, "delete", "table", t.Family, t.Name)
			return err
		}
		out = append(out, o)
	}
	return out, errors.Join(errs...)
}

// removeOwnTable removes a table that holds nothing but what this package writes, as that of a record is: what others
// make of it meanwhile stays.
func removeOwnTable(ctx context.Context, v6 bool, name string) error {
	conn, err := dialNF()
	if err != nil {
		return err
	}
	defer conn.Close()
	left, err := conn.removeTable(ctx, v6, name, func() {})
	if err == nil && len(left) > 0 {
		err = errors.New(strings.Join(left, "; "))
	}
	return err
}

// traces tells whether a table is that by which a process traces probes that still runs: the kernel removes it with the
// process. One that was saved and restored stays.
func traces(table string) bool {
	pid, ok := strings.CutPrefix(table, kubeproxy.TraceTablePrefix)
	if !ok {
		return false
	}
	_, err := os.Stat("/proc/" + pid)
	return err == nil
}

// ofTable looks for what program never writes into a table of its own.
func (o *orphan) ofTable(family, name string, content []nftObject) {
	if !plan.IsName(name) {
		o.doubt("%s%s is not a name of a table that program writes", kubeproxy.ProgramTablePrefix, name)
	}
	if family != ipName(false) && family != ipName(true) {
		o.doubt("it is of the family %s", family)
	}
	if !slices.ContainsFunc(content, func(c nftObject) bool { return c["chain"].Name == nftMark }) {
		o.doubt("it has no chain %s", nftMark)
	}
	for _, c := range content {
		for _, kind := range slices.Sorted(maps.Keys(c)) {
			x := c[kind]
			switch kind {
			case "metainfo", "table":
			case "chain":
				switch base := slices.ContainsFunc(nftBase, func(b nftBaseChain) bool { return b.name == x.Name }); {
				case x.Hook != "" && (!base || x.Name != x.Hook || x.Type != any("nat")),
					x.Hook == "" && !ownTableChains().MatchString(x.Name):
					o.doubt("it has a chain %s", x.Name)
				case x.Hook != "" && x.Policy != "accept":
					o.doubt("the policy of its chain %s is %s", x.Name, x.Policy)
				}
			case "set", "map", "element":
				if !ownTableSets().MatchString(x.Name) {
					o.doubt("it has a %s %s", kind, x.Name)
				}
			case "rule":
				o.ofRule(x.Chain, x.Expr, tableStatements)
			default:
				o.doubt("it has a %s %s", kind, x.Name)
			}
		}
	}
}

// ofRule looks for statements that are not written.
func (o *orphan) ofRule(chain string, expr []map[string]json.RawMessage, statements []string) {
	for _, e := range expr {
		for _, statement := range slices.Sorted(maps.Keys(e)) {
			if !slices.Contains(statements, statement) {
				o.doubt("%s has a rule with the statement %q", chain, statement)
			}
		}
	}
}

// What a table has by which connections are traced.
var (
	traceChains = lazyregexp.New("^(answer-|end-)?(prerouting|input|forward|output|postrouting)$")
	traceSets   = lazyregexp.New("^ip6?-(servers|clients)$")
)

// ofTrace looks for what is never in a table by which probes are traced (nodehelper/kerneltrace).
func (o *orphan) ofTrace(family string, content []nftObject) {
	if family != "inet" {
		o.doubt("it is of the family %s", family)
	}
	for _, c := range content {
		for _, kind := range slices.Sorted(maps.Keys(c)) {
			x := c[kind]
			switch {
			case kind == "chain" && x.Policy != "accept":
				o.doubt("the policy of its chain %s is %s", x.Name, x.Policy)
			case kind == "metainfo", kind == "table", kind == "chain" && traceChains().MatchString(x.Name),
				kind == "set" && traceSets().MatchString(x.Name):
			case kind == "rule":
				o.ofRule(x.Chain, x.Expr, []string{"match", "mangle"})
			default:
				o.doubt("it has a %s %s", kind, x.Name)
			}
		}
	}
}
