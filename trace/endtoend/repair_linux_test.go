// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// undone is what takes a line of a fault back where the words tell; ok is false where they do not. Routes are put back
// as they were read, see repair.
func (n *topology) undone(line string) (back []string, ok bool) {
	at, command, _ := strings.Cut(line, " ")
	replaced := func(old, with string) ([]string, bool) {
		return []string{at + " " + strings.Replace(command, old, with, 1)}, true
	}
	has := func(prefix string) bool { return strings.HasPrefix(command, prefix) }
	switch {
	case has("ip route add local "): // to a table of its own
		return replaced(" add ", " del ")
	case has("ip route "), has("ip neigh flush"):
		return nil, true
	case has("iptables-nft-restore"):
		return []string{at + " iptables-nft -P FORWARD ACCEPT", at + " iptables-nft -F", at + " iptables-nft -X"}, true
	case has("iptables-nft -D"):
		return nil, true // the chain goes with what was restored
	case has("iptables-nft "), has("ip6tables-nft "):
		for _, pair := range [][2]string{{" -A ", " -D "}, {" -I ", " -D "}, {" -N ", " -X "}, {" DROP", " ACCEPT"}} {
			if strings.Contains(command, pair[0]) {
				return replaced(pair[0], pair[1])
			}
		}
	case has("nft add table"):
		return replaced("add", "delete")
	case has("nft "):
		return nil, true // it goes with its table
	case has("ip rule add"), has("ip link add"), has("ip addr add"):
		if has("ip link add ") {
			return []string{at + " ip link del " + strings.Fields(command)[3]}, true
		}
		return replaced(" add ", " del ")
	case has("ip neigh add proxy "):
		return replaced(" add ", " del ")
	case has("ip neigh replace"), has("ip neigh add"):
		f := strings.Fields(command) // ip neigh replace ADDRESS lladdr MAC dev DEV
		return []string{at + " ip neigh del " + f[3] + " dev " + f[7]}, true
	case has("ip link set ") && strings.HasSuffix(command, " down"):
		return replaced(" down", " up")
	case has("ip link set ") && strings.Contains(command, " mtu "):
		link, _, _ := strings.Cut(command, " mtu ")
		return []string{at + " " + link + " mtu 1500"}, true
	case has("ip link set ") && (strings.HasSuffix(command, " up") || strings.Contains(command, " address ") ||
		strings.Contains(command, "gso")):
		return nil, true
	case has("bridge fdb del "), has("bridge fdb replace "):
		f := strings.Fields(command) // bridge fdb del MAC dev DEV
		node := at[len(at)-1] - '0'
		return []string{fmt.Sprintf("%s bridge fdb replace %s dev %s dst 192.168.50.%d", at, f[3], f[5], 3-node)}, true
	case has("bridge link set") && strings.Contains(command, " state "):
		port, _, _ := strings.Cut(command, " state ")
		return []string{at + " " + port + " state 3"}, true
	case has("bridge link set") && strings.HasSuffix(command, " off"):
		return []string{at + " " + strings.ReplaceAll(command, " off", " on")}, true
	case has("ip link set ") && strings.Contains(command, " master "):
		return nil, true // the bridge is one that the fault has made
	case has("ip xfrm policy add"):
		return []string{at + " ip xfrm policy flush"}, true
	case has("ipset create"):
		return []string{at + " ipset destroy " + strings.Fields(command)[2]}, true
	case has("ipset add"):
		return nil, true
	case has("sysctl -qw "):
		return nil, true // put back as it was read
	}
	return nil, false
}

// settings are those that a fault's lines change, as they are.
func (n *topology) settings(lines []string) (back []string) {
	for _, l := range lines {
		at, command, _ := strings.Cut(l, " ")
		if rest, ok := strings.CutPrefix(command, "sysctl -qw "); ok {
			for word := range strings.FieldsSeq(rest) {
				key, _, _ := strings.Cut(word, "=")
				if n.v6 {
					key = six.Replace(key)
				}
				value := strings.TrimSpace(n.names[at].Run(n.t, "sh", "-c", "sysctl -n "+key+" 2>/dev/null || true"))
				if value != "" { // the interface is there before the fault
					back = append(back, at+" sysctl -qw "+key+"="+value)
				}
			}
		}
	}
	return back
}

// routes are the lines that put back the routes of all namespaces: what has no gateway comes first.
func (n *topology) routes() (lines []string) {
	for _, at := range []string{"client", "node1", "node2", "endpoint", "outside"} {
		for _, family := range []string{"-4", "-6"} {
			out := n.names[at].Run(n.t, "ip", family, "route", "show", "table", "main")
			all := strings.Split(strings.TrimSpace(out), "\n")
			slices.SortStableFunc(all, func(a, b string) int {
				return strings.Count(a, " via ") - strings.Count(b, " via ")
			})
			for _, r := range all {
				for _, word := range []string{" linkdown", " dead"} {
					r = strings.ReplaceAll(r, word, "")
				}
				if r = strings.TrimSpace(r); r != "" {
					lines = append(lines, at+" ip "+family+" route replace "+r)
				}
			}
		}
	}
	return lines
}

// repair takes back what a fault has done; before is what routes and settings were.
func (n *topology) repair(c *fault, routes, settings []string) {
	n.t.Helper()
	if n.close != nil && (c.listen != ":8080" || c.udp) {
		n.close()
	}
	back := c.undo
	if back == nil {
		dev := tunnelDevs[c.tunnel]
		again := false // the tunnel is made again
		for _, l := range slices.Backward(c.do) {
			if dev != "" && slices.Contains(strings.Fields(l), dev) {
				again = true
				continue
			}
			lines, ok := n.undone(l)
			if !ok {
				n.t.Fatalf("nothing says how %q is taken back", l)
			}
			back = append(back, lines...)
		}
		if again {
			back = append(back, "node1 ip link del "+dev, "node2 ip link del "+dev)
			back = append(back, tunnelLines(c.tunnel)...)
		}
	}
	if c.outside && c.undo == nil {
		// What sends connections to the endpoints stays.
		back = slices.DeleteFunc(back, func(l string) bool {
			return slices.Contains([]string{toEndpoint, toLocal, masquerade}, strings.Replace(l, " -D ", " -A ", 1))
		})
		back = append(back, c.add...)
	}
	n.run(back...)
	n.run(settings...)
	for _, at := range []string{"client", "node1", "node2", "endpoint", "outside"} {
		if slices.ContainsFunc(c.do, func(l string) bool { return strings.HasPrefix(l, at+" ip route ") }) {
			n.run(at+" ip -4 route flush table main", at+" ip -6 route flush table main")
		}
	}
	n.run(routes...)
	switch {
	case c.udp:
		n.listen(c, c.at().String())
	case c.listen != ":8080":
		n.listen(c, ":8080")
	}
}

// worksAgain tells whether connections are accepted and answered after a repair: neighbours that were found to fail
// are asked for again after a second.
func (n *topology) worksAgain(c *fault) bool {
	n.t.Helper()
	for range 5 {
		if n.connects(c, 1) {
			return true
		}
		time.Sleep(300 * time.Millisecond)
	}
	return false
}
