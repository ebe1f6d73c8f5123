// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// FewClientPorts says that the node has so few ports for its own connections that there are not enough for many.
const FewClientPorts = "FewClientPorts"

var _ = register(kind{
	code: FewClientPorts, severity: warning, scope: onPath, by: fewClientPorts,
	effect: map[string]string{"": "no more than {actual} at a time"},
	remedy: advice("give the node's connections more ports on {node}, and make it last (/etc/sysctl.d); 32768 to 60999 "+
		"is what the kernel begins with",
		command{line: "sysctl " + host.LocalPortRange + " " + host.LocalReservedPorts, onNode: true, when: "to see them"}),
})

// fewClientPorts: to one frontend each connection of the node needs a source port of its own, also for some time after
// it was closed; where none is left connect fails with EADDRNOTAVAIL (__inet_hash_connect in
// net/ipv4/inet_hashtables.c, tcp_twsk_unique in net/ipv4/tcp_ipv4.c).
var fewClientPorts = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	if p.want.Origin.Kind != expect.FromNode || p.want.Action != expect.DNAT {
		return nil
	}
	count, known := p.countClientPorts()
	if !known || count >= enoughPorts {
		return nil
	}
	given, _ := p.net.Sysctl(host.LocalPortRange)
	reserved, _ := p.net.Sysctl(host.LocalReservedPorts)
	return []issue{{
		code: FewClientPorts, expected: "as many source ports as connections", actual: number(count, "connection"),
		message: fmt.Sprintf("the kernel gives the node's own connections one of %s: of those that are open to the "+
			"frontend, or were closed less than a minute ago, no more have one, and another fails with \"Cannot assign "+
			"requested address\"", number(count, "port")),
		evidence: say(host.LocalPortRange+"="+given, host.LocalReservedPorts+"="+reserved),
	}}
}}

// countClientPorts counts the ports that the kernel gives to connections of the node's own, once.
func (w *worker) countClientPorts() (count int, known bool) {
	if w.clientPorts == nil {
		x := struct {
			count int
			known bool
		}{}
		if in, ok := w.net.Ephemeral(); ok {
			first, last, _ := w.net.LocalPorts()
			for port := first; port <= last && x.count < enoughPorts; port++ {
				if in(port) {
					x.count++
				}
				if port == last { // which may be the last there is
					break
				}
			}
			x.known = true
		}
		w.clientPorts = &x
	}
	return w.clientPorts.count, w.clientPorts.known
}
