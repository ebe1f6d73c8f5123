// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"

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
func (c *Conn) Commit(changes ...Request) error { return c.commit(batchBegin, changes) }

// CommitAt is Commit for changes that were chosen by what was read before: the kernel makes them only if the ruleset
// still is of the generation that [Conn.Generation] returned before the reading. The error is unix.ERESTART if it is
// not (nf_tables_valid_genid in net/netfilter/nf_tables_api.c).
func (c *Conn) CommitAt(generation uint32, changes ...Request) error {
	begin := batchBegin
	begin.Attributes = []Attribute{Uint32(unix.NFNL_BATCH_GENID, generation)}
	return c.commit(begin, changes)
}

func (c *Conn) commit(begin Request, changes []Request) error {
	if len(changes) == 0 {
		return nil
	}
	batch := make([]Request, 0, len(changes)+2) // begin and end
	batch = append(batch, begin)
	batch = append(batch, changes...)
	// Errors are always reported. One confirmation for all suffices: thousands would not fit into the receive buffer.
	batch[len(batch)-1].Flags |= unix.NLM_F_ACK
	sent, err := c.send(append(batch, batchEnd)...)
	if err != nil {
		return err
	}
	first := sent[0].Header.Sequence
	last := sent[len(changes)].Header.Sequence
	for {
		datagram, err := c.receiveAnswer()
		if err != nil {
			return err
		}
		for m, err := range Messages(datagram) {
			if err != nil {
				return err
			}
			// The kernel refuses a transaction as a whole by answering its first message. What is left unread after an error
			// is recognized by its sequence number later.
			if !m.last() || m.Sequence-first >= uint32(len(sent)) { //nolint:gosec // a few thousand messages
				continue
			}
			if err := m.err(); err != nil {
				return err
			}
			if m.Sequence == last {
				return nil
			}
		}
	}
}

// Generation returns the number of the state of nf_tables, which every change increments (NFT_MSG_GETGEN).
func (c *Conn) Generation() (uint32, error) {
	answer, err := c.Do(Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Type: unix.NFT_MSG_GETGEN})
	if err != nil {
		return 0, fmt.Errorf("nf_tables: %w", err)
	}
	for i := range answer {
		_, attributes, err := answer[i].Attributes()
		if err != nil {
			return 0, fmt.Errorf("nf_tables: %w", err)
		}
		for _, a := range attributes {
			if a.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 { // bytes of a number
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("nf_tables does not report the generation of its rules")
}
