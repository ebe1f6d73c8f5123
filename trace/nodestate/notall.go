// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// NotAll says which of iptables' tables were not read of a family, though they are on the node, or may be.
type NotAll struct {
	Tables []string // "filter", …; those of another backend are not named
	// Why is what tells so, Command what prints them.
	Why, Command string
}

// String says it in one sentence.
func (x *NotAll) String() string {
	if len(x.Tables) == 0 {
		return x.Why + "; to read all: " + x.Command
	}
	what, were := "table", "was"
	if len(x.Tables) > 1 {
		what, were = "tables", "were"
	}
	return fmt.Sprintf(
		"the %s %s %s not read: %s; to read all: %s",
		what,
		strings.Join(x.Tables, ", "),
		were,
		x.Why,
		x.Command,
	)
}

// Has tells whether a table is among those that were not read.
func (x *NotAll) Has(table string) bool { return x != nil && slices.Contains(x.Tables, table) }

// iptablesTables are all that iptables knows, in the order of a packet's walk.
var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// fail notes why a file cannot be read.
func (l *loader) fail(file string, err error) {
	l.failed[file] = strings.TrimPrefix(err.Error(), file+": ")
}

// FailedRules tells whether there is a file of rules that cannot be read.
func (s *State) FailedRules() bool {
	for file := range s.failed {
		if IsRules(file) {
			return true
		}
	}
	return false
}

// notAll finds out which tables were not read. A save has all tables of its backend, and those that were never used do
// not exist; but people show the one table that they think matters. kube-proxy always has rules in nat and in filter,
// so that a save with one of them only is a part; and then the others may be missing as well.
func (l *loader) notAll(f netfilter.Family, s *saved) *NotAll {
	if l.ListsUnread() || len(s.have) == 0 {
		return nil
	}
	command := saveCommand(f)
	for b, d := range s.dumps {
		legacy := strings.Replace(command, "tables", "tables-legacy", 1)
		if d.Legacy && b == netfilter.BackendNFT && !s.have[netfilter.BackendLegacy] {
			return &NotAll{
				Why:     "iptables-nft says that iptables-legacy has tables, too, and they were not read",
				Command: legacy,
			}
		}
	}
	for _, b := range []netfilter.Backend{netfilter.BackendNFT, netfilter.BackendLegacy} {
		d := s.dumps[b]
		if d == nil || len(s.dumps) > 1 && !kubeProxys(d) {
			continue // the other backend has kube-proxy's rules, and this one what it has
		}
		if x := missingOf(d, l.usesNFTables()); x != nil {
			x.Command = command
			return x
		}
	}
	return nil
}

// serversAlone notes that rules of iptables stand around the virtual servers of IPVS, and were not collected.
func (l *loader) serversAlone() {
	if len(l.Virtual) == 0 || len(l.Rules.Tables) > 0 || l.ListsUnread() || l.FailedRules() {
		return
	}
	for _, f := range Families {
		l.NotAll[f] = &NotAll{
			Tables: iptablesTables, Why: "in ipvs mode kube-proxy has rules there, too", Command: saveCommand(f),
		}
	}
}

func saveCommand(f netfilter.Family) string {
	if f == netfilter.IPv6 {
		return "ip6tables-save -c"
	}
	return "iptables-save -c"
}

// oneTable recognises what nft list table prints: kube-proxy has a table in each family (and kubelet, Docker or a CNI
// have others), so that one alone was picked.
func (l *loader) oneTable(native []*netfilter.Table) {
	if l.ListsUnread() || len(native) != 1 || native[0].Name != kubeproxy.NFTTable ||
		len(l.Have[netfilter.IPv4])+len(l.Have[netfilter.IPv6]) > 0 {
		return
	}
	for _, f := range Families {
		if l.NotAll[f] == nil {
			l.NotAll[f] = &NotAll{
				Why: snapshot.NFTFile + " has the table " + kubeproxy.NFTTable + " of one family alone, as nft list table " +
					"prints it",
				Command: "nft -j list ruleset",
			}
		}
	}
}

// usesNFTables tells whether kube-proxy has its rules in a table of nftables, and needs none of iptables.
func (l *loader) usesNFTables() bool {
	return slices.ContainsFunc(l.Rules.Tables, func(t *netfilter.Table) bool {
		return t.Backend == netfilter.BackendNative && t.Name == kubeproxy.NFTTable
	})
}

// missingOf says which tables a dump does not have, if there is a reason to think that there are more than it has.
// apart tells that kube-proxy has its rules elsewhere.
func missingOf(d *iptables.Dump, apart bool) *NotAll {
	has := map[string]bool{}
	for _, t := range d.Tables {
		has[t.Name] = true
	}
	var why string
	switch {
	case d.Listed:
		why = "iptables -S prints one table"
	case d.Excerpt != "":
		why = "what was collected is a part (" + d.Excerpt + ")"
	case canary(d) && !all(has, kubeproxy.CanaryTables):
		why = "kube-proxy or kubelet has a canary chain in each of " + strings.Join(kubeproxy.CanaryTables, ", ")
	case (!has["nat"] || !has["filter"]) && (!apart || kubeProxys(d)):
		why = "kube-proxy has rules in nat and in filter, so that what was collected is a part"
	default:
		return nil
	}
	x := &NotAll{Why: why}
	for _, name := range iptablesTables {
		if !has[name] {
			x.Tables = append(x.Tables, name)
		}
	}
	if len(x.Tables) == 0 {
		return nil
	}
	return x
}

func all(has map[string]bool, names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !has[n] })
}

// kubeProxys tells whether a dump has chains of kube-proxy's.
func kubeProxys(d *iptables.Dump) bool {
	return hasChain(d, func(name string) bool { return name == kubeproxy.IPTablesNames.Services })
}

func canary(d *iptables.Dump) bool {
	return hasChain(d, func(name string) bool { return slices.Contains(kubeproxy.Canaries, name) })
}

func hasChain(d *iptables.Dump, is func(name string) bool) bool {
	return slices.ContainsFunc(d.Tables, func(t *netfilter.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c *netfilter.Chain) bool { return is(c.Name) })
	})
}
