// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfnl"
)

// nonrec has the kernel remove what is empty, and nothing else (NLM_F_NONREC of uapi/linux/netlink.h; nf_tables_delchain, nf_tables_deltable).
const nonrec = 0x100

// deleteUnused removes a base chain without rules, and its table where that has nothing else and may go. What somebody uses stays.
func deleteUnused(c baseChain, table bool) error {
	conn, err := nfnl.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	family := map[string]byte{"ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6}[c.family]
	err = conn.Commit(nfnl.Message{Family: family, Kind: unix.NFT_MSG_DELCHAIN, Flags: nonrec, Attrs: []*nl.RtAttr{
		nfnl.Text(unix.NFTA_CHAIN_TABLE, c.table), nfnl.Text(unix.NFTA_CHAIN_NAME, c.name),
	}})
	if err == nil && table {
		err = conn.Commit(nfnl.Message{Family: family, Kind: unix.NFT_MSG_DELTABLE, Flags: nonrec, Attrs: []*nl.RtAttr{nfnl.Text(unix.NFTA_TABLE_NAME, c.table)}})
	}
	if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s, which is empty and was not there before, cannot be removed: %w", c, err)
	}
	return nil
}
