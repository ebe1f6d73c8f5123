// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"strconv"
)

// SocketCounts are how many sockets a network namespace has, of both families; TimeWait are connections of TCP that are
// over and keep their port.
type SocketCounts struct{ TCP, TimeWait, UDP int }

// ParseSocketCounts reads /proc/net/sockstat and /proc/net/sockstat6, one behind the other (sockstat_seq_show in
// net/ipv4/proc.c, sockstat6_seq_show in net/ipv6/proc.c). What it does not know counts nothing.
func ParseSocketCounts(data []byte) (*SocketCounts, error) {
	var out SocketCounts
	counts := map[string]map[string]*int{
		"TCP:": {"inuse": &out.TCP, "tw": &out.TimeWait}, "TCP6:": {"inuse": &out.TCP},
		"UDP:": {"inuse": &out.UDP}, "UDP6:": {"inuse": &out.UDP},
	}
	read := false
	for line := range bytes.Lines(data) {
		words := bytes.Fields(line)
		if len(words) == 0 {
			continue
		}
		for i := 1; i+1 < len(words); i += 2 {
			to := counts[string(words[0])][string(words[i])]
			if n, err := strconv.ParseUint(string(words[i+1]), 10, 31); err == nil && to != nil {
				*to, read = *to+int(n), true
			}
		}
	}
	if !read {
		return nil, errors.New("it counts no sockets of TCP or UDP")
	}
	return &out, nil
}
