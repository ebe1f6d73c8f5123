// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// nftables writes its own tables, with the nft of this process's file system: no other program reads them.
type nftables struct {
	open func() (knftables.Interface, error)
}

// openNFT finds out what nft can do, by running it twice.
func openNFT() (knftables.Interface, error) {
	nft, err := knftables.New("", "", knftables.NoObjectCommentEmulation)
	if err != nil {
		return nil, RefusalError("nftables cannot be used here: " + err.Error())
	}
	return nft, nil
}

func (n *nftables) check(context.Context, *Record) error {
	_, err := n.open()
	return err
}

// The kernel removes the elements of [active].
func (n *nftables) endsByItself(*Record) bool { return true }

func (n *nftables) remember(context.Context, *Record) error { return nil }

func (n *nftables) plan(ctx context.Context, r *Record) (*wire.ProgramResult, error) {
	nft, err := n.open()
	if err != nil {
		return nil, err
	}
	tx, ttl := nft.NewTransaction(), remaining(r)
	nftRules(tx, &r.Plan, r.Earlier, ttl)
	if err := nft.Check(ctx, tx); err != nil {
		return nil, fmt.Errorf("the node does not take the rules: %w", err)
	}
	now, before := nft.NewTransaction(), nft.NewTransaction()
	nftRules(now, &r.Plan, nil, ttl)
	if r.Earlier != nil {
		nftRules(before, r.Earlier, nil, ttl)
	}
	out := &wire.ProgramResult{Commands: []wire.Command{{Line: "nft -f -", Input: tx.String()}}}
	out.Added, out.Removed = difference(before.String(), now.String())
	return out, nil
}

func (n *nftables) apply(ctx context.Context, r *Record) error {
	nft, err := n.open()
	if err != nil {
		return err
	}
	tx := nft.NewTransaction()
	nftRules(tx, &r.Plan, r.Earlier, remaining(r))
	if err := nft.Run(ctx, tx); err != nil {
		return err
	}
	if tx = nft.NewTransaction(); r.Earlier != nil {
		nftSweep(tx, &r.Plan, r.Earlier)
	}
	if tx.NumOperations() > 0 {
		// The kernel may still count it as used. Then it remains until the table is removed; no rule refers to it.
		if err := nft.Run(ctx, tx); err != nil && !strings.Contains(err.Error(), "busy") {
			return err
		}
	}
	return nil
}

func (n *nftables) undo(ctx context.Context, r *Record) error {
	nft, err := n.open()
	if err != nil {
		return err
	}
	tx := nft.NewTransaction()
	nftRemoval(tx, &r.Plan)
	return nft.Run(ctx, tx)
}

// baseChain is one that a hook calls.
type baseChain struct{ family, table, name string }

func (c baseChain) String() string { return c.family + " " + c.table + " " + c.name }

// iptablesTables are those that iptables-nft makes as it is asked to write rules of ours.
var iptablesTables = []string{"ip nat", "ip6 nat", "ip filter", "ip6 filter"}

// madeByIPTables lists these tables, and their base chains, as far as they are there.
func madeByIPTables(ctx context.Context) (tables []string, chains []baseChain, err error) {
	path := tools.Find("/", "nft")
	if path == "" {
		return nil, nil, RefusalError("nft is not in the helper's image")
	}
	for _, kind := range []string{"tables", "chains"} {
		data, _, err := tools.Run(ctx, "/", path, nil, "-j", "list", kind)
		if err != nil {
			return nil, nil, err
		}
		var list struct {
			NFTables []struct {
				Table *struct{ Family, Name string }
				Chain *struct{ Family, Table, Name, Hook string }
			}
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, nil, fmt.Errorf("nft -j list %s: %w", kind, err)
		}
		for _, o := range list.NFTables {
			if t := o.Table; t != nil && slices.Contains(iptablesTables, t.Family+" "+t.Name) {
				tables = append(tables, t.Family+" "+t.Name)
			}
			if c := o.Chain; c != nil && c.Hook != "" && slices.Contains(iptablesTables, c.Family+" "+c.Table) {
				chains = append(chains, baseChain{c.Family, c.Table, c.Name})
			}
		}
	}
	return tables, chains, nil
}

// removeEmpty removes the base chains of iptables-nft that were not there before and that nobody uses, and their
// tables.
func removeEmpty(ctx context.Context, before *Before) error {
	_, now, err := madeByIPTables(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range now {
		if !slices.Contains(before.Chains, c.String()) {
			errs = append(errs, deleteUnused(c, !slices.Contains(before.Tables, c.family+" "+c.table)))
		}
	}
	return errors.Join(errs...)
}
