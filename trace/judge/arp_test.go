// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Where the node answers no ARP requests of those who send to it, the path is Unknown, and the setting is named; other
// settings, and those of other interfaces, change nothing.
func TestARPNotAnswered(t *testing.T) {
	set := func(settings ...string) func(string) string {
		return func(text string) string {
			keep := []string{}
			for line := range strings.Lines(text) {
				if !strings.Contains(line, "/arp_") {
					keep = append(keep, line)
				}
			}
			for _, of := range []string{"all", "cni0", "eth0", "lo"} {
				for _, name := range []string{"arp_ignore", "arp_filter"} {
					keep = append(keep, "net/ipv4/conf/"+of+"/"+name+"=0\n")
				}
			}
			for _, s := range settings {
				keep = append(keep, "net/ipv4/conf/"+s+"\n") // the last one counts
			}
			return strings.Join(keep, "")
		}
	}
	for _, c := range []struct {
		name  string
		edit  func(string) string
		named string // "": nothing is said
	}{
		{"as it should be", set(), ""},
		{"the bridge says nothing", set("cni0/arp_ignore=8"), "net/ipv4/conf/cni0/arp_ignore=8"},
		{"nobody says anything", set("all/arp_ignore=8"), "net/ipv4/conf/all/arp_ignore=8"},
		{"the uplink says nothing", set("eth0/arp_ignore=8"), "net/ipv4/conf/eth0/arp_ignore=8"},
		{"only the addresses of the interface, as strictARP has it", set("all/arp_ignore=1"), ""},
		{"only those of the asker's subnet", set("all/arp_ignore=2"), ""},
		{"only if the route is by the interface", set("all/arp_filter=1"), ""},
		{"an interface that is not on the path", set("lo/arp_ignore=8"), ""},
		{"the settings were not read", func(text string) string {
			return strings.ReplaceAll(strings.ReplaceAll(text, "/arp_ignore", "/arp_x"), "/arp_filter", "/arp_x")
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := placed{fault: "a-failed-neighbour-entry-of-an-address-that-nobody-uses", edit: map[string]func(string) string{
				"sysctl.txt": c.edit,
			}}
			path := &p.report(t).Paths[0]
			text := textOf(t, path.Findings)
			if (path.Verdict == report.Unknown) != (c.named != "") || !strings.Contains(text, c.named) ||
				(c.named == "") != (path.Verdict == report.Match) || strings.Contains(text, ARPNotAnswered) != (c.named != "") {
				t.Errorf("%s: %s", path.Verdict, text)
			}
		})
	}
}
