// SPDX-License-Identifier: Apache-2.0

// Package picture draws what becomes of the packets to a frontend: as SVG, and as a flowchart of Mermaid. It takes
// texts and states, and decides nothing of either.
package picture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Drawing is what can be drawn in each of the formats.
type Drawing interface {
	// Wide is it from left to right, and Tall from top to bottom, for narrow screens. Elements are named after id.
	Wide(id string) *SVG
	Tall(id string) *SVG

	// cluster is it as vertices and edges, whose identifiers begin with prefix.
	cluster(prefix string) cluster
}

// Picture is what becomes of the packets to one frontend on one node: lanes on the left, one for each path that packets
// take through the hooks, and on the right the ends that all of them come to. The formats differ in how they draw it
// alone.
type Picture struct {
	Service  string // namespace/name; empty where the whole report is of one Service
	Node     string
	Frontend string
	Failure  string // why there is nothing to draw: the node could not be inspected
	Verdict  string
	Lanes    []Lane
	Ends     []End // the last may count those that are not drawn
	// Beyond: what is wrong is behind the node, and drawn elsewhere.
	Beyond bool
}

// Lane is the path of the packets from origins for which it is the same.
type Lane struct {
	From   []string
	Stages []Stage
}

// Stage is a hook, with the chains in which rules did something with the packet, in its order.
type Stage struct {
	Hook   string
	Chains []Chain
	More   int // chains that are not drawn
}

// Chain is one chain of a stage.
type Chain struct {
	Table string // "nat", "ip kube-proxy"
	Name  string
	Rules []int // numbers; empty for a policy alone
	State State
}

// End is one end that packets come to: an endpoint, or how connections end without one.
type End struct {
	Lines  []string // the address first, then the pod, what was observed
	Status string   // in a word; empty for none
	State  State
	Share  string // what is written at the arrow to it
	Missed bool   // nothing arrives where something should
	Counts bool   // it only counts ends that are not drawn
}

// State is how a chain or an end is drawn: from OK, the best, to Wrong, the worst.
type State int

// The states.
const (
	OK State = iota
	ByDesign
	Unknown
	Suspect
	Wrong
)

// states has what is drawn for each state.
var states = [...]struct{ class, symbol, mark string }{
	OK:       {"right", "✓", ""},
	ByDesign: {"intended", "–", ""},
	Unknown:  {"unsure", "?", "UNKNOWN"},
	Suspect:  {"off", "!", "SUSPECT"},
	Wrong:    {"broken", "✗", "WRONG"},
}

// plainClass is the class of what is neither right nor wrong.
const plainClass = "plain"

// Class names a state in style sheets and class definitions.
func (s State) Class() string { return states[s].class }

// ChainClass is the class of what packets pass: that a chain is OK says no more than that nothing is said against it.
func (s State) ChainClass() string {
	if s == OK {
		return plainClass
	}
	return s.Class()
}

// Symbol stands beside colours, for those who do not see them.
func (s State) Symbol() string { return states[s].symbol }

// mark says in a word what is wrong with a chain.
func (s State) mark() string { return states[s].mark }

// title names a picture.
func (p *Picture) title() string {
	s := p.Node
	if p.Frontend != "" {
		s += ": " + p.Frontend
	}
	if p.Service != "" {
		s += " (" + p.Service + ")"
	}
	return s
}

// state is the worst state of a stage's chains.
func (s *Stage) state() State {
	worst := OK
	for i := range s.Chains {
		worst = max(worst, s.Chains[i].State)
	}
	return worst
}

// text is a chain with its table as it is labelled.
func (c *Chain) text() string { return strings.TrimSpace(c.Table+" "+c.Name) + c.which() }

// which says which of a chain's rules did something.
func (c *Chain) which() string {
	if len(c.Rules) == 0 {
		return " policy"
	}
	return " #" + numbers(c.Rules)
}

// numbers writes rule numbers, three and more in a row as a range, and only the first of many.
func numbers(n []int) string {
	const limit = 4
	var parts []string
	for i := 0; i < len(n); {
		if len(parts) == limit {
			return strings.Join(append(parts, "…"), ",")
		}
		to := i
		for to+1 < len(n) && n[to+1] == n[to]+1 {
			to++
		}
		if to-i < 2 {
			to = i
			parts = append(parts, strconv.Itoa(n[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", n[i], n[to]))
		}
		i = to + 1
	}
	return strings.Join(parts, ",")
}

// labelled are all lines of an end; that it is as it should be is not said in words.
func (e *End) labelled() []string {
	if e.Status == "" || e.State == OK {
		return e.Lines
	}
	return append(slices.Clip(e.Lines), e.Status)
}

// endClass is that of an end. One that counts others has none of its own.
func (p *Picture) endClass(e *End) string {
	if e.Counts {
		return plainClass
	}
	return p.StateClass(e.State)
}

// StateClass is the class of an end of a state. That connections do not come to it is the consequence of a rule: only
// the rule is drawn as wrong, where it is drawn.
func (p *Picture) StateClass(s State) string {
	if s == Wrong && (p.Beyond || p.causeDrawn()) {
		return Suspect.Class()
	}
	return s.Class()
}

// causeDrawn tells whether a chain is drawn as wrong.
func (p *Picture) causeDrawn() bool {
	return slices.ContainsFunc(p.Lanes, func(l Lane) bool {
		return slices.ContainsFunc(l.Stages, func(s Stage) bool { return s.state() == Wrong })
	})
}
