// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// alone asks about the node, and about no path.
var alone = judge.Request{NodeAlone: true}

// replaced is an edit that replaces a text once.
func replaced(old, with string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, with, 1) }
}

// TestChangesOfANode makes one change in a captured node: it is said in one line, or none where it is no difference.
func TestChangesOfANode(t *testing.T) {
	iptables := open(t, "snapshots/v1.30-iptables", "node1")
	nft := open(t, "snapshots/nftables", "node1")
	ipvs := open(t, "snapshots/ipvs", "node1")
	for _, x := range []struct {
		name string
		was  *capture
		file string
		edit func(string) string
		want []string // that begin so
	}{
		{
			"a policy", iptables, snapshot.IPTablesNFTFile, replaced(":FORWARD ACCEPT", ":FORWARD DROP"),
			[]string{"rules changed IPv4 mangle FORWARD: policy ACCEPT → policy DROP"},
		},
		{
			"shares that are not equal", iptables, snapshot.IPTablesNFTFile,
			replaced("--probability 0.50000000000", "--probability 0.90000000000"),
			[]string{"rules added IPv4 nat KUBE-SVC-25FJTMN2OLOPNGWS:  → shares: "},
		},
		{
			"a volatile setting, and one that is not of the network", iptables, snapshot.SysctlFile,
			func(s string) string { return s + "net/netfilter/nf_conntrack_count=7\nkernel/random/uuid=x\n" }, nil,
		},
		{
			"a setting that only one side has", iptables, snapshot.SysctlFile,
			func(s string) string { return s + "net/ipv4/conf/veth1234/rp_filter=2\n" }, nil,
		},
		{
			"routing rules are not collected", iptables, snapshot.RuleFile, nil,
			[]string{"not compared: routing rules: "},
		},
		{
			"rules of IPv6 are not collected", iptables, snapshot.IP6TablesNFTFile, nil,
			[]string{"not compared: rules: "},
		},
		{
			"an element of a map", nft, snapshot.NFTFile, replaced(`[{"concat": ["10.96.`, `[{"concat": ["10.95.`),
			[]string{"sets added IPv4 nft kube-proxy ", "sets removed IPv4 nft kube-proxy "},
		},
		{
			"a client of session affinity", nft, snapshot.NFTFile,
			replaced(`"timeout": 10800`, `"elem": ["10.244.1.9"], "timeout": 10800`), nil,
		},
		{
			"the weight of a real server", ipvs, snapshot.IPVSFile, replaced("-m -w 1", "-m -w 0"),
			[]string{"virtual servers changed "},
		},
		{
			"a set", ipvs, snapshot.IPSetFile, func(s string) string {
				return s + "create extra hash:ip family inet\nadd extra 192.0.2.1\n"
			},
			[]string{"sets added ipset extra:  → 192.0.2.1"},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			now := *x.was
			if x.edit != nil {
				now = *x.was.with(t, x.file, x.edit)
			} else {
				files := map[string][]byte{}
				for name, data := range x.was.files {
					if name != x.file && name != snapshot.UnreadFile {
						files[name] = data
					}
				}
				now.files = files
			}
			d := compare.Captures(x.was.facts(t, alone), now.facts(t, alone))
			var got []string
			for _, line := range lines(&d) {
				if !strings.HasPrefix(line, "finding ") && !strings.HasPrefix(line, "configuration ") {
					got = append(got, line)
				}
			}
			if x.edit == nil { // others that depend on unread.json are not compared either
				got = slices.DeleteFunc(got, func(l string) bool { return !strings.HasPrefix(l, x.want[0]) })
			}
			if !slices.EqualFunc(got, x.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(x.want, "\n"))
			}
		})
	}
}

// TestHostileNodesAreBounded: a node that has 100,000 rules more, with long texts, makes no long report.
func TestHostileNodesAreBounded(t *testing.T) {
	was := open(t, "snapshots/v1.30-iptables", "node1")
	now := was.with(t, snapshot.IPTablesNFTFile, func(s string) string {
		var b strings.Builder
		b.WriteString(s + "*evil\n:EVIL - [0:0]\n")
		for i := range 100_000 {
			fmt.Fprintf(&b, "-A EVIL -s 192.0.2.1/32 -p tcp -m tcp --dport %d -j DROP\n", i%65535+1)
		}
		long := strings.Repeat("x", 100_000)
		fmt.Fprintf(&b, "-A EVIL -m comment --comment \"%s\" -j DROP\n", long)
		return b.String() + "COMMIT\n"
	})
	d := compare.Captures(now.facts(t, alone), was.facts(t, alone))
	empty := was.with(t, snapshot.IPTablesNFTFile, func(s string) string { return s + "*evil\n:EVIL - [0:0]\nCOMMIT\n" })
	e := compare.Captures(empty.facts(t, alone), now.facts(t, alone))
	if n := len(d.Changes); n == 0 || n > 10 {
		t.Errorf("%d changes of a chain that went as a whole", n)
	}
	if len(e.Changes) != 2000 || len(e.Left) != 1 || e.Left[0].Count != 100_001-2000 {
		t.Errorf("%d changes, and %v more", len(e.Changes), e.Left)
	}
	for _, c := range slices.Concat(d.Changes, e.Changes) {
		if len(c.Before)+len(c.After)+len(c.Place) > 4000 {
			t.Errorf("a change of %d bytes", len(c.Before)+len(c.After))
		}
	}
}
