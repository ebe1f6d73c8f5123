// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// deleteUnused removes a base chain without rules and, if table is true, its table if that has become empty. With
// NLM_F_NONREC (uapi/linux/netlink.h; nf_tables_delchain, nf_tables_deltable) the kernel refuses to remove what is in
// use or not empty; that stays, and is no error.
func deleteUnused(c baseChain, table bool) error {
	conn, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	remove := func(kind uint8, attributes ...netlink.Attribute) error {
		return conn.Commit(netlink.Request{
			Subsystem:  unix.NFNL_SUBSYS_NFTABLES,
			Type:       kind,
			Flags:      unix.NLM_F_NONREC,
			Family:     map[string]uint8{"ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6}[c.family],
			Attributes: attributes,
		})
	}
	err = remove(unix.NFT_MSG_DELCHAIN,
		netlink.String(unix.NFTA_CHAIN_TABLE, c.table), netlink.String(unix.NFTA_CHAIN_NAME, c.name))
	if err == nil && table {
		err = remove(unix.NFT_MSG_DELTABLE, netlink.String(unix.NFTA_TABLE_NAME, c.table))
	}
	if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s, which is empty and was not there before, cannot be removed: %w", c, err)
	}
	return nil
}
