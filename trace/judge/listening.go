// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ProxyNotListening says that nobody listens where kube-proxy, or the proxy of the command program, should.
const ProxyNotListening = "ProxyNotListening"

var _ = register(kind{
	code: ProxyNotListening, severity: mismatch, scope: onPath, by: listening, effect: map[string]string{
		"": "nothing listens",
	},
	remedy: advice("look in kube-proxy's log on {node} for why it cannot listen (the port may be taken), then restart it",
		restartProxy),
	issues: []string{"kubernetes/kubernetes#142183"},
})

// listener returns who listens for the frontend's protocol at an address; nil where nobody does.
func (p *pathCase) listener(at netip.AddrPort) *host.Socket {
	return p.SocketAt(strings.ToLower(string(p.want.Frontend.Protocol)), at)
}

// processOf names who has a socket, for people.
func processOf(s *host.Socket) string {
	if s.Process == "" {
		return "a process whose name was not collected"
	}
	return fmt.Sprintf("process %s (%d)", s.Process, s.PID)
}

// listening judges a frontend that kube-proxy serves itself, by listening there: no rule may come in between. Others it
// leaves to inUserspace.
var listening = &detector{stage: stageRecognise, path: func(p *pathCase) []issue {
	want := p.want
	if want.Action != expect.Proxy {
		return inUserspace.path(p)
	}
	p.settle()
	at := netip.AddrPortFrom(want.Frontend.Address, want.Frontend.Port)
	for _, o := range p.got.translated() {
		return []issue{
			{
				code:     Shadowed,
				where:    o.by,
				expected: describe(want),
				actual:   "sent to " + o.to.String(),
				evidence: []report.Evidence{cite(o.by)},
				message:  fmt.Sprintf("kube-proxy itself listens at %s, and a rule sends the packet elsewhere", at),
			},
		}
	}
	if issues := refusals(p.node, want, &p.got); len(issues) > 0 {
		return issues
	}
	if !p.SocketsRead {
		want.Unsure = "kube-proxy itself should listen at " + at.String() + "; who listens on the node (listen.txt) was " +
			"not collected"
		return nil
	}
	s := p.listener(at)
	var is, known bool
	if s != nil {
		is, known = p.isProxy(s)
	}
	switch {
	case s == nil:
		return []issue{{
			code: ProxyNotListening, subject: at.String(), expected: "kube-proxy listens", actual: "nothing does",
			predicate: true, message: "is where kube-proxy itself should listen, and nothing does: connections are refused",
		}}
	case !known:
		want.Unsure = "whether it is kube-proxy that listens at " + at.String() + " was not collected (ss -p as root, and " +
			"processes.txt tell)"
	case !is:
		return []issue{{
			code: Shadowed, subject: at.String(), expected: "kube-proxy listens", actual: processOf(s) + " does",
			predicate: true, message: "is where kube-proxy itself should listen, and " + processOf(s) + " does",
		}}
	}
	return nil
}}
