// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The recorded node's entry of another node, and what may be in its place.
const (
	entryOfNode  = `{"dst":"10.79.0.12","dev":"eth0","lladdr":"3e:1a:de:38:e4:0b","state":["STALE"]}`
	entryFailed  = `{"dst":"10.79.0.12","dev":"eth0","state":["FAILED"]}`
	entryOfOther = `{"dst":"10.79.0.12","dev":"eth0","lladdr":"` + wrongMAC + `","state":["STALE"]}`
)

// ofARP is what a rule compares a field of ARP with.
func ofARP(name, value string) string {
	return fmt.Sprintf(`{"match":{"op":"==","left":{"payload":{"protocol":"arp","field":%q}},"right":%q}}`, name, value)
}

// droppedARP is a node that has a rule which drops what matches, and entry in place of [entryOfNode]; "" leaves it.
func droppedARP(family, hook, match, entry string) placed {
	rules := fmt.Sprintf(`,{"table":{"family":%[1]q,"name":"f"}}
		,{"chain":{"family":%[1]q,"table":"f","name":"c","type":"filter","hook":%[2]q,"prio":0,"policy":"accept"}}
		,{"rule":{"family":%[1]q,"table":"f","chain":"c","expr":[%[3]s,{"drop":null}]}}
		]}`, family, hook, match)
	p := placed{fault: "a-failed-neighbour-entry-of-an-address-that-nobody-uses", edit: map[string]func(string) string{
		"nft-ruleset.json": func(text string) string { return strings.TrimSuffix(strings.TrimSpace(text), "]}") + rules },
	}}
	if entry != "" {
		p.edit["ip-neigh.json"] = instead(entryOfNode, entry)
	}
	return p
}

// A rule that drops ARP keeps the kernel from sending where it has no entry; where it has one the path is Unknown.
// Rules for others change nothing.
func TestRulesThatDropARP(t *testing.T) {
	const (
		fixed = `{"dst":"10.79.0.12","dev":"eth0","lladdr":"3e:1a:de:38:e4:0b","state":["PERMANENT"]}`
		other = `{"dst":"10.79.0.99","dev":"eth0","lladdr":"3e:1a:de:38:e4:0b","state":["STALE"]}`
	)
	reply, fromNode := ofARP("operation", "reply"), ofARP("saddr ip", "10.79.0.12")
	for _, c := range []struct {
		name, family, hook, match string
		entry                     string // in place of the node's
		want                      report.Verdict
		code                      string
	}{
		{"replies, and an entry", "arp", "input", reply, "", report.Unknown, NeighbourLapses},
		{"replies, and none", "arp", "input", reply, other, report.Mismatch, NeighbourBlocked},
		{"replies, and nobody has answered", "arp", "input", reply, entryFailed, report.Mismatch, NeighbourBlocked},
		{"of a node, and none", "arp", "input", fromNode, other, report.Mismatch, NeighbourBlocked},
		{"of a node, and an entry that is not asked for", "arp", "input", fromNode, fixed, report.Unknown, ARPNotAnswered},
		{"of another", "arp", "input", ofARP("saddr ip", "10.79.0.98"), other, report.Match, ""},
		{"replies of the node itself", "arp", "output", reply, "", report.Unknown, ARPNotAnswered},
		{"requests", "arp", "output", ofARP("operation", "request"), entryFailed, report.Mismatch, NeighbourBlocked},
		{"requests between pods", "bridge", "forward", ofARP("operation", "request"), "", report.Unknown, ARPNotAnswered},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := droppedARP(c.family, c.hook, c.match, c.entry)
			path := &p.report(t).Paths[0]
			text := textOf(t, path.Findings)
			named := c.code == "" || strings.Contains(text, c.code)
			if path.Verdict != c.want || !named || c.code != "" && !strings.Contains(text, " f c rule 1") {
				t.Errorf("%s: %s", path.Verdict, text)
			}
		})
	}
}
