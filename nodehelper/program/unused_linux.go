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

// policyAccept is NF_ACCEPT of uapi/linux/netfilter.h.
const policyAccept = 1

// builtin is a base chain as iptables-nft makes it (xtables_ipv4 in iptables/nft.c).
type builtin struct {
	table, chain string
	hook         uint32
	priority     int32
	kind         string
}

// builtins are those of the tables that contain chains of a plan.
var builtins = []builtin{
	{"nat", "PREROUTING", unix.NF_INET_PRE_ROUTING, -100, "nat"},
	{"nat", "INPUT", unix.NF_INET_LOCAL_IN, 100, "nat"},
	{"nat", "OUTPUT", unix.NF_INET_LOCAL_OUT, -100, "nat"},
	{"nat", "POSTROUTING", unix.NF_INET_POST_ROUTING, 100, "nat"},
	{"filter", "INPUT", unix.NF_INET_LOCAL_IN, 0, "filter"},
	{"filter", "FORWARD", unix.NF_INET_FORWARD, 0, "filter"},
	{"filter", "OUTPUT", unix.NF_INET_LOCAL_OUT, 0, "filter"},
}

// used returns why a base chain that was made for a plan is not ours any more; "" if nobody has used it since.
func (b *builtin) used(c *nfChain) string {
	switch {
	case !c.base || c.hook != b.hook || c.priority != b.priority || c.kind != b.kind:
		return "it is another one"
	case c.policy != policyAccept:
		return "its policy is DROP"
	case c.use > 0:
		return "it has rules"
	case c.comment:
		return "it has a comment"
	}
	return ""
}

// inUse returns why a table that was made for a plan is not ours any more; "" if nobody has used it since. chains is
// the number of its chains that nobody has used.
func (t *nfTable) inUse(chains int) string {
	switch {
	case t.flags != 0:
		return "it has flags"
	case t.comment:
		return "it has a comment"
	case int(t.use) != chains:
		return "others have chains, sets or objects in it"
	}
	return ""
}

// baseChain is the name of a base chain as it stands in a record.
func (b *builtin) baseChain(v6 bool) string { return ipName(v6) + " " + b.table + " " + b.chain }

// madeByIPTables returns the tables and base chains of iptables-nft, as far as they are there.
func madeByIPTables() (tables, chains []string, err error) {
	conn, err := dialNF()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	for _, f := range families {
		for _, name := range iptTables {
			t, err := conn.table(f.v6, name)
			if err != nil {
				return nil, nil, err
			}
			if t != nil {
				tables = append(tables, f.nft+" "+name)
			}
		}
		for i := range builtins {
			b := &builtins[i]
			c, err := conn.chain(f.v6, b.table, b.chain)
			if err != nil {
				return nil, nil, err
			}
			if c != nil {
				chains = append(chains, b.baseChain(f.v6))
			}
		}
	}
	return tables, chains, nil
}

// unusedTime bounds the removal of what has no effect.
const unusedTime = 5 * time.Second

// removeUnused removes the base chains of iptables-nft that were not there before and that nobody has used since, and
// their tables. left says what stays. A policy that was set between reading and removing is safe: the kernel removes
// only what was read, see [netlink.Conn.CommitAt].
func removeUnused(ctx context.Context, before *Before) (left []string, err error) {
	conn, err := dialNF()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.removeUnused(ctx, before, func() {})
}

// removeUnused calls read between reading and removing.
func (k nfConn) removeUnused(ctx context.Context, before *Before, read func()) (left []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, unusedTime)
	defer cancel()
	err = until(ctx, func() (bool, error, error) {
		generation, err := k.Generation()
		if err != nil {
			return false, nil, err
		}
		left = nil
		var changes []netlink.Request
		for _, f := range families {
			for _, table := range iptTables {
				unused, used, err := k.unusedOf(f.v6, table, before)
				if err != nil {
					return false, nil, err
				}
				changes = append(changes, unused...)
				if used != "" {
					left = append(left, used)
				}
			}
		}
		read()
		err = k.CommitAt(generation, changes...)
		if errors.Is(err, unix.EBUSY) {
			err = unix.ERESTART
		}
		return committed(err)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return []string{"base chains of iptables-nft that were created for this path stay, with policy ACCEPT and without " +
			"its rules: " + errKeepsChanging.Error()}, nil
	}
	return left, err
}

// unusedOf returns the changes that remove what of a table was made for a plan and not used since. used says what stays
// of what was made, and why.
func (k nfConn) unusedOf(v6 bool, name string, before *Before) (changes []netlink.Request, used string, err error) {
	t, err := k.table(v6, name)
	if err != nil || t == nil {
		return nil, "", err
	}
	var stays []string
	for i := range builtins {
		b := &builtins[i]
		if b.table != name || slices.Contains(before.Chains, b.baseChain(v6)) {
			continue
		}
		c, err := k.chain(v6, name, b.chain)
		if err != nil {
			return nil, "", err
		}
		if c == nil {
			continue
		}
		if why := b.used(c); why != "" {
			stays = append(stays, b.chain+" ("+why+")")
			continue
		}
		changes = append(changes, deleteChain(v6, name, b.chain))
	}
	at := ipName(v6) + " " + name
	if len(stays) > 0 {
		return changes, fmt.Sprintf("of table %s the chains %s stay: they were created for this path, and others have "+
			"changed "+
			"them since", at, strings.Join(stays, ", ")), nil
	}
	if slices.Contains(before.Tables, at) {
		return changes, "", nil
	}
	if why := t.inUse(len(changes)); why != "" {
		return changes, fmt.Sprintf("table %s stays: it was created for this path, and %s", at, why), nil
	}
	changes = append(changes, nfRequest(unix.NFT_MSG_DELTABLE, v6, unix.NLM_F_NONREC,
		netlink.String(unix.NFTA_TABLE_NAME, name)))
	return changes, "", nil
}
