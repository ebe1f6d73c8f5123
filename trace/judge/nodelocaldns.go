// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// NodeLocalDNS says that the node-local DNS cache answers in place of the Service's endpoints.
const NodeLocalDNS = "NodeLocalDNS"

var _ = register(kind{
	code: NodeLocalDNS, severity: note, scope: onPath, by: nodeLocalDNS,
	remedy: advice("nothing to do: the node-local DNS cache answers on this address"),
	issues: []string{"kubernetes/dns#318"},
})

// nodeLocalDNS recognises the node-local DNS cache: it binds the VIP on the node and takes its packets out of
// connection tracking, so that kube-proxy's rules are passed over on purpose (kubernetes/dns, cmd/node-cache).
var nodeLocalDNS = &detector{stage: stageRecognise, path: func(p *pathCase) []issue {
	f := &p.want.Frontend
	if f.Kind != expect.ClusterIP || f.Port != 53 || !p.got.all(acceptAction) {
		return nil
	}
	for i := range p.res.Outcomes {
		if o := &p.res.Outcomes[i]; o.End != netfilter.Delivered || !o.Packet.Untracked {
			return nil
		}
	}
	p.settle()
	return []issue{
		{
			code:     NodeLocalDNS,
			expected: describe(p.want),
			actual:   "delivered to the node itself",
			message: "the address is bound on the node and its packets are not tracked (raw table): a DNS cache on the node " +
				"answers, and kube-proxy's rules are bypassed",
		},
	}
}}
