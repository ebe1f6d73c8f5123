// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"golang.org/x/sys/unix"
)

// The messages that enclose a transaction (uapi/linux/netfilter/nfnetlink.h). They belong to no subsystem, and name the
// transaction's as their resource.
var (
	batchBegin = Request{Type: unix.NFNL_MSG_BATCH_BEGIN, Resource: unix.NFNL_SUBSYS_NFTABLES}
	batchEnd   = Request{Type: unix.NFNL_MSG_BATCH_END, Resource: unix.NFNL_SUBSYS_NFTABLES}
)

// Commit makes changes of nf_tables, all of them or none (nfnetlink_rcv_batch in net/netfilter/nfnetlink.c). The error
// is that of the first change that the kernel refuses, a unix.Errno.
func (c *Conn) Commit(changes ...Request) error {
	batch := make([]Request, 0, len(changes)+2) // begin and end
	batch = append(batch, batchBegin)
	for _, r := range changes {
		r.Flags |= unix.NLM_F_ACK
		batch = append(batch, r)
	}
	sent, err := c.send(append(batch, batchEnd)...)
	if err != nil {
		return err
	}
	first := sent[0].Header.Sequence
	for answered := 0; answered < len(changes); {
		datagram, err := c.receiveAnswer()
		if err != nil {
			return err
		}
		for m, err := range Messages(datagram) {
			if err != nil {
				return err
			}
			// The kernel answers every change, and refuses a transaction as a whole by answering its first message.
			// What is left unread after an error is recognized by its sequence number later.
			if !m.last() || m.Sequence-first >= uint32(len(sent)) { //nolint:gosec // a few messages
				continue
			}
			if err := m.err(); err != nil {
				return err
			}
			answered++
		}
	}
	return nil
}
