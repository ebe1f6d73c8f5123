// SPDX-License-Identifier: Apache-2.0

package random

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// readHandles notes the number of each rule in its chain, which is how the walk names it, from what nft -j lists.
func (w *kernelNode) readHandles(listing string) error {
	var all struct {
		Objects []struct {
			Rule *struct {
				Family string `json:"family"`
				Table  string `json:"table"`
				Chain  string `json:"chain"`
				Handle uint64 `json:"handle"`
			} `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(listing), &all); err != nil {
		return err
	}
	count := map[at]int{}
	for _, o := range all.Objects {
		if r := o.Rule; r != nil {
			c := at{family: r.Family, table: r.Table, chain: r.Chain}
			count[c]++
			c.num = count[c]
			w.where[place{r.Family, r.Table, r.Chain, r.Handle}] = c
		}
	}
	return nil
}

// readTexts notes the rules that iptables-legacy-save lists, which the kernel's log names by their numbers.
func (w *kernelNode) readTexts(family, save string) {
	table, count := "", map[at]int{}
	for line := range strings.Lines(save) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = words[0][1:]
		case strings.HasPrefix(line, "-A "):
			c := at{family: family, table: table, chain: words[1], legacy: true}
			count[c]++
			c.num = count[c]
			w.texts[c] = strings.TrimSpace(line)
		}
	}
}

// words are those of a rule; what is quoted is one.
var words = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\S+`)

// verdictOf says what a rule of iptables decides about a packet that it matches, in the words of met; "" for nothing.
func verdictOf(rule string) string {
	list := words.FindAllString(rule, -1)
	i := slices.IndexFunc(list, func(s string) bool { return s == "-j" || s == "-g" })
	switch {
	case i < 0 || i+1 == len(list):
		return ""
	case list[i] == "-g":
		return "goto " + list[i+1]
	}
	switch to := list[i+1]; to {
	case "ACCEPT", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP":
		return "accept"
	case "DROP", "REJECT":
		return "drop"
	case "RETURN":
		return "return"
	case "MARK", "CONNMARK", "CT", "NOTRACK", "TOS", "TTL", "HL", "DSCP", "CLASSIFY", "NFLOG", "NFQUEUE", "LOG":
		return ""
	default:
		return "jump " + to
	}
}
