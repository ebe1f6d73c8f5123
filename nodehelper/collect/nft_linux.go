// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfmessages"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
)

// dumpAttempts is how often a ruleset is read that changes while it is read.
const dumpAttempts = 5

// errChanged says that the rules changed while they were read.
var errChanged = errors.New("the rules change faster than they can be read")

// readNft reads the ruleset of nf_tables over netlink, and writes it as nft does. The rules of tables that
// iptables-save shows are left out if that is read, too.
func readNft(ctx context.Context, r *reader) ([]byte, error) {
	if there, err := r.kernel.has("nf_tables"); err != nil {
		return nil, err
	} else if !there {
		return nil, errAbsent
	}
	managed := nftables.IPTables
	if !r.wants("iptables-nft-save.txt") || !r.wants("ip6tables-nft-save.txt") {
		managed = nil
	}
	conn, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for range dumpAttempts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var out []byte
		if out, err = ruleset(conn, managed, r.Memory); err == nil {
			return out, nil
		}
		if !errors.Is(err, errChanged) {
			break
		}
	}
	return nil, err
}

// ruleset returns the content of the file [snapshot.NFTFile]. The error is errChanged if the rules changed while they
// were read.
func ruleset(
	conn *netlink.Conn, managed func(family, table string) bool, m *Memory,
) ([]byte, error) {
	before, err := conn.Generation()
	if err != nil {
		return nil, err
	}
	node := nfmessages.Node{Order: binary.NativeEndian}
	if node.Interfaces, err = interfaceNames(); err != nil {
		return nil, err
	}
	answers, err := objects(conn)
	if err != nil {
		return nil, err
	}
	tables, left, err := nfmessages.Outline(answers, binary.NativeEndian, managed)
	if err != nil {
		return nil, err
	}
	apart, err := writtenByNFT(left)
	if err != nil {
		return nil, err
	}
	for _, t := range left {
		if apart[[2]string{t.Family, t.Name}] {
			tables = append(tables, t)
			continue
		}
		node.Left = append(node.Left, t.TableName)
	}
	queries, err := queriesFor(tables)
	if err != nil {
		return nil, err
	}
	answers, queries, kept := m.answer(answers, queries)
	parts, err := appendAll(answers, queries)
	if err != nil {
		return nil, err
	}
	after, err := conn.Generation()
	if err != nil {
		return nil, err
	}
	if before != after {
		return nil, errChanged
	}
	m.remember(kept, queries)
	all := parts[0]
	for _, p := range parts[1:] {
		all = append(all, p...)
	}
	rs, err := nfmessages.Read(all, &node)
	if err != nil {
		return nil, err
	}
	return rs.JSON()
}

// writtenByNFT tells into which tables of iptables, by family and name, nft has written rules that iptables-save prints
// as others, and that need no set ([nfmessages.Apart]). Only chains that are not kube-proxy's own are asked for, which
// are nearly all: what somebody else writes into one of these is gone when it writes its rules anew.
func writtenByNFT(tables []nfmessages.OutlineTable) (out map[[2]string]bool, err error) {
	var queries []query
	for i := range tables {
		for _, c := range tables[i].Chains {
			if !kubeproxy.OfKubernetes(c) {
				queries = append(queries, query{Request: request(unix.NFT_MSG_GETRULE, tables[i].Number,
					netlink.String(unix.NFTA_RULE_TABLE, tables[i].Name), netlink.String(unix.NFTA_RULE_CHAIN, c))})
			}
		}
	}
	if len(queries) == 0 {
		return nil, nil
	}
	rules, err := appendAll(nil, queries)
	if err != nil {
		return nil, err
	}
	out = map[[2]string]bool{}
	for _, part := range rules {
		if err := nfmessages.Apart(part, binary.NativeEndian, func(family, table string) {
			out[[2]string{family, table}] = true
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// objects returns the kernel's answers to requests for all tables, chains and sets. Of the latter there are as many as
// of chains: they come on a socket of their own, at the same time.
func objects(conn *netlink.Conn) ([]byte, error) {
	other, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	defer other.Close()
	all := func(kind uint8) netlink.Request { return request(kind, unix.NFPROTO_UNSPEC) }
	var sets []byte
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() { sets, failed = appendDump(other, nil, all(unix.NFT_MSG_GETSET)) })
	out, err := appendDump(conn, nil, all(unix.NFT_MSG_GETTABLE))
	if err == nil {
		out, err = appendDump(conn, out, all(unix.NFT_MSG_GETCHAIN))
	}
	wg.Wait()
	return append(out, sets...), cmp.Or(err, failed)
}

// query is a request for rules of a table or elements of a set.
type query struct {
	netlink.Request

	// keys, if not 0, is how many elements the set has if their keys are the numbers from 0 on: see
	// [nfmessages.OutlineSet]. elements is the attribute that requests these elements alone.
	keys     int
	elements netlink.Attribute

	// set names the set, if its elements never change, and answer gets what the kernel says of them; nil if they may.
	set    setName
	answer *[]byte
}

// queriesFor returns the queries for all rules and elements of tables, those of one kind together.
func queriesFor(tables []nfmessages.OutlineTable) (out []query, err error) {
	var elements elementQueries
	for _, t := range tables {
		out = append(out, query{
			Request: request(unix.NFT_MSG_GETRULE, t.Number, netlink.String(unix.NFTA_RULE_TABLE, t.Name)),
		})
		for _, set := range t.Sets {
			q, err := elements.query(t.Number, t.Name, set)
			if err != nil {
				return nil, err
			}
			if q.keys > 0 && t.Handle > 0 && set.Handle > 0 {
				q.set, q.answer = setName{t.Number, t.Handle, set.Handle}, new([]byte)
			}
			out = append(out, q)
		}
	}
	slices.SortStableFunc(out, func(a, b query) int { return cmp.Compare(min(a.keys, 1), min(b.keys, 1)) })
	return out, nil
}

// request is a request to nf_tables.
func request(kind, family uint8, attributes ...netlink.Attribute) netlink.Request {
	return netlink.Request{
		Subsystem: unix.NFNL_SUBSYS_NFTABLES, Type: kind, Family: family, Attributes: attributes,
	}
}

// appendDump requests all messages of a kind, and appends them. The error is errChanged if the objects changed
// meanwhile, or if the table or set is gone.
func appendDump(conn *netlink.Conn, out []byte, r netlink.Request) ([]byte, error) {
	r.Flags |= unix.NLM_F_DUMP
	out, err := conn.Append(out, r)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, netlink.ErrInterrupted):
		return out, errChanged
	case err != nil:
		return out, fmt.Errorf("nf_tables: %w", err)
	}
	return out, nil
}

func interfaceNames() (map[int]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("the names of interfaces: %w", err)
	}
	out := make(map[int]string, len(all))
	for _, i := range all {
		out[i.Index] = i.Name
	}
	return out, nil
}
