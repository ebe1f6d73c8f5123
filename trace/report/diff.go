// SPDX-License-Identifier: Apache-2.0

package report

import "slices"

// KindDiff is the kind of Diff.
const KindDiff = "DiffReport"

// What a Diff compares.
const (
	ComparesCaptures = "captures" // the same nodes at two times
	ComparesNodes    = "nodes"    // two nodes, as far as they matter for one Service
)

// Diff is what differs between two captures, or between two nodes (docs/diff.md). Lists are ordered and stable, and
// bounded: what is left out is counted.
type Diff struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Compares   string     `json:"compares"` // captures, nodes
	Before     *Source    `json:"before"`   // what was read; of two nodes both have the same
	After      *Source    `json:"after"`
	Service    *ObjectRef `json:"service,omitempty"` // the one that two nodes are compared for
	Nodes      []NodeDiff `json:"nodes"`
	OnlyBefore []string   `json:"onlyBefore,omitempty"` // nodes that only this capture has
	OnlyAfter  []string   `json:"onlyAfter,omitempty"`
	// Objects are what changed of Services, of their endpoints and of Nodes in the API.
	Objects     []Change `json:"objects,omitempty"`
	ObjectsLeft int      `json:"objectsLeft,omitempty"` // more that are not listed
	// NotCompared are the kinds of objects that were not read on both sides.
	NotCompared []NotCompared `json:"notCompared,omitempty"`
	Summary     DiffSummary   `json:"summary"`
}

// NodeDiff is what differs on a node, or between two nodes.
type NodeDiff struct {
	Before ComparedNode `json:"before"`
	After  ComparedNode `json:"after"`
	// Paths are those that another verdict, another finding or another destination came of.
	Paths     []PathChange `json:"paths,omitempty"`
	PathsLeft int          `json:"pathsLeft,omitempty"` // more that are not listed
	// Verdicts counts the paths by what has become of their verdicts, listed or not.
	Verdicts VerdictChanges `json:"verdicts"`
	// Findings are those of the node as a whole that came or went.
	Findings []FindingChange `json:"findings,omitempty"`
	// Changes are the differences of rules, sets, settings and the like, part by part.
	Changes []Change `json:"changes,omitempty"`
	// Left are the changes of a part that are not listed.
	Left []PartCount `json:"left,omitempty"`
	// NotCompared are the parts that were not read on both sides.
	NotCompared []NotCompared `json:"notCompared,omitempty"`
}

// ComparedNode is one side of a NodeDiff.
type ComparedNode struct {
	Node    string  `json:"node"`
	Verdict Verdict `json:"verdict"`
	Error   string  `json:"error,omitempty"` // why it could not be inspected; then nothing is compared
	Mode    *Mode   `json:"mode,omitempty"`
	// SyncAge is how long before the node was read kube-proxy wrote its rules last, in seconds; absent where the time of
	// one of them is not known.
	SyncAge *int64  `json:"syncAge,omitempty"`
	Summary Summary `json:"summary"`
}

// PathChange is a path that differs.
type PathChange struct {
	Service  *ObjectRef `json:"service,omitempty"`
	Frontend Frontend   `json:"frontend"`
	Origin   Origin     `json:"origin"`
	Before   *PathSide  `json:"before,omitempty"` // absent: there is no such path
	After    *PathSide  `json:"after,omitempty"`
	// Came and Went are findings of one side only.
	Came []FindingChange `json:"came,omitempty"`
	Went []FindingChange `json:"went,omitempty"`
	// Gained and Lost are endpoints that get connections on one side only.
	Gained []string `json:"gained,omitempty"`
	Lost   []string `json:"lost,omitempty"`
}

// PathSide is a path as it is on one side.
type PathSide struct {
	Verdict  Verdict `json:"verdict"`
	Expected string  `json:"expected,omitempty"`
	Actual   string  `json:"actual,omitempty"`
}

// FindingChange is a finding that came or went.
type FindingChange struct {
	Change   string   `json:"change"` // added, removed
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject,omitempty"`
	Message  string   `json:"message,omitempty"`
}

// The kinds of change.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is one difference of a part.
type Change struct {
	Part   string `json:"part"`            // rules, sets, settings, routes, …
	Place  string `json:"place,omitempty"` // chain, set, table, interface; of API objects the kind and the name
	Change string `json:"change"`          // added, removed, changed
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Rule is the rule's number in its chain.
	Rule int `json:"rule,omitempty"`
	// Entries: the chain, set or server came or went as a whole, with so many lines, of which the last is shown.
	Entries int `json:"entries,omitempty"`
}

// PartCount is how many differences of a part there are.
type PartCount struct {
	Part  string `json:"part"`
	Count int    `json:"count"`
}

// NotCompared is a part of a node, or a kind of objects, that was not compared.
type NotCompared struct {
	Part string `json:"part"`
	Why  string `json:"why"`
}

// VerdictChanges counts paths by what has become of their verdicts.
type VerdictChanges struct {
	Broke    int `json:"broke"`    // from right to a mismatch or a warning
	Repaired int `json:"repaired"` // from a mismatch or a warning to right
	Known    int `json:"known"`    // from not known to something else
	Unclear  int `json:"unclear"`  // from something else to not known
}

// DiffSummary counts differences, listed or not.
type DiffSummary struct {
	Nodes int `json:"nodes"` // that were compared
	Paths int `json:"paths"` // that differ
	VerdictChanges
	Rules     int `json:"rules"`     // differences of rules, sets and virtual servers
	Others    int `json:"others"`    // of settings, configuration, routes, links and the like
	Objects   int `json:"objects"`   // of API objects
	NotJudged int `json:"notJudged"` // nodes of which one side could not be inspected
}

// The parts of a node whose differences are differences of rules: of what tells the kernel where connections go.
const (
	PartRules   = "rules"
	PartServers = "virtual servers"
	PartSets    = "sets"
)

// IsRules tells whether a part is one of these.
func IsRules(part string) bool { return part == PartRules || part == PartServers || part == PartSets }

// InPathsOrRules tells whether anything of what decides about connections differs on a node, of what is listed.
func (n *NodeDiff) InPathsOrRules() bool {
	return len(n.Paths) > 0 || slices.ContainsFunc(n.Changes, func(c Change) bool { return IsRules(c.Part) }) ||
		n.inFindings()
}

// inFindings tells whether findings of the node came or went that are more than information.
func (n *NodeDiff) inFindings() bool {
	return slices.ContainsFunc(n.Findings, func(f FindingChange) bool { return f.Severity != Info })
}

// InPathsOrRules tells whether anything of what decides about connections differs: paths, findings of nodes, rules, or
// which nodes there are.
func (d *Diff) InPathsOrRules() bool {
	s := d.Summary
	if s.Paths+s.Rules > 0 || len(d.OnlyBefore)+len(d.OnlyAfter) > 0 {
		return true
	}
	return slices.ContainsFunc(d.Nodes, func(n NodeDiff) bool { return n.inFindings() })
}
