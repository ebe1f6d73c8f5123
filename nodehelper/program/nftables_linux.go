// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/knftables"

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

// taken names a table of a record's plan that is there. One that others have made is none that a record of another mode
// needs.
func (n *nftables) taken(_ context.Context, r *Record) (what string, err error) {
	conn, err := dialNF()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	for _, f := range families {
		t, err := conn.table(f.v6, nftTable(r.Plan.Name))
		if err != nil {
			return "", err
		}
		own, err := conn.ownTable(f.v6, nftTable(r.Plan.Name))
		if err != nil {
			return "", err
		}
		if own || t != nil && r.Mode == wire.NFTables {
			return "the table " + f.nft + " " + nftTable(r.Plan.Name), nil
		}
	}
	return "", nil
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
		return nil, fmt.Errorf("the node rejects the rules: %w", err)
	}
	now, before := nft.NewTransaction(), nft.NewTransaction()
	nftRules(now, &r.Plan, nil, ttl)
	if r.Earlier != nil {
		nftRules(before, r.Earlier, nil, ttl)
	}
	out := &wire.ProgramResult{Commands: []wire.Command{{Line: "nft -f -", Input: tx.String()}}}
	out.Added, out.Removed = difference(operations(before), operations(now))
	return out, nil
}

// operations are the lines of a transaction: knftables gives out all of them as one text.
func operations(tx *knftables.Transaction) []string {
	return strings.FieldsFunc(tx.String(), func(r rune) bool { return r == '\n' })
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
