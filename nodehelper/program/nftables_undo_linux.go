// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// undo removes the tables of a plan.
func (n *nftables) undo(ctx context.Context, r *Record) error {
	conn, err := dialNF()
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, f := range families {
		left, err := conn.removeTable(ctx, f.v6, r.Plan.Name, func() {})
		r.leave(left...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeTable removes the table of a plan, if it carries our mark. First it empties the base chains by their names:
// from then on our rules have no effect. If others have made a base chain in the table, or have given one of ours a
// policy, the rest stays. left says what stays. It calls read between reading and removing.
func (k nfConn) removeTable(ctx context.Context, v6 bool, name string, read func()) (left []string, err error) {
	table := nftTable(name)
	begin := time.Now()
	err = until(ctx, func() (bool, error, error) {
		generation, err := k.Generation()
		if err != nil {
			return false, nil, err
		}
		t, err := k.table(v6, table)
		if err != nil || t == nil {
			return err == nil, nil, err
		}
		own, err := k.ownTable(v6, table)
		if err != nil {
			return false, nil, err
		}
		if !own {
			left = []string{fmt.Sprintf("table %s %s stays: no helper created it", ipName(v6), table)}
			return true, nil, nil
		}
		emptied, err := k.emptyBase(v6, table)
		if err != nil {
			return committed(err)
		}
		if emptied {
			return false, errKeepsChanging, nil // that was a change, and there is another generation
		}
		foreign, complete, err := k.foreignChains(v6, table)
		if err != nil {
			return false, nil, err
		}
		if len(foreign) > 0 {
			left = []string{fmt.Sprintf("table %s %s stays, and our rules in it have no effect: others have created or changed "+
				"its chains %s", ipName(v6), table, strings.Join(foreign, ", "))}
			return true, nil, nil
		}
		read()
		// By its handle: a table that somebody makes anew has another one.
		remove := nfRequest(unix.NFT_MSG_DELTABLE, v6, 0, netlink.Uint64(nftaTableHandle, t.handle))
		if time.Since(begin) > unusedTime {
			// It is our table, and others have no reason to write into it.
			return committed(k.Commit(remove))
		}
		if !complete {
			return false, errKeepsChanging, nil
		}
		return committed(k.CommitAt(generation, remove))
	})
	return left, err
}

// emptyBase deletes the rules of our base chains in a table, and tells whether there were any.
func (k nfConn) emptyBase(v6 bool, table string) (were bool, err error) {
	var flushes []netlink.Request
	for i := range nftBase {
		c, err := k.chain(v6, table, nftBase[i].name)
		if err != nil {
			return false, err
		}
		if c != nil && c.use > 0 {
			flushes = append(flushes, flushChain(v6, table, c.name))
		}
	}
	return len(flushes) > 0, k.Commit(flushes...)
}

// foreignChains names the base chains of a plan's table that we have not made, or not so. Some may be missing if it is
// not complete.
func (k nfConn) foreignChains(v6 bool, table string) (names []string, complete bool, err error) {
	chains, complete, err := k.chains(v6)
	for _, c := range chains {
		if c.table != table || !c.base {
			continue
		}
		ours := slices.ContainsFunc(nftBase, func(b nftBaseChain) bool { return b.name == c.name })
		switch {
		case !ours:
			names = append(names, c.name)
		case c.policy != policyAccept:
			names = append(names, c.name+" (its policy is DROP)")
		}
	}
	return names, complete, err
}
