// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// placeName names a place whose rules the packet may meet or not: a chain, where no rule is known.
func placeName(at netfilter.Ref) string {
	if at.Chain != nil && at.Rule == nil {
		return strings.TrimSuffix(at.String(), " policy")
	}
	return at.String()
}

// evidenceOf quotes what a path depends on: a rule, or what is not known with the rules of its chain.
func evidenceOf(u *netfilter.Uncertain) []report.Evidence {
	if u.Where.Rule != nil {
		return []report.Evidence{cite(u.Where)}
	}
	out := say(u.What)
	if c := u.Where.Chain; c != nil && c.Base != nil && c.Base.Hook.OfLink() {
		out = append(out, quote(c)...)
	}
	return out
}

// objectAt returns the commands that show what stands at a place, and that remove it where one does so without a
// parameter that nobody knows; none for no place, and where no tool shows it.
func (n *node) objectAt(at netfilter.Ref, family corev1.IPFamily) []report.Command {
	if line := listChain(at, family); line != "" {
		return []report.Command{{Line: line, Node: n.Name}}
	}
	if at.Chain == nil || at.Chain.Table.Backend != netfilter.BackendProgram {
		return nil
	}
	of, known := programObjects[at.Chain.Table.Name]
	if !known {
		return nil
	}
	var rule *netfilter.Rule
	if rule = at.Rule; rule == nil && len(at.Chain.Rules) > 0 {
		rule = at.Chain.Rules[0]
	}
	place := strings.Fields(at.Chain.Name)
	out := []report.Command{{Line: report.ShellLine(of.show(place)...), Node: n.Name, When: "to see it"}}
	if of.remove != nil && rule != nil {
		if words := of.remove(place, strings.Fields(rule.Text)); words != nil {
			out = append(out, report.Command{
				Line: report.ShellLine(words...), Node: n.Name, When: "where it is not meant to be there",
			})
		}
	}
	return out
}

// programObjects are the commands that show and remove what is not a rule, by the name of its table; place is the words
// of its chain's name, text those of the rule: see the parser of programs.txt in trace/nodestate.
var programObjects = map[string]struct {
	show   func(place []string) []string
	remove func(place, text []string) []string // nil where there is no command
}{
	"tc": {
		func(place []string) []string {
			return append([]string{"tc", "-s", "filter", "show", "dev"}, filterPlace(place)...)
		},
		func(place, text []string) []string {
			pref := wordAfter(text, "pref")
			if pref == "" || len(place) > 2 || slices.Contains(text, "bpf") { // of a queue, or of one of its classes; an agent's
				return nil
			}
			return []string{"tc", "filter", "del", "dev", place[0], place[len(place)-1], "pref", pref}
		},
	},
	"qdisc": {
		func(place []string) []string { return []string{"tc", "-s", "qdisc", "show", "dev", place[0]} },
		func(place, _ []string) []string { return []string{"tc", "qdisc", "del", "dev", place[0], "root"} },
	},
	"tcx": {
		func(place []string) []string { return []string{"bpftool", "net", "show", "dev", place[0]} }, nil,
	},
	"xdp": {
		func(place []string) []string { return []string{"ip", "-d", "link", "show", "dev", place[0]} }, nil,
	},
	"macvlan": {
		func(place []string) []string { return []string{"ip", "-d", "link", "show", "dev", place[0]} },
		func(place, _ []string) []string { return []string{"ip", "link", "del", "dev", place[0]} },
	},
	"cgroup": {
		func([]string) []string { return []string{"bpftool", "cgroup", "tree"} }, nil,
	},
	"bpf": {
		func([]string) []string { return []string{"bpftool", "link", "show"} }, nil,
	},
	"arptables": {
		func(place []string) []string {
			return []string{"arptables-legacy", "-t", place[0], "-nvL", place[len(place)-1]}
		}, nil,
	},
	"ebtables": {
		func(place []string) []string {
			return []string{"ebtables-legacy", "-t", place[0], "-L", place[len(place)-1]}
		}, nil,
	},
	"xfrm": {
		func([]string) []string { return []string{"sh", "-c", "ip xfrm policy; ip xfrm policy getdefault"} }, nil,
	},
}

// filterPlace is where filters of tc are: an interface, and a direction, or of a queue "parent" and its handle.
func filterPlace(place []string) []string {
	if len(place) > 2 {
		return append(place[:1:1], place[2:]...)
	}
	return place
}

// wordAfter returns the word behind another one; "" for none.
func wordAfter(words []string, key string) string {
	if i := slices.Index(words, key); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// familyAt is the IP family of the table of a place; IPv4 where it has both, or there is none.
func familyAt(at netfilter.Ref) corev1.IPFamily {
	if at.Chain != nil && at.Chain.Table.Family == netfilter.IPv6 {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// listChain returns the command that prints a chain; "" for no place, and where no tool shows it.
func listChain(at netfilter.Ref, family corev1.IPFamily) string {
	if at.Chain == nil {
		return ""
	}
	t := at.Chain.Table
	tool := "iptables"
	if family == corev1.IPv6Protocol {
		tool = "ip6tables"
	}
	switch t.Backend {
	case netfilter.BackendNFT, netfilter.BackendLegacy:
		return report.ShellLine(tool+"-"+string(t.Backend), "-t", t.Name, "-S", at.Chain.Name)
	case netfilter.BackendNative:
		in, name := map[netfilter.Family]string{netfilter.IPv4: "ip", netfilter.IPv6: "ip6"}[t.Family], t.Name
		if in == "" {
			in = "inet"
		}
		if t.Family&netfilter.Inet == 0 { // its name begins with the family
			in, name, _ = strings.Cut(t.Name, " ")
		}
		return report.ShellLine("nft", "-a", "list", "chain", in, name, at.Chain.Name)
	case netfilter.BackendIPVS, netfilter.BackendProgram:
	}
	return ""
}

// listRules is listChain for a rule of a report, on the way to an endpoint.
func listRules(at report.RuleRef, endpoint string) string {
	switch tool := "iptables"; at.Backend {
	case report.BackendNFT, report.BackendLegacy:
		if strings.HasPrefix(endpoint, "[") {
			tool = "ip6tables"
		}
		return report.ShellLine(tool+"-"+at.Backend, "-t", at.Table, "-S", at.Chain)
	case report.BackendNative:
		if family, table, ok := strings.Cut(at.Table, " "); ok {
			return report.ShellLine("nft", "-a", "list", "chain", family, table, at.Chain)
		}
	}
	return ""
}
