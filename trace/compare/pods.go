// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"maps"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// podPair are the network namespaces of a pod in two captures, or of two pods of the same kind on two nodes.
type podPair struct {
	name string // as it is said
	a, b *Facts // one may be nil
}

// pods compares the network namespaces of pods that were collected. One that only one side has is named.
func (c *comparison) pods() {
	a, b, f := c.a, c.b, c.focus
	pairs := captured(a.pods, b.pods)
	if f != nil {
		pairs = alike(a.pods, b.pods)
	}
	c.notCompared(PartPods)
	for _, p := range pairs {
		if why := c.alone(&p); why != "" {
			c.out.NotCompared = append(c.out.NotCompared, report.NotCompared{Part: PartPods, Why: cut(why)})
			continue
		}
		c.a, c.b, c.in = p.a, p.b, "pod "+p.name+" "
		if f != nil {
			c.focus = &focus{all: true}
		}
		c.parts()
		c.a, c.b, c.in, c.focus = a, b, "", f
	}
}

// alone says why a pod is not compared; "" where it is.
func (c *comparison) alone(p *podPair) string {
	before, after := "before", "after"
	if c.focus != nil {
		before, after = c.a.node, c.b.node
	}
	var why []string
	for _, x := range []struct {
		side string
		*Facts
	}{{before, p.a}, {after, p.b}} {
		switch {
		case x.Facts == nil:
			why = append(why, x.side+": not collected")
		case x.why != "":
			why = append(why, x.side+": "+x.why)
		}
	}
	if len(why) == 0 {
		return ""
	}
	return p.name + ": " + strings.Join(why, "; ")
}

// captured pairs pods by their names.
func captured(a, b map[string]*Facts) []podPair {
	names := maps.Clone(a)
	if names == nil {
		names = map[string]*Facts{}
	}
	maps.Copy(names, b)
	out := make([]podPair, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, podPair{name, a[name], b[name]})
	}
	return out
}

// alike pairs the pods of two nodes that have the same controller, by what of their names the controller gives; of
// several the first by name on each node.
func alike(a, b map[string]*Facts) []podPair {
	first := func(pods map[string]*Facts) map[string]string {
		out := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(pods)) {
			if kind := controllerOf(name); out[kind] == "" {
				out[kind] = name
			}
		}
		return out
	}
	left, right := first(a), first(b)
	kinds := maps.Clone(left)
	maps.Copy(kinds, right)
	out := make([]podPair, 0, len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		x, y := left[kind], right[kind]
		name := x + ", " + y
		switch {
		case x == "":
			name = y
		case y == "":
			name = x
		}
		out = append(out, podPair{name, a[x], b[y]})
	}
	return out
}

// controllerOf is the name of a pod without the last word, by which a controller tells its pods apart.
func controllerOf(pod string) string {
	if i := strings.LastIndexByte(pod, '-'); i > strings.IndexByte(pod, '/') {
		return pod[:i]
	}
	return pod
}
