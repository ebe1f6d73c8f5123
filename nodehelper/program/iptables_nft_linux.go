// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// nftRuleset removes the rules of a plan that iptables-nft has written, over netlink: see [nfConn].
type nftRuleset struct{ nfConn }

// errKeepsChanging is the reason why something was not removed in time.
var errKeepsChanging = errors.New("other programs keep changing the rules")

// release empties the chains that hooks jump to, by their names: nobody else's rules have to be read for that. From
// then on our rules have no effect. Then it deletes the hooks.
func (k nftRuleset) release(ctx context.Context, v6 bool, name string) error {
	err := until(ctx, func() (bool, error, error) {
		var flushes []netlink.Request
		for _, table := range iptTables {
			for _, top := range topChainsOf(name) {
				c, err := k.chain(v6, table, top)
				if err != nil {
					return false, nil, err
				}
				if c != nil {
					flushes = append(flushes, flushChain(v6, table, top))
				}
			}
		}
		return committed(k.Commit(flushes...))
	})
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error, error) {
		generation, err := k.Generation()
		if err != nil {
			return false, nil, err
		}
		var deletions []netlink.Request
		for _, b := range builtins {
			hooks, complete, err := k.rules(v6, b.table, b.chain)
			if err != nil || !complete {
				return false, errKeepsChanging, err
			}
			for _, r := range hooks {
				if r.leadsTo(name) {
					deletions = append(deletions, deleteRule(v6, b.table, r))
				}
			}
		}
		return committed(k.CommitAt(generation, deletions...))
	})
}

// committed interprets the result of a transaction for [until].
func committed(err error) (done bool, why, failed error) {
	if changedMeanwhile(err) {
		return false, errKeepsChanging, nil
	}
	return err == nil, nil, err
}

// leadsTo tells whether a rule jumps to a chain of a plan.
func (r *nfRule) leadsTo(name string) bool {
	return slices.ContainsFunc(r.to, func(chain string) bool { return planOfChain(chain) == name })
}

// remove deletes the chains of a plan, and the rules of others that jump to them, which have no effect any more. A
// chain to which something else refers, such as a map, stays, without rules; left says so. known returns the names of
// chains that there may be, by tables: they are found also while other programs change rules all the time.
func (k nftRuleset) remove(
	ctx context.Context, v6 bool, name string, known func() map[string][]string,
) (left []string, err error) {
	err = until(ctx, func() (bool, error, error) {
		own, complete, err := k.own(v6, name, known)
		if err != nil || len(own) == 0 {
			if !complete {
				return false, errKeepsChanging, err
			}
			return err == nil, nil, err
		}
		var flushes, deletions []netlink.Request
		for _, c := range own {
			if c.use > 0 {
				flushes = append(flushes, flushChain(v6, c.table, c.name))
			}
			deletions = append(deletions, deleteChain(v6, c.table, c.name))
		}
		err = k.commitSlices(flushes)
		if err == nil {
			err = k.commitSlices(deletions)
		}
		if !errors.Is(err, unix.EBUSY) {
			_, why, err := committed(err)
			return false, why, err // and read again whether all are gone
		}
		found, err := k.unrefer(v6, name)
		if err != nil || found {
			_, why, err := committed(err)
			return false, why, err
		}
		left, err = k.deleteEach(v6, own)
		return err == nil, nil, err
	})
	return left, err
}

// own returns the chains of a plan. It is complete if there are no others, whatever other programs do. known is asked
// only where they change rules meanwhile: to name all chains of a large plan takes as long as to read those of the
// kernel.
func (k nftRuleset) own(
	v6 bool, name string, known func() map[string][]string,
) (out []*nfChain, complete bool, err error) {
	all, complete, err := k.chains(v6)
	if err != nil {
		return nil, false, err
	}
	has := map[string]bool{}
	for _, c := range all {
		if slices.Contains(iptTables, c.table) && planOfChain(c.name) == name && !has[c.table+" "+c.name] {
			has[c.table+" "+c.name] = true
			out = append(out, c)
		}
	}
	if complete || len(out) > 0 || known == nil {
		return out, complete, nil
	}
	for table, names := range known() {
		for _, n := range names {
			if has[table+" "+n] {
				continue
			}
			has[table+" "+n] = true
			c, err := k.chain(v6, table, n)
			if err != nil {
				return nil, false, err
			}
			if c != nil {
				out = append(out, c)
			}
		}
	}
	return out, true, nil
}

// unrefer deletes the rules of other chains that jump to those of a plan, and tells whether there were any. The error
// is unix.ERESTART if they have changed meanwhile.
func (k nftRuleset) unrefer(v6 bool, name string) (found bool, err error) {
	generation, err := k.Generation()
	if err != nil {
		return false, err
	}
	var deletions []netlink.Request
	for _, table := range iptTables {
		rules, complete, err := k.rules(v6, table, "")
		if err != nil {
			return false, err
		}
		if !complete {
			return false, unix.ERESTART
		}
		for _, r := range rules {
			if planOfChain(r.chain) != name && r.leadsTo(name) {
				deletions = append(deletions, deleteRule(v6, table, r))
			}
		}
	}
	return len(deletions) > 0, k.CommitAt(generation, deletions...)
}

// deleteEach deletes chains without rules one by one, and names those to which something refers.
func (k nftRuleset) deleteEach(v6 bool, own []*nfChain) (left []string, err error) {
	for _, c := range own {
		switch err := k.Commit(deleteChain(v6, c.table, c.name)); {
		case errors.Is(err, unix.EBUSY):
			left = append(left, fmt.Sprintf("chain %s of table %s %s stays, without rules: something other than a rule "+
				"refers to it", c.name, ipName(v6), c.table))
		case err != nil && !errors.Is(err, unix.ENOENT):
			return left, err
		}
	}
	return left, nil
}

// ipName is what nf_tables calls an IP family.
func ipName(v6 bool) string {
	if v6 {
		return "ip6"
	}
	return "ip"
}
