// SPDX-License-Identifier: Apache-2.0

// Package nodereport is the object in which the agent of a node says in the API what it has found there
// (deploy/watch/crd.yaml): its form, how findings are made to fit into it, and what is accepted of one that was read.
// There is one object for each node, with the node's name. The agent writes it, and the command status reads those of
// all nodes.
package nodereport

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The names of the kind in the API.
const (
	APIVersion = report.APIVersion
	Kind       = "NodeReport"
	Resource   = "nodereports"
	// Path is where the API has the objects.
	Path = "/apis/" + APIVersion + "/" + Resource
)

// Object is one node's.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status Status `json:"status"`
}

// Status is what the agent has found.
type Status struct {
	// Agent is who has written it: what an agent of another version of the protocol has written is not read.
	Agent peer.Peer `json:"agent"`
	// Verdict is that of the node: the worst of its findings that count; Unknown where paths could not be judged, or
	// Error says why nothing is known.
	Verdict report.Verdict `json:"verdict"`
	// Error is why the node is not judged any more, or was not judged yet; then the rest is of the last pass, if any.
	Error string `json:"error,omitempty"`
	// RenewedAt is when the object was written last, by the node's clock, and RenewSeconds after how many seconds it is
	// written again at the latest.
	RenewedAt    metav1.Time `json:"renewedAt"`
	RenewSeconds int         `json:"renewSeconds"`
	// JudgedAt is when the node was last read for a pass that judged it; nil: never.
	JudgedAt *metav1.Time `json:"judgedAt,omitempty"`
	Mode     *Mode        `json:"mode,omitempty"`
	Paths    Paths        `json:"paths"`
	// UnreadFiles is how many files of the node could not be read.
	UnreadFiles int `json:"unreadFiles,omitempty"`
	// FindingsTotal is how many findings count, by code and Service, those that are folded included.
	FindingsTotal int `json:"findingsTotal"`
	// Findings are those that count, by code and Service, and the reasons why paths are Unknown (severity info).
	Findings []Finding `json:"findings,omitempty"`
	// Folded are those that Findings has no room for.
	Folded []Folded `json:"folded,omitempty"`
}

// Mode is what the node runs; see report.Mode.
type Mode struct {
	Actual           string       `json:"actual,omitempty"`
	Configured       string       `json:"configured,omitempty"`
	Backend          string       `json:"backend,omitempty"`
	KubeProxyVersion string       `json:"kubeProxyVersion,omitempty"`
	Health           string       `json:"health,omitempty"`
	LastSync         *metav1.Time `json:"lastSync,omitempty"`
	// Values are kube-proxy's configuration as far as it is known, and ValuesLeft is how many have no room.
	Values     []Value `json:"values,omitempty"`
	ValuesLeft int     `json:"valuesLeft,omitempty"`
}

// Value is one value of kube-proxy's configuration.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Paths counts paths by verdict. Settling are those with which something is wrong that does not count yet.
type Paths struct {
	Total      int `json:"total"`
	Matched    int `json:"matched"`
	Mismatched int `json:"mismatched"`
	ByDesign   int `json:"byDesign"`
	Warnings   int `json:"warnings"`
	Unknown    int `json:"unknown"`
	Settling   int `json:"settling"`
}

// VerdictOf is the verdict of a node by the counts of its paths and its findings.
func VerdictOf(paths *Paths, findings []Finding) report.Verdict {
	v := report.Match
	if paths.Total > 0 && paths.ByDesign == paths.Total {
		v = report.ByDesign
	}
	for _, x := range []struct {
		n  int
		of report.Verdict
	}{{paths.Mismatched, report.Mismatch}, {paths.Warnings, report.Warning}, {paths.Unknown, report.Unknown}} {
		if x.n > 0 {
			v = report.Worse(v, x.of)
		}
	}
	for i := range findings {
		v = report.Worse(v, report.AgentVerdict(findings[i].Severity))
	}
	return v
}

// Finding is a finding of one Service, or of the node where Service is empty.
type Finding struct {
	Code      string          `json:"code"`
	Severity  report.Severity `json:"severity"` // info: paths are Unknown for it
	Namespace string          `json:"namespace,omitempty"`
	Service   string          `json:"service,omitempty"`
	Paths     int             `json:"paths,omitempty"` // on how many; none of a node's
	// Since is when the node was first read that showed it, or when the Service changed last before that.
	Since *metav1.Time `json:"since,omitempty"`
}

// Folded are findings of a code that are counted alone. Of very many codes the last entry has the rest, with the code
// [OtherCodes].
type Folded struct {
	Code     string          `json:"code"`
	Severity report.Severity `json:"severity"` // the worst
	Services int             `json:"services"`
	Paths    int             `json:"paths,omitempty"`
	Since    *metav1.Time    `json:"since,omitempty"` // the earliest
}

// OtherCodes stands for the codes of findings that are folded beyond maxFolded codes.
const OtherCodes = "Others"
