// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
)

// Only has the kernel discard, before they take room in the receive buffer, all datagrams but those that begin with a
// message of one type of a subsystem (unix.NFNL_SUBSYS_…): a program of BPF that the kernel runs for each
// (do_one_broadcast in net/netlink/af_netlink.c). It is for a connection that only receives notifications: of answers,
// those of other types are discarded as well.
func (c *Conn) Only(subsystem, kind uint8) error {
	// A load of the machine is of the network's byte order, the type in struct nlmsghdr of its own.
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], messageType(subsystem, kind))
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2}, // nlmsg_type
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(binary.BigEndian.Uint16(b[:])), SkipFalse: 1},
		bpf.RetConstant{Val: maxDatagram},
		bpf.RetConstant{Val: 0},
	})
	if err == nil {
		err = c.conn.SetBPF(program)
	}
	if err != nil {
		return fmt.Errorf("netlink: a filter: %w", unwrap(err))
	}
	return nil
}
