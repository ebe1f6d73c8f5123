// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ofNetwork are findings of a path that are about what is behind the node, or its sockets: segments of their own.
var ofNetwork = []string{
	NoCarrier, WrongNeighbour, NoTunnelEnd, TunnelPacketsDropped, NeighbourFailed, MTUTooSmall,
	endtoend.EndpointNotListening, endtoend.EndpointListensElse,
}

// ofConnections tells whether a finding is what real connections showed, wherever they were lost.
func ofConnections(code string) bool {
	d, ok := kinds[code].by.(*detector)
	return ok && d.stage == stageObserve
}

// ofLostConnections are findings that say of endpoints only that connections to them fail.
var ofLostConnections = []string{EndpointRefused, EndpointTimeout, EndpointUnreachable}

// explain makes what connections have shown of endpoints the evidence of what is wrong in a segment of theirs: one
// fault is one finding.
func explain(p *report.Path, found []issue) {
	for i := range found {
		is := &found[i]
		if kinds[is.code].severity != mismatch || len(is.endpoints) == 0 {
			continue
		}
		p.Findings = slices.DeleteFunc(p.Findings, func(f report.Finding) bool {
			lost := slices.Contains(ofLostConnections, f.Code) || f.Code == PacketDropped && lostElsewhere(p, f.Endpoints)
			same := lost && len(f.Endpoints) > 0 &&
				!slices.ContainsFunc(f.Endpoints, func(e string) bool { return !slices.Contains(is.endpoints, e) })
			if same {
				is.evidence = append(slices.Clip(is.evidence), f.Evidence...)
			}
			return same
		})
	}
}

// lostElsewhere tells whether all that the client's node saw discarded of connections to endpoints was so in other
// network namespaces than its own.
func lostElsewhere(p *report.Path, endpoints []string) bool {
	if p.Observed == nil {
		return false
	}
	for i := range p.Observed.Lost {
		l := &p.Observed.Lost[i]
		if !l.InPod && (l.Endpoint == "" || slices.Contains(endpoints, l.Endpoint)) {
			return false
		}
	}
	return true
}
