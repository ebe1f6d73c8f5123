// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// NumbersNamespace tells whether the thread's network namespace has a number for another one, whose file is given
// (rtnl_net_getid in net/core/net_namespace.c).
func NumbersNamespace(file *os.File) (bool, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ask := netlink.NewAttributeEncoder()
	ask.Uint32(unix.NETNSA_FD, uint32(file.Fd())) //nolint:gosec // a file descriptor
	attributes, err := ask.Encode()
	if err != nil {
		return false, err
	}
	family := []byte{unix.AF_UNSPEC, 0, 0, 0} // struct rtgenmsg, aligned
	got, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETNSID, Flags: netlink.Request}, Data: append(family, attributes...),
	})
	if err != nil {
		return false, err
	}
	if len(got) != 1 || len(got[0].Data) < len(family) {
		return false, fmt.Errorf("%d messages were received for the number of a network namespace: one was expected",
			len(got))
	}
	answer, err := netlink.NewAttributeDecoder(got[0].Data[len(family):])
	if err != nil {
		return false, err
	}
	for answer.Next() {
		if answer.Type() == unix.NETNSA_NSID {
			return answer.Int32() >= 0, nil // NETNSA_NSID_NOT_ASSIGNED is -1
		}
	}
	return false, answer.Err()
}
