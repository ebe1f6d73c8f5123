// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strconv"
	"strings"
)

// LocalReservedPorts is the setting with ports that the kernel keeps out of [LocalPortRange] (inet_csk_find_open_port
// and __inet_hash_connect in net/ipv4).
const LocalReservedPorts = "net/ipv4/ip_local_reserved_ports"

// parsePorts reads what the kernel prints of a list of ports: 8080,9000-9010.
func parsePorts(text string) ([]portRange, bool) {
	var out []portRange
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		from, to, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err != nil || err2 != nil || a > b {
			return nil, false
		}
		out = append(out, portRange{uint16(a), uint16(b), true})
	}
	return out, true
}

// Ephemeral tells which ports the kernel gives to sockets that ask for none; known is false where the settings were not
// collected.
func (n *Network) Ephemeral() (in func(port uint16) bool, known bool) {
	first, last, known := n.LocalPorts()
	reserved, ok := n.Sysctl(LocalReservedPorts)
	kept, ok2 := parsePorts(reserved)
	if !known || !ok || !ok2 {
		return nil, false
	}
	return func(port uint16) bool {
		return first <= port && port <= last &&
			!slices.ContainsFunc(kept, func(p portRange) bool { return p.first <= port && port <= p.last })
	}, true
}

// EphemeralPorts is how many ports the kernel may give to sockets that ask for none; known is false where the settings
// were not collected.
func (n *Network) EphemeralPorts() (count int, known bool) {
	in, known := n.Ephemeral()
	if !known {
		return 0, false
	}
	first, last, _ := n.LocalPorts()
	for port := int(first); port <= int(last); port++ {
		if in(uint16(port)) { //nolint:gosec // at most last
			count++
		}
	}
	return count, true
}
