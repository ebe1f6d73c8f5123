// SPDX-License-Identifier: Apache-2.0

// Package sockets lists the sockets of a network namespace that wait for connections or packets, and the processes that
// hold them. It reads /proc: to ask over sock_diag, as ss does, would load kernel modules.
package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
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

// Socket is one that waits for connections (TCP) or packets (UDP): a line of /proc/net/tcp and its like
// (get_tcp4_sock in net/ipv4/tcp_ipv4.c).
type Socket struct {
	Protocol      string // TCP or UDP
	Local, Remote netip.AddrPort
	Inode         string
	Receive, Send int64 // of a TCP socket: connections waiting to be accepted, and 0; of a UDP socket: bytes
}

// Listening lists the sockets of the calling thread's network namespace.
func Listening() ([]Socket, error) {
	var out []Socket
	for _, table := range []struct{ file, protocol, state string }{
		{"udp", "UDP", "07"}, {"udp6", "UDP", "07"}, {"tcp", "TCP", "0A"}, {"tcp6", "TCP", "0A"},
	} {
		f, err := os.Open("/proc/thread-self/net/" + table.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if s, state, ok := parse(lines.Text()); ok && state == table.state {
				s.Protocol = table.protocol
				out = append(out, s)
			}
		}
		err = lines.Err()
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parse(line string) (s Socket, state string, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 || !strings.HasSuffix(f[0], ":") {
		return s, "", false
	}
	var err1, err2, err3, err4 error
	s.Local, err1 = parseAddrPort(f[1])
	s.Remote, err2 = parseAddrPort(f[2])
	s.Inode = f[9]
	send, receive, _ := strings.Cut(f[4], ":")
	s.Send, err3 = strconv.ParseInt(send, 16, 64)
	s.Receive, err4 = strconv.ParseInt(receive, 16, 64)
	return s, f[3], errors.Join(err1, err2, err3, err4) == nil
}

// parseAddrPort reads ADDRESS:PORT in hexadecimal. The address is printed in words of four bytes, each as a number of
// this machine.
func parseAddrPort(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	for word := range slices.Chunk(raw, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	a, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	p, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(a, uint16(p)), err
}

// User is a process that holds a socket.
type User struct {
	PID  string
	FD   string // the number of its file descriptor
	Name string // of the process, as it calls itself
}

// Users finds the processes that hold sockets, by the sockets' inodes. Processes that end
// meanwhile are none.
func Users(of []Socket) (map[string][]User, error) {
	const proc = "/proc"
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool, len(of))
	for i := range of {
		wanted[of[i].Inode] = true
	}
	users := map[string][]User{}
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
			if err != nil {
				continue
			}
			inode, ok := strings.CutPrefix(link, "socket:[")
			if inode = strings.TrimSuffix(inode, "]"); !ok || !wanted[inode] {
				continue
			}
			if name == "" {
				data, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
				if err != nil {
					break
				}
				name = strings.TrimSpace(string(data))
			}
			users[inode] = append(users[inode], User{PID: e.Name(), FD: fd.Name(), Name: name})
		}
	}
	return users, nil
}

// State is the letter of a process's state (proc_pid_stat(5)); "" where it has ended.
func State(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	// The name, in brackets, may have any character in it.
	_, rest, _ := strings.Cut(string(data[max(bytes.LastIndexByte(data, ')'), 0):]), " ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}
