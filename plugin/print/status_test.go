// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Groups are one block where all of it is true of each of them: what nodes share goes by which of the others are known,
// and the Services for which there is no room are not the node itself.
func TestBlocksOfAStatus(t *testing.T) {
	group := func(service string, change func(g *report.StatusGroup)) report.StatusGroup {
		g := report.StatusGroup{Pattern: report.Pattern{
			Code: "NotProgrammed", Severity: report.Error, Nodes: []string{"w1", "w2"}, Without: 15, NotKnown: 1,
			Shared: []report.Shared{{Property: "kernel", Relation: report.SharedIs, Value: "5.10"}},
		}}
		if service != "" {
			g.Service = &report.ObjectRef{Namespace: "shop", Name: service}
		}
		if change != nil {
			change(&g)
		}
		return g
	}
	for name, c := range map[string]struct {
		groups []report.StatusGroup
		want   string // the Services of each block
	}{
		"the same of two Services": {[]report.StatusGroup{group("a", nil), group("b", nil)}, "shop/a, shop/b"},
		"of one it is not shared": {[]report.StatusGroup{
			group("a", nil), group("b", func(g *report.StatusGroup) { g.Shared = nil }),
		}, "shop/a | shop/b"},
		"others are not known": {[]report.StatusGroup{
			group("a", nil), group("b", func(g *report.StatusGroup) { g.Without, g.NotKnown = 14, 2 }),
		}, "shop/a | shop/b"},
		"of one it was not compared": {[]report.StatusGroup{
			group("a", nil), group("b", func(g *report.StatusGroup) { g.NotCompared = true }),
		}, "shop/a | shop/b"},
		"the node, and Services without room": {[]report.StatusGroup{
			group("", nil), group("", func(g *report.StatusGroup) { g.Folded = 73 }),
		}, " | up to 73 more Services of a node"},
	} {
		var got []string
		for _, b := range statusBlocksOf(&report.StatusReport{Groups: c.groups}) {
			got = append(got, strings.Join(b.services, ", "))
		}
		if text := strings.Join(got, " | "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}
