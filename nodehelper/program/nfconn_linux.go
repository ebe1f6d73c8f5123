// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// nfConn reads and changes nf_tables. Programs such as iptables-nft read all rules before they change one, and begin
// anew each time that another program has changed something meanwhile: while one does so without a pause they may never
// succeed. What is read here is so little that it succeeds.
type nfConn struct{ *netlink.Conn }

func dialNF() (nfConn, error) {
	conn, err := netlink.Dial()
	return nfConn{conn}, err
}

// nfTable is a table.
type nfTable struct {
	handle  uint64 // no two tables of a namespace ever have the same
	flags   uint32
	use     uint32 // the number of chains, sets, flowtables and objects in it
	comment bool
}

// nfChain is a chain. What only base chains have is zero for others.
type nfChain struct {
	table, name string
	base        bool
	hook        uint32
	priority    int32
	kind        string
	policy      uint32
	use         uint32 // the number of its rules, and of references to it
	comment     bool
}

// nfRule is a rule.
type nfRule struct {
	chain  string
	handle uint64
	to     []string // the chains that it jumps or goes to
}

// Attributes that golang.org/x/sys/unix does not name (uapi/linux/netfilter/nf_tables.h).
const (
	nftaTableHandle   = 4
	nftaTableUserdata = 6
	nftaChainUserdata = 12
)

// nfFamily returns the number of an IP family.
func nfFamily(v6 bool) uint8 {
	if v6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func nfRequest(kind uint8, v6 bool, flags uint16, attributes ...netlink.Attribute) netlink.Request {
	return netlink.Request{
		Subsystem: unix.NFNL_SUBSYS_NFTABLES, Type: kind, Flags: flags, Family: nfFamily(v6), Attributes: attributes,
	}
}

// attributes are those of a message, by their types.
type attributes map[uint16][]byte

func (a attributes) text(kind uint16) string { return unix.ByteSliceToString(a[kind]) }

func (a attributes) uint32(kind uint16) uint32 {
	if len(a[kind]) != 4 { // bytes
		return 0
	}
	return binary.BigEndian.Uint32(a[kind])
}

func (a attributes) uint64(kind uint16) uint64 {
	if len(a[kind]) != 8 { // bytes
		return 0
	}
	return binary.BigEndian.Uint64(a[kind])
}

// nested returns the attributes of an attribute; none if it is not there.
func (a attributes) nested(kind uint16) (attributes, error) {
	list, err := netlink.Decode(a[kind])
	return attributesOf(list), err
}

func attributesOf(list []netlink.Attribute) attributes {
	out := make(attributes, len(list))
	for _, a := range list {
		out[a.Type] = a.Value
	}
	return out
}

// read visits the objects of an answer. What is not there is no error, and has no objects. It is not complete if
// something changed during a dump.
func (k nfConn) read(r netlink.Request, visit func(attributes) error) (complete bool, err error) {
	raw, err := k.Append(nil, r)
	complete = !errors.Is(err, netlink.ErrInterrupted)
	switch {
	case errors.Is(err, unix.ENOENT):
		return true, nil
	case err != nil && complete:
		return false, fmt.Errorf("nf_tables: %w", err)
	}
	for m, err := range netlink.Messages(raw) {
		if err != nil {
			return false, err
		}
		_, list, err := m.Attributes()
		if err == nil {
			err = visit(attributesOf(list))
		}
		if err != nil {
			return false, err
		}
	}
	return complete, nil
}

// table returns a table; nil: there is none.
func (k nfConn) table(v6 bool, name string) (t *nfTable, err error) {
	_, err = k.read(nfRequest(unix.NFT_MSG_GETTABLE, v6, 0, netlink.String(unix.NFTA_TABLE_NAME, name)),
		func(a attributes) error {
			t = &nfTable{
				handle: a.uint64(nftaTableHandle), flags: a.uint32(unix.NFTA_TABLE_FLAGS), use: a.uint32(unix.NFTA_TABLE_USE),
				comment: hasComment(a[nftaTableUserdata]),
			}
			return nil
		})
	return t, err
}

// chain returns a chain; nil: there is none.
func (k nfConn) chain(v6 bool, table, name string) (c *nfChain, err error) {
	_, err = k.read(nfRequest(unix.NFT_MSG_GETCHAIN, v6, 0,
		netlink.String(unix.NFTA_CHAIN_TABLE, table), netlink.String(unix.NFTA_CHAIN_NAME, name)),
		func(a attributes) error {
			c, err = chainOf(a)
			return err
		})
	return c, err
}

// chains returns the chains of a family. If other programs change the rules meanwhile some may be missing: then it is
// not complete.
func (k nfConn) chains(v6 bool) (out []*nfChain, complete bool, err error) {
	complete, err = k.read(nfRequest(unix.NFT_MSG_GETCHAIN, v6, unix.NLM_F_DUMP), func(a attributes) error {
		c, err := chainOf(a)
		out = append(out, c)
		return err
	})
	return out, complete, err
}

func chainOf(a attributes) (*nfChain, error) {
	c := &nfChain{
		table: a.text(unix.NFTA_CHAIN_TABLE), name: a.text(unix.NFTA_CHAIN_NAME), kind: a.text(unix.NFTA_CHAIN_TYPE),
		policy: a.uint32(unix.NFTA_CHAIN_POLICY), use: a.uint32(unix.NFTA_CHAIN_USE),
		comment: hasComment(a[nftaChainUserdata]),
	}
	if _, c.base = a[unix.NFTA_CHAIN_HOOK]; !c.base {
		return c, nil
	}
	hook, err := a.nested(unix.NFTA_CHAIN_HOOK)
	c.hook = hook.uint32(unix.NFTA_HOOK_HOOKNUM)
	c.priority = int32(hook.uint32(unix.NFTA_HOOK_PRIORITY)) //nolint:gosec // it is an int in the kernel
	return c, err
}

// hasComment tells whether user data of a table or chain has a comment: a list of type, length and value, of which
// libnftables gives comments the type 0.
func hasComment(userdata []byte) bool {
	for len(userdata) > 1 {
		if userdata[0] == 0 {
			return true
		}
		userdata = userdata[min(2+int(userdata[1]), len(userdata)):]
	}
	return false
}

// rules returns the rules of a chain, or with "" those of a table, that jump to other chains. It is complete as for
// chains.
func (k nfConn) rules(v6 bool, table, chain string) (out []nfRule, complete bool, err error) {
	which := []netlink.Attribute{netlink.String(unix.NFTA_RULE_TABLE, table)}
	if chain != "" {
		which = append(which, netlink.String(unix.NFTA_RULE_CHAIN, chain))
	}
	complete, err = k.read(nfRequest(unix.NFT_MSG_GETRULE, v6, unix.NLM_F_DUMP, which...), func(a attributes) error {
		r := nfRule{chain: a.text(unix.NFTA_RULE_CHAIN), handle: a.uint64(unix.NFTA_RULE_HANDLE)}
		if a.text(unix.NFTA_RULE_TABLE) != table || chain != "" && r.chain != chain {
			return nil // kernels before 4.8 do not select
		}
		var err error
		if r.to, err = jumpsOf(a[unix.NFTA_RULE_EXPRESSIONS]); len(r.to) > 0 {
			out = append(out, r)
		}
		return err
	})
	return out, complete, err
}

// jumpsOf returns the chains that expressions of a rule jump or go to: a verdict is the value that the expression
// "immediate" loads (nft_immediate_dump, nft_verdict_dump in net/netfilter).
func jumpsOf(expressions []byte) (to []string, err error) {
	list, err := netlink.Decode(expressions)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		at := attributes{unix.NFTA_LIST_ELEM: e.Value}
		for _, step := range []uint16{
			unix.NFTA_LIST_ELEM, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT,
		} {
			if at, err = at.nested(step); err != nil {
				return nil, err
			}
			if name, ok := at[unix.NFTA_EXPR_NAME]; step == unix.NFTA_LIST_ELEM && ok &&
				unix.ByteSliceToString(name) != "immediate" {
				at = nil
				break
			}
		}
		if chain := at.text(unix.NFTA_VERDICT_CHAIN); chain != "" {
			to = append(to, chain)
		}
	}
	return to, nil
}

// sliceSize is the number of changes in one of several transactions: error messages about all of them fit into the
// receive buffer, and other programs wait for a short time only.
const sliceSize = 200

// commitSlices makes changes in several transactions.
func (k nfConn) commitSlices(changes []netlink.Request) error {
	for len(changes) > 0 {
		n := min(sliceSize, len(changes))
		if err := k.Commit(changes[:n]...); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return nil
}

func flushChain(v6 bool, table, name string) netlink.Request {
	return nfRequest(unix.NFT_MSG_DELRULE, v6, 0,
		netlink.String(unix.NFTA_RULE_TABLE, table), netlink.String(unix.NFTA_RULE_CHAIN, name))
}

// deleteChain deletes a chain without rules to which no rule refers: with NLM_F_NONREC the kernel refuses any other
// with EBUSY (nf_tables_delchain in net/netfilter/nf_tables_api.c).
func deleteChain(v6 bool, table, name string) netlink.Request {
	return nfRequest(unix.NFT_MSG_DELCHAIN, v6, unix.NLM_F_NONREC,
		netlink.String(unix.NFTA_CHAIN_TABLE, table), netlink.String(unix.NFTA_CHAIN_NAME, name))
}

func deleteRule(v6 bool, table string, r nfRule) netlink.Request {
	return nfRequest(unix.NFT_MSG_DELRULE, v6, 0, netlink.String(unix.NFTA_RULE_TABLE, table),
		netlink.String(unix.NFTA_RULE_CHAIN, r.chain), netlink.Uint64(unix.NFTA_RULE_HANDLE, r.handle))
}

// changedMeanwhile tells whether an error says that the rules are not those any more that were read: they have to be
// read again.
func changedMeanwhile(err error) bool {
	return errors.Is(err, unix.ERESTART) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR)
}

// The pauses between tries begin with firstPause and double up to lastPause.
const (
	firstPause = 100 * time.Microsecond
	lastPause  = 20 * time.Millisecond
)

// until calls a function until it is done or fails, or the context ends. The error is then what the function gave as
// the reason why it is not done yet.
func until(ctx context.Context, do func() (done bool, why error, err error)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		done, why, err := do()
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if why == nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w (%w)", why, context.Cause(ctx))
		}
	}
}
