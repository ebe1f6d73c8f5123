// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// hookEntry is a function at a hook, as nft list hooks prints it.
type hookEntry struct {
	priority int
	chain    string // "ip filter INPUT" of one of nf_tables; "" for others
	module   string // of others: "iptable_filter", "ip_tables", "ip_vs"
}

// hookOrder is what nft list hooks prints: the functions of each hook of a family, in the order in which they run.
type hookOrder map[hookOf][]hookEntry

type hookOf struct{ family, hook string }

// errHooks says what is expected.
var errHooks = errors.New("the output of nft list hooks was expected")

// parseHooks reads the output of nft list hooks.
func parseHooks(data []byte) (hookOrder, error) {
	out := hookOrder{}
	var at hookOf
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0, words[0] == "}":
		case words[0] == "family" && len(words) >= 2:
			at = hookOf{family: words[1]}
		case words[0] == "hook" && len(words) >= 2:
			if at.hook = words[1]; len(words) > 3 { // "ingress device eth0": the interfaces are others of each namespace
				at.hook = strings.Join(words[1:len(words)-1], " ")
			}
		default:
			e := hookEntry{}
			n, err := strconv.ParseInt(words[0], 10, 32)
			if err != nil || len(words) < 2 || at.hook == "" {
				return nil, errHooks
			}
			e.priority = int(n)
			if last := words[len(words)-1]; strings.HasPrefix(last, "[") {
				e.module = strings.Trim(last, "[]")
			}
			if words[1] == "chain" && len(words) > 4 {
				e.chain = strings.Join(words[2:5], " ")
			}
			out[at] = append(out[at], e)
		}
	}
	if len(out) == 0 {
		return nil, errHooks
	}
	return out, nil
}

// hookOrderNames are the names of the hooks in that output, with their families.
var hookOrderNames = map[netfilter.Hook]string{
	netfilter.Prerouting: "prerouting", netfilter.Input: "input", netfilter.Forward: "forward",
	netfilter.Output: "output", netfilter.Postrouting: "postrouting",
	netfilter.BridgePrerouting: "prerouting", netfilter.BridgeInput: "input", netfilter.BridgeForward: "forward",
	netfilter.BridgeOutput: "output", netfilter.BridgePostrouting: "postrouting",
}

// rank returns the place of a chain among the functions of its hook, for packets of a family.
func (o hookOrder) rank(f netfilter.Family, c *netfilter.Chain) (at int, known bool) {
	family := map[netfilter.Family]string{netfilter.IPv4: "ip", netfilter.IPv6: "ip6"}[f]
	table := c.Table.Name
	names := []string{family + " ", "inet "}
	switch {
	case c.Table.Family == 0:
		family, names = "bridge", []string{""} // its name begins with its family
	case f == netfilter.ARP:
		family, names = "arp", []string{""} // likewise
	}
	legacy := map[string]string{"ip": "iptable_", "ip6": "ip6table_"}[family]
	found := 0
	for i, e := range o[hookOf{family, hookOrderNames[c.Base.Hook]}] {
		is := false
		switch c.Table.Backend {
		case netfilter.BackendNFT, netfilter.BackendNative:
			for _, n := range names {
				is = is || e.chain == n+table+" "+c.Name
			}
		case netfilter.BackendLegacy:
			is = e.priority == c.Base.Priority &&
				(e.module == legacy+table || e.module == "ip_tables" || e.module == "ip6_tables")
		case netfilter.BackendIPVS, netfilter.BackendProgram:
		}
		if is {
			at = i
			found++
		}
	}
	return at, found == 1
}
