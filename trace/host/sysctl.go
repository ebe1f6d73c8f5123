// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strings"
)

// readSysctl reads sysctl.txt. Lines without "=" are errors, except comments and messages of sysctl itself.
func (n *Network) readSysctl(data []byte) error {
	values := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' || strings.HasPrefix(line, "sysctl: ") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" || strings.ContainsAny(key, " \t\x00") {
			return fmt.Errorf("line %d is no KEY=VALUE", i+1)
		}
		values[slashed(strings.TrimPrefix(key, "/proc/sys/"))] = strings.TrimSpace(value)
	}
	if len(values) == 0 {
		return errors.New("it is empty")
	}
	n.sysctl = values
	return nil
}

// slashed returns a key in the form of its path below /proc/sys. In the dotted form the two separators are exchanged:
// net.ipv4.conf.eth0/100.rp_filter is of the interface eth0.100.
func slashed(key string) string {
	if at := strings.IndexAny(key, "./"); at < 0 || key[at] == '/' {
		return key
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, key)
}

// Sysctl returns the value of a kernel parameter; key may be written net/ipv4/ip_forward or net.ipv4.ip_forward. ok is
// false where it was not collected.
func (n *Network) Sysctl(key string) (value string, ok bool) {
	value, ok = n.sysctl[slashed(key)]
	return value, ok
}
