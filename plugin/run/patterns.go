// SPDX-License-Identifier: Apache-2.0

package run

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/fleet"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Combine makes the report of a command from its nodes' reports, with what those that have a finding share.
func (s *Session) Combine(kind string, service *report.ServiceInfo, nodes []report.NodeReport) *report.Report {
	r := report.Combine(kind, service, nodes)
	if s.Objects != nil {
		r.Patterns = fleet.Patterns(nodes, s.Objects.Nodes)
	}
	return r
}
