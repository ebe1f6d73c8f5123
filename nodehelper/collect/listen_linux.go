// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
)

// readListeners lists sockets that wait for connections or packets as ss -Hltunp does.
func readListeners(_ context.Context, r *reader) ([]byte, error) {
	list, err := sockets.Listening()
	if err != nil {
		return nil, err
	}
	return r.listing(list, func(i int) string { return shown(list[i].Local) })
}

// listing prints sockets with the processes that have them; local is what it prints of a socket's own address.
func (r *reader) listing(list []sockets.Socket, local func(i int) string) ([]byte, error) {
	users, err := sockets.Users(list)
	if err != nil {
		return nil, err
	}
	r.holders = users
	states := map[string]string{"TCP": "LISTEN", "UDP": "UNCONN"}
	var out bytes.Buffer
	for i := range list {
		s := &list[i]
		fmt.Fprintf(&out, "%-5s %-6s %-6d %-6d %24s %24s", strings.ToLower(s.Protocol), states[s.Protocol],
			s.Receive, s.Send, local(i), shown(s.Remote))
		by := make([]string, 0, len(users[s.Inode]))
		for _, u := range users[s.Inode] {
			by = append(by, fmt.Sprintf("(%q,pid=%s,fd=%s)", u.Name, u.PID, u.FD))
		}
		if len(by) > 0 {
			fmt.Fprintf(&out, " users:(%s)", strings.Join(by, ","))
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// shown is an address as ss prints it.
func shown(a netip.AddrPort) string {
	port := "*"
	if a.Port() != 0 {
		port = strconv.Itoa(int(a.Port()))
	}
	if a.Addr().Is6() {
		return "[" + a.Addr().String() + "]:" + port
	}
	return a.Addr().String() + ":" + port
}
