// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// Numbers translates handles of rules into positions in their chain, counted from 1, as save files and listings have
// them. It asks the kernel once for each chain. The zero value is ready for use.
type Numbers struct{ chains map[chainKey]map[uint64]int }

type chainKey struct{ family, table, chain string }

// Of returns the position of an event's rule; 0 if the rule no longer exists.
func (n *Numbers) Of(e *Event) (int, error) {
	k := chainKey{e.Family, e.Table, e.Chain}
	if n.chains[k] == nil {
		rules, err := positions(k)
		if err != nil {
			return 0, fmt.Errorf("the rules of %s %s %s: %w", e.Family, e.Table, e.Chain, err)
		}
		if n.chains == nil {
			n.chains = map[chainKey]map[uint64]int{}
		}
		n.chains[k] = rules
	}
	return n.chains[k][e.Handle], nil
}

// positions returns the positions of a chain's rules by their handles (nf_tables_dump_rules in
// net/netfilter/nf_tables_api.c).
func positions(k chainKey) (map[uint64]int, error) {
	family := uint8(0)
	for number, name := range families {
		if name == k.family {
			family = number
		}
	}
	conn, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rules, err := conn.Do(netlink.Request{
		Subsystem: unix.NFNL_SUBSYS_NFTABLES,
		Type:      unix.NFT_MSG_GETRULE,
		Flags:     unix.NLM_F_DUMP,
		Family:    family,
		Attributes: []netlink.Attribute{
			netlink.String(unix.NFTA_RULE_TABLE, k.table), netlink.String(unix.NFTA_RULE_CHAIN, k.chain),
		},
	})
	if err != nil {
		return nil, err
	}
	out := map[uint64]int{}
	for i := range rules {
		if !rules[i].Is(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_NEWRULE) {
			continue
		}
		_, attributes, err := rules[i].Attributes()
		if err != nil {
			return nil, err
		}
		for _, a := range attributes {
			if a.Type == unix.NFTA_RULE_HANDLE && len(a.Value) == 8 { // bytes of a handle
				out[binary.BigEndian.Uint64(a.Value)] = len(out) + 1
			}
		}
	}
	return out, nil
}
