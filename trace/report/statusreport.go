// SPDX-License-Identifier: Apache-2.0

package report

import "slices"

// KindStatus is the kind of StatusReport.
const KindStatus = "StatusReport"

// StatusReport is what the agents of all nodes have found, by finding and Service (docs/status.md). Lists are ordered
// and stable.
type StatusReport struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Verdict    Verdict    `json:"verdict"` // the worst of the nodes; Unknown where one is not known
	Source     *Source    `json:"source,omitempty"`
	Service    *ObjectRef `json:"service,omitempty"` // the one that was asked for
	// ByDesign is why nothing, or no endpoint, is to be reached by that Service: no node has to be asked for that.
	ByDesign string `json:"byDesign,omitempty"`
	// Groups are findings by code and Service, the worst first, and of that what is on most nodes.
	Groups     []StatusGroup `json:"groups"`
	GroupsLeft int           `json:"groupsLeft,omitempty"` // more that are not listed
	// Nodes are all that were asked for, worker-2 before worker-10.
	Nodes   []StatusNode  `json:"nodes"`
	Summary StatusSummary `json:"summary"`
}

// StatusGroup is a finding of a Service, or of nodes as a whole, with what the nodes share that have it.
type StatusGroup struct {
	Pattern

	// Folded: it is of Services that have no room in the nodes' objects, at most so many of them on one node; then
	// service is absent.
	Folded int `json:"folded,omitempty"`
	Paths  int `json:"paths,omitempty"` // on all nodes together
	// Since is when the first of the nodes had it, RFC 3339, and SinceNode is that node; absent where that is not known.
	Since     string `json:"since,omitempty"`
	SinceNode string `json:"sinceNode,omitempty"`
	Page      string `json:"page,omitempty"` // the address of the page that explains the code
}

// StatusNode is one node.
type StatusNode struct {
	Node    string  `json:"node"`
	Verdict Verdict `json:"verdict"` // of the Service that was asked for, and of the node as a whole
	// Error is why nothing is known of it, or not of the Service that was asked for.
	Error string `json:"error,omitempty"`
	// JudgedAt and WrittenAt are of the node's object, RFC 3339: when the agent last judged the node, and when it last
	// said so. They are absent where there is no object.
	JudgedAt  string `json:"judgedAt,omitempty"`
	WrittenAt string `json:"writtenAt,omitempty"`
	// Paths are those of the node at JudgedAt, of all Services, and Settling how many of them have something wrong that
	// does not count yet; absent where nothing is known.
	Paths    *Summary `json:"paths,omitempty"`
	Settling int      `json:"settling,omitempty"`
	// Findings is how many findings count on the node, by code and Service, and Folded how many of them have no room in
	// its object.
	Findings int `json:"findings,omitempty"`
	Folded   int `json:"folded,omitempty"`
}

// StatusSummary counts nodes by verdict. NotKnown are those of which nothing is known, or not of the Service that was
// asked for: they have no object, a stale one, or one that says that the node could not be judged.
type StatusSummary struct {
	Nodes      int `json:"nodes"`
	Right      int `json:"right"` // Match or ByDesign
	Mismatched int `json:"mismatched"`
	Warnings   int `json:"warnings"`
	Unknown    int `json:"unknown"` // known, and some of its paths could not be judged
	NotKnown   int `json:"notKnown"`
	Findings   int `json:"findings"` // groups of severity error or warning, but for those of folded Services
	// Folded is how many Services are besides in such groups at most, and Affected how many nodes have findings.
	Folded   int `json:"folded,omitempty"`
	Affected int `json:"affected"`
	Paths    int `json:"paths"` // of all nodes that are known
	Settling int `json:"settling"`
	// OldestJudgedAt is when the first of the nodes that are known was judged, RFC 3339.
	OldestJudgedAt string `json:"oldestJudgedAt,omitempty"`
}

// AgentSeverities are those of what agents find, the worst first. With Info they say why paths could not be judged.
var AgentSeverities = []Severity{Error, Info, Warn}

// CompareSeverities compares severities of agents' findings as AgentSeverities has them: negative where a is worse than
// b.
func CompareSeverities(a, b Severity) int {
	return slices.Index(AgentSeverities, a) - slices.Index(AgentSeverities, b)
}

// AgentVerdict is the verdict that an agent's finding of a severity stands for.
func AgentVerdict(s Severity) Verdict {
	switch s {
	case Error:
		return Mismatch
	case Warn:
		return Warning
	case Info:
	}
	return Unknown
}
