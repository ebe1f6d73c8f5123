// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// readFrom are the names, in Facts.unread, of what a part is read from, where that is not the part alone.
var readFrom = map[string][]string{
	PartRoutes:       {"IPv4 " + PartRoutes, "IPv6 " + PartRoutes},
	PartRoutingRules: {"IPv4 " + PartRoutingRules, "IPv6 " + PartRoutingRules},
	PartSets:         {PartSets, ipsets},
	PartRules:        append([]string{PartRules}, besideRules...),
	PartLinks:        {snapshot.LinkFile, snapshot.AddrFile},
	PartTunnels:      {snapshot.LinkFile, PartTunnels},
	PartListeners:    {PartListeners, snapshot.PacketFile},
}

// ipsets stands for the sets of ipset, of which there is one file.
const ipsets = "ipsets"

func namesOf(part string) []string {
	if names := readFrom[part]; names != nil {
		return names
	}
	return []string{part}
}

// notCompared notes a part that was not read on one side, or on both with a reason.
func (c *comparison) notCompared(part string) {
	for _, name := range namesOf(part) {
		side := func(f *Facts) reading {
			why, unread := f.unread[name]
			return reading{c.side(f), unread, why}
		}
		if why := whyNot(side(c.a), side(c.b)); why != "" {
			c.note(name, why)
		}
	}
}

// reading is whether a side has not read something, and why; "": it was not collected.
type reading struct {
	side   string
	unread bool
	why    string
}

// whyNot says why something is not compared that one side has not read, or both for a reason; "" where neither has
// collected it, and where both have read it.
func whyNot(a, b reading) string {
	var out []string
	for _, x := range [][2]reading{{a, b}, {b, a}} {
		switch {
		case x[0].unread && x[0].why != "":
			out = append(out, x[0].side+": "+cut(x[0].why))
		case x[0].unread && !x[1].unread:
			out = append(out, x[0].side+": not collected")
		}
	}
	return strings.Join(out, "; ")
}

// note notes what is not compared, once.
func (c *comparison) note(part, why string) {
	if n := (report.NotCompared{Part: c.in + part, Why: cut(why)}); !slices.Contains(c.out.NotCompared, n) {
		c.out.NotCompared = append(c.out.NotCompared, n)
	}
}

// differently tells whether what stands under a name in Facts.unread was not read in the same manner on both sides.
// What neither side has collected is the same on both.
func (c *comparison) differently(name string) bool {
	a, noA := c.a.unread[name]
	b, noB := c.b.unread[name]
	return noA != noB || a != "" || b != ""
}

// apart tells whether the values of a part are not compared, since what they were read from was not read on both sides.
// Settings, versions and the configuration come each by itself, or from more than one file: what both sides have is
// compared.
func (c *comparison) apart(part string) bool {
	return part != PartSettings && part != PartConfiguration && part != PartVersions &&
		slices.ContainsFunc(namesOf(part), c.differently)
}

// countsAlone tells of a value of the configuration whether it says something that only one side has it: the other then
// has no such thing.
func (c *comparison) countsAlone(name string) bool {
	return name == servedBy || name == leftoversOf ||
		strings.HasPrefix(name, recordsOf) && !c.differently(snapshot.JournalFile)
}

// skip tells whether a place cannot be compared, since one side has not read it. One of the lists may be nil.
func (c *comparison) skip(p place, a, b *list) bool {
	switch {
	case p.part == PartRules || p.part == PartSets && p.table != tableIPSet:
		return c.unreadTable(p, c.a, a, b) || c.unreadTable(p, c.b, b, a)
	case p.part == PartSets:
		return c.differently(ipsets)
	case p.part == PartRoutes || p.part == PartRoutingRules:
		family, _, _ := strings.Cut(p.name, " ")
		return c.differently(family + " " + p.part)
	}
	return slices.ContainsFunc(namesOf(p.part), c.differently)
}

// unreadTable tells whether a chain or set was not read on a side, or may stand where that was not read.
func (c *comparison) unreadTable(p place, f *Facts, own, other *list) bool {
	switch {
	case f.holes[p.table] != "":
		c.note(p.part, c.side(f)+": "+p.table+": "+f.holes[p.table])
	case own != nil:
		return own.unread != ""
	case !f.tables[other.kind]:
		c.note(p.part, c.side(f)+": "+kindText(other.kind)+" not collected")
	case f.holesOf[other.kind] != "" && !f.named[p.table]:
		c.note(p.part, c.side(f)+": "+f.holesOf[other.kind])
	case f.named[strings.Replace(p.table, nftTable, " ", 1)]:
		// One of iptables' tables, which this side has read by iptables-save, and the other by nft alone.
	default:
		return false
	}
	return true
}

// nftTable stands in the name of a table that was read by nft.
const nftTable = " nft "

// kindText names the tables of a kind.
func kindText(kind tableKind) string {
	what := string(kind.backend)
	if kind.backend == netfilter.BackendNFT || kind.backend == netfilter.BackendLegacy {
		what = "iptables-" + what
	}
	if kind.family != 0 {
		what = kind.family.String() + " " + what
	}
	return what
}

// side names one of the two.
func (c *comparison) side(f *Facts) string {
	switch {
	case c.focus != nil:
		return f.node
	case f == c.b:
		return "after"
	}
	return "before"
}
