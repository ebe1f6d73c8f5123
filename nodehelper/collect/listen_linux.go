// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// readListeners lists sockets that wait for connections or packets as ss -Hltunp does. ss itself asks the kernel over
// sock_diag, and that loads modules; /proc/net has them, too.
func readListeners(_ context.Context, _ *reader) ([]byte, error) {
	users, err := socketUsers("/proc")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, table := range []struct {
		file, netid, state, shown string
	}{
		{"udp", "udp", "07", "UNCONN"},
		{"udp6", "udp", "07", "UNCONN"},
		{"tcp", "tcp", "0A", "LISTEN"},
		{"tcp6", "tcp", "0A", "LISTEN"},
	} {
		f, err := os.Open("/proc/self/net/" + table.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			s, ok := parseSocket(lines.Text())
			if !ok || s.state != table.state {
				continue
			}
			fmt.Fprintf(&out, "%-5s %-6s %-6d %-6d %24s %24s", table.netid, table.shown, s.receive, s.send, shown(s.local),
				shown(s.remote))
			if u := users[s.inode]; len(u) > 0 {
				fmt.Fprintf(&out, " users:(%s)", strings.Join(u, ","))
			}
			out.WriteByte('\n')
		}
		err = lines.Err()
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// socket is a line of /proc/net/tcp and its like (get_tcp4_sock in net/ipv4/tcp_ipv4.c).
type socket struct {
	local, remote netip.AddrPort
	state, inode  string
	receive, send int64 // of a listening TCP socket: connections waiting to be accepted, and 0
}

func parseSocket(line string) (s socket, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 || !strings.HasSuffix(f[0], ":") {
		return s, false
	}
	var err1, err2, err3, err4 error
	s.local, err1 = parseAddrPort(f[1])
	s.remote, err2 = parseAddrPort(f[2])
	s.state, s.inode = f[3], f[9]
	send, receive, _ := strings.Cut(f[4], ":")
	s.send, err3 = strconv.ParseInt(send, 16, 64)
	s.receive, err4 = strconv.ParseInt(receive, 16, 64)
	return s, errors.Join(err1, err2, err3, err4) == nil
}

// parseAddrPort reads ADDRESS:PORT in hexadecimal. The address is printed in words of four bytes, each in the order of
// this machine.
func parseAddrPort(text string) (netip.AddrPort, error) {
	address, port, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	if !ok || err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word) // every architecture that nodes have is little-endian
	}
	a, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	p, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(a, uint16(p)), err
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

// socketUsers finds the processes of each socket, by its inode. Processes that end meanwhile are none.
func socketUsers(proc string) (map[string][]string, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	users := map[string][]string{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		dir := filepath.Join(proc, e.Name(), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		name := ""
		for _, fd := range fds {
			link, err := os.Readlink(filepath.Join(dir, fd.Name()))
			if err != nil || !strings.HasPrefix(link, "socket:[") {
				continue
			}
			if name == "" {
				data, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
				if err != nil {
					break
				}
				name = strings.TrimSpace(string(data))
			}
			inode := strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")
			users[inode] = append(users[inode], fmt.Sprintf("(%q,pid=%s,fd=%s)", name, e.Name(), fd.Name()))
		}
	}
	return users, nil
}
