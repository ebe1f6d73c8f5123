// SPDX-License-Identifier: Apache-2.0

package print

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// mode writes the table of the nodes' proxies, and what is wrong with them.
func (t *text) mode() {
	tab, verdicts, lost := t.modeTable()
	if len(tab.rows) > 0 {
		order := []string{"CONFIGURED", "PENDING", "KUBE-PROXY", "FAILED", "LAST SYNC", "HEALTH", "MODE", "NODE"}
		for _, leave := range order[:5] {
			if t.Width > 0 && tab.width() > t.Width {
				tab = tab.without(leave)
			}
		}
		tab = tab.fit(t.columns, nil, order...)
		t.byVerdict(tab, verdicts)
	}
	t.lost(lost)
	t.values()
	t.Blank()
	t.blocks(blocksOf(t.report, !t.wide), len(t.report.Nodes) > 1, verifyBlocks)
	t.Blank()
}

// modeTable is the nodes' proxies, with the nodes' verdicts, and the nodes of which nothing is known.
func (t *text) modeTable() (tab *table, verdicts []report.Verdict, lost []*report.NodeReport) {
	tab = &table{columns: []column{
		{"NODE", false},
		{"MODE", false},
		{"CONFIGURED", false},
		{"KUBE-PROXY", false},
		{"HEALTH", false},
		{"LAST SYNC", false},
		{"PENDING", true},
		{"FAILED", true},
		{"STATUS", false},
	}}
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		if n.Mode == nil {
			lost = append(lost, n)
			continue
		}
		m := n.Mode
		tab.add(
			n.Node,
			servedBy(m),
			m.Configured,
			m.KubeProxyVersion,
			m.Health,
			t.syncText(m.LastSync),
			pending(m),
			failed(m),
			t.nodeStatus(n),
		)
		verdicts = append(verdicts, n.Verdict)
	}
	return tab.dropEmpty("CONFIGURED", "KUBE-PROXY", "HEALTH", "LAST SYNC", "PENDING", "FAILED"), verdicts, lost
}

// syncText is when kube-proxy last wrote: of a snapshot the time of day is long, and its date the same for all.
func (t *text) syncText(at string) string {
	if at == "" {
		return ""
	}
	return ago(at, t.view.Now)
}

// servedBy says in which mode a node's Services are served.
func servedBy(m *report.Mode) string {
	switch {
	case m.ReplacedBy != "":
		return m.ReplacedBy
	case m.Actual == "":
		return "none"
	case m.Backend == "both":
		return m.Actual + " (nft, legacy)"
	case m.Backend != "":
		return m.Actual + " (" + m.Backend + ")"
	}
	return m.Actual
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// pending is the number of changes that wait, with the IP families that they wait in: "3 (IPv6)".
func pending(m *report.Mode) string {
	var families []string
	for i := range m.Families {
		if m.Families[i].Waits {
			families = append(families, m.Families[i].Family)
		}
	}
	return number(m.PendingChanges) + of(m.PendingChanges, families)
}

// failed is the number of failed writes, by IP family where they are of several: "17 (IPv6)", "5 (IPv4 3, IPv6 2)".
func failed(m *report.Mode) string {
	sum := 0
	var families, counts []string
	for i := range m.Families {
		if n := m.Families[i].SyncFailures; n != nil && *n > 0 {
			sum += *n
			families = append(families, m.Families[i].Family)
			counts = append(counts, m.Families[i].Family+" "+number(n))
		}
	}
	switch {
	case m.SyncFailures == nil || sum != *m.SyncFailures: // some are not counted by family
		return number(m.SyncFailures)
	case len(families) > 1:
		families = counts
	}
	return number(m.SyncFailures) + of(m.SyncFailures, families)
}

// of puts families behind a count that is not zero.
func of(count *int, families []string) string {
	if count == nil || *count == 0 || len(families) == 0 {
		return ""
	}
	return " (" + strings.Join(families, ", ") + ")"
}

// nodeStatus names what is wrong with a node.
func (t *text) nodeStatus(n *report.NodeReport) string {
	verdict := verdictText(n.Verdict)
	if n.Verdict == report.Match {
		verdict = "ok"
	}
	return t.codesText(n.Codes(), verdict)
}

// modes counts the nodes by what serves their Services.
func (t *text) modes() string {
	count := map[string]int{}
	lost := 0
	for i := range t.report.Nodes {
		if m := t.report.Nodes[i].Mode; m != nil {
			count[servedBy(m)]++
		} else {
			lost++
		}
	}
	var parts []string
	for _, mode := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, mode+" on "+plaintext.Plural(count[mode], "node"))
	}
	if lost > 0 {
		parts = append(parts, plaintext.Plural(lost, "node")+" not inspected")
	}
	return strings.Join(parts, ", ")
}
