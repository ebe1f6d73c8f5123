// SPDX-License-Identifier: Apache-2.0

package report

// Pattern is something wrong by finding and Service: on which of the nodes that were judged it is, and what those share
// that the others do not have.
type Pattern struct {
	Code     string     `json:"code"`
	Severity Severity   `json:"severity"`
	Service  *ObjectRef `json:"service,omitempty"`  // absent for the node as a whole, and in a TraceReport
	Nodes    []string   `json:"nodes"`              // with the finding, worker-2 before worker-10
	Without  int        `json:"without"`            // nodes that were judged and do not have it
	NotKnown int        `json:"notKnown,omitempty"` // nodes that could not be inspected, or where the Service is Unknown
	Shared   []Shared   `json:"shared,omitempty"`   // what is true of Nodes, and of none or few of the others
	// NotCompared: there are very many different sets of nodes, and these were not compared.
	NotCompared bool `json:"notCompared,omitempty"`
}

// Relations of a property to the value that separates nodes.
const (
	SharedIs    = "is"
	SharedIsNot = "isNot" // all others have the value
	SharedSince = "since" // a time, RFC 3339: that or later
	SharedUntil = "until" // a time, RFC 3339: that or earlier
)

// Shared is a property that separates the nodes with a finding from those without, with how many of each it is true of.
// Of counts nodes of which the property is known.
type Shared struct {
	Property  string `json:"property"` // kernel, zone, kube-proxy version, label KEY, …
	Relation  string `json:"relation"` // is, isNot, since, until
	Value     string `json:"value"`    // "" for a label that is not there
	With      int    `json:"with"`
	OfWith    int    `json:"ofWith"`
	Without   int    `json:"without"`
	OfWithout int    `json:"ofWithout"`
}
