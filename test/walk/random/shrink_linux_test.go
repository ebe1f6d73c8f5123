// SPDX-License-Identifier: Apache-2.0

package random

import (
	"slices"
	"strings"
)

// clone copies a rule set, so that rules can be taken out of it.
func (rs *ruleSet) clone() *ruleSet {
	out := &ruleSet{sets: rs.sets, odd: rs.odd}
	for _, t := range rs.tables {
		c := *t
		c.decls, c.chains = slices.Clone(t.decls), nil
		for _, ch := range t.chains {
			copied := *ch
			copied.rules = slices.Clone(ch.rules)
			c.chains = append(c.chains, &copied)
		}
		out.tables = append(out.tables, &c)
	}
	return out
}

// smaller yields the rule set without one of its parts, the large ones first.
func (rs *ruleSet) smaller(yield func(*ruleSet) bool) {
	if len(rs.sets) > 0 {
		c := rs.clone()
		if c.sets = nil; !yield(c) {
			return
		}
	}
	for i := range rs.tables {
		c := rs.clone()
		c.tables = slices.Delete(c.tables, i, i+1)
		if !yield(c) {
			return
		}
	}
	for i, t := range rs.tables {
		for k, ch := range t.chains {
			if len(ch.rules) > 1 {
				c := rs.clone()
				c.tables[i].chains[k].rules = nil
				if !yield(c) {
					return
				}
			}
			c := rs.clone()
			c.tables[i].chains = slices.Delete(c.tables[i].chains, k, k+1)
			if !yield(c) {
				return
			}
			if ch.policy == "DROP" {
				c := rs.clone()
				c.tables[i].chains[k].policy = "ACCEPT"
				if !yield(c) {
					return
				}
			}
			if strings.Contains(ch.base, "policy drop") {
				c := rs.clone()
				c.tables[i].chains[k].base = strings.Replace(ch.base, "policy drop", "policy accept", 1)
				if !yield(c) {
					return
				}
			}
		}
	}
	for i, t := range rs.tables {
		for k, ch := range t.chains {
			for l := range ch.rules {
				c := rs.clone()
				c.tables[i].chains[k].rules = slices.Delete(c.tables[i].chains[k].rules, l, l+1)
				if !yield(c) {
					return
				}
			}
		}
		for k := range t.decls {
			c := rs.clone()
			c.tables[i].decls = slices.Delete(c.tables[i].decls, k, k+1)
			if !yield(c) {
				return
			}
		}
	}
}

// maxShrink bounds how many rule sets are loaded to make one smaller.
const maxShrink = 600

// shrink takes parts out of the rule set as long as the difference stays: any difference of the same packet.
func (w *kernelNode) shrink(d *difference) *difference {
	if d.times > 1 {
		return d // what chance decides does not show in a few packets
	}
	port := uint16(firstPort)
	for tries := 0; tries < maxShrink; {
		found := false
		for rs := range d.rules.smaller {
			tries++
			if tries > maxShrink {
				break
			}
			if w.load(rs) != nil {
				continue // something asks for what was taken out
			}
			if x := w.again(rs, d.packet, port); x != nil {
				d, found = x, true
				break
			}
		}
		if !found {
			break
		}
	}
	return d
}

// again sends a packet a few times, for what chance decides, and returns a difference.
func (w *kernelNode) again(rs *ruleSet, p packet, port uint16) *difference {
	for range 12 {
		port++
		p = p.from(port)
		a, err := w.send(p)
		if err != nil {
			return nil
		}
		if r, j := w.compare(p, &a); j.verdict == differs {
			return &difference{rs, p, a, j, r, 1}
		}
	}
	return nil
}
