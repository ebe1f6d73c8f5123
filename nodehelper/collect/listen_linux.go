// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
)

// readListeners lists sockets that wait for connections or packets as ss -Hltunp does, with what sock_diag alone tells
// where the kernel has it: the limits of queues, and which sockets of IPv6 take IPv4, too, whose address ss prints as
// "*". What ss -e and ss -m add of these shows that it is of sock_diag: of /proc a limit of 0 says nothing.
func readListeners(_ context.Context, r *reader) ([]byte, error) {
	r.listeners.once.Do(func() { r.listeners.text, r.listeners.err = r.listListeners() })
	return r.listeners.text, r.listeners.err
}

// listeners are the sockets of the namespace, read once for all files that are about them.
type listeners struct {
	once sync.Once
	text []byte
	err  error
	// holders are the processes that have the sockets, by inode.
	holders map[string][]sockets.User
}

func (r *reader) listListeners() ([]byte, error) {
	for _, m := range []string{"tcp_diag", "udp_diag"} {
		if there, err := r.kernel.has(m); err != nil || !there {
			return r.listFromProc()
		}
	}
	list, err := sockets.Diagnosed()
	if err != nil {
		return r.listFromProc()
	}
	plain := make([]sockets.Socket, len(list))
	for i := range list {
		plain[i] = list[i].Socket
	}
	devices := map[int]string{}
	for i := range list {
		if d := list[i].Device; d != 0 && devices[d] == "" {
			devices[d] = "if" + strconv.Itoa(d)
			if found, err := net.InterfaceByIndex(d); err == nil {
				devices[d] = found.Name
			}
		}
	}
	return r.listing(plain, func(i int) string {
		text := shown(list[i].Local)
		if a := list[i].Local; a.Addr() == netip.IPv6Unspecified() && !list[i].V6Only {
			text = "*:" + strconv.Itoa(int(a.Port()))
		}
		if d := devices[list[i].Device]; d != "" {
			colon := strings.LastIndexByte(text, ':')
			text = text[:colon] + "%" + d + text[colon:]
		}
		return text
	}, func(i int) string {
		d, text := &list[i], ""
		if d.Local.Addr().Is6() {
			text = " v6only:0"
			if d.V6Only {
				text = " v6only:1"
			}
		}
		return fmt.Sprintf("%s skmem:(r%d,rb%d)", text, d.Held, d.Buffer)
	})
}

// listFromProc is listListeners where sock_diag is not there.
func (r *reader) listFromProc() ([]byte, error) {
	list, err := sockets.Listening()
	if err != nil {
		return nil, err
	}
	return r.listing(list, func(i int) string { return shown(list[i].Local) }, func(int) string { return "" })
}

// listing prints sockets with the processes that have them; local is what it prints of a socket's own address, and more
// what it adds to the line.
func (r *reader) listing(list []sockets.Socket, local, more func(i int) string) ([]byte, error) {
	users, err := sockets.Users(list)
	if err != nil {
		return nil, err
	}
	r.listeners.holders = users
	states := map[string]string{"TCP": "LISTEN", "UDP": "UNCONN"}
	var out bytes.Buffer
	for i := range list {
		s := &list[i]
		fmt.Fprintf(&out, "%-5s %-6s %-6d %-6d %24s %24s", strings.ToLower(s.Protocol), states[s.Protocol],
			s.Receive, s.Send, local(i), shown(s.Remote))
		by := make([]string, 0, len(users[s.Inode]))
		for _, u := range users[s.Inode] {
			by = append(by, fmt.Sprintf("(%q,pid=%s,fd=%s)", plainName(u.Name), u.PID, u.FD))
		}
		if len(by) > 0 {
			fmt.Fprintf(&out, " users:(%s)", strings.Join(by, ","))
		}
		out.WriteString(more(i))
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// plainName is how a process calls itself, without what would end it in the listing.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '"' || r == '\\' || r == '(' || r == ')' || r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
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
