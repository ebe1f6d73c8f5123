// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfnl"
)

// Numbers tells rules by their place in a chain, counted from 1, as save files and listings do. It asks the kernel once for each chain.
type Numbers struct{ chains map[chainKey]map[uint64]int }

type chainKey struct{ family, table, chain string }

// Of returns the number of a rule; 0 where it is gone.
func (n *Numbers) Of(e *Event) (int, error) {
	k := chainKey{e.Family, e.Table, e.Chain}
	if n.chains[k] == nil {
		rules, err := handles(k)
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

// handles lists a chain's rules (nf_tables_dump_rules in net/netfilter/nf_tables_api.c).
func handles(k chainKey) (map[uint64]int, error) {
	family := byte(0)
	for number, name := range families {
		if name == k.family {
			family = number
		}
	}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	req.AddData(nfnl.Text(unix.NFTA_RULE_TABLE, k.table))
	req.AddData(nfnl.Text(unix.NFTA_RULE_CHAIN, k.chain))
	answers, err := req.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE)
	if err != nil {
		return nil, err
	}
	out := map[uint64]int{}
	for _, a := range answers {
		if len(a) < nl.SizeofNfgenmsg {
			return nil, errShort
		}
		attrs, err := nfnl.Attributes(a[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		for _, attr := range attrs {
			if attr.Attr.Type == unix.NFTA_RULE_HANDLE && len(attr.Value) == 8 { //nolint:mnd // bytes of a handle
				out[binary.BigEndian.Uint64(attr.Value)] = len(out) + 1
			}
		}
	}
	return out, nil
}
