// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// userspaceChains have the rules of kube-proxy's userspace mode: they lead to ports at which kube-proxy listens, which
// connects to an endpoint of its own choice. The mode went with 1.26, so that it is recognised, and not one of modes.
var userspaceChains = []string{
	kubeproxy.ChainPortalsContainer,
	kubeproxy.ChainPortalsHost,
	kubeproxy.ChainNodePortContainer,
	kubeproxy.ChainNodePortHost,
}

// holdsUserspace tells whether a node has rules of userspace mode.
func holdsUserspace(s *nodestate.State) bool {
	for _, t := range s.Rules.Tables {
		if t.Name != "nat" || t.Backend == netfilter.BackendNative {
			continue
		}
		for _, name := range userspaceChains {
			if c := t.Chain(name); c != nil && len(c.Rules) > 0 {
				return true
			}
		}
	}
	return false
}

// inUserspace recognises packets that rules bring to a process on the node which connects to an endpoint of its own
// choice: kube-proxy in userspace mode, or the proxy of the command program. In the rules it is not to be seen which
// ones it chooses from: the path is not certain.
var inUserspace = &detector{stage: stageRecognise, path: func(p *pathCase) []issue {
	for _, o := range p.got.translated() {
		who := "kube-proxy"
		switch {
		case o.byOwner == program && o.by.Rule != nil &&
			o.by.Rule.Target == "REDIRECT": // an endpoint may be on the node, too
			who = "the proxy of kubectl svcproxy program"
		case o.by.Chain == nil || !slices.Contains(userspaceChains, o.by.Chain.Name):
			continue
		}
		p.settle()
		listens := "who listens there (listen.txt) was not collected"
		if p.SocketsRead {
			s := p.listener(o.to)
			if s == nil {
				return []issue{{
					code: ProxyNotListening, subject: o.to.String(), endpoints: []string{o.to.String()}, where: o.by,
					expected: who + " listens", actual: "nothing does", evidence: []report.Evidence{cite(o.by)},
					message: "the packet is brought to " + o.to.String() + " on the node, where " + who +
						" should listen, and nothing does: connections are refused",
				}}
			}
			listens = processOf(s) + " listens there"
		}
		p.want.Unsure = "userspace mode of " + who + ": " + o.by.String() + " brings the packet to " + o.to.String() +
			" on the node (" + listens +
			"); that process chooses the endpoint, and the rules do not show which ones it knows"
		return nil
	}
	return nil
}}
