// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// BridgeTakesNothing says that a bridge does not know its own link-layer address.
const BridgeTakesNothing = "BridgeTakesNothing"

var _ = register(kind{code: BridgeTakesNothing, severity: mismatch, scope: onPath, by: stopped(
	BridgeTakesNothing, (*pathCase).deafBridge,
	"a bridge's forwarding table has no entry for the bridge's own link-layer address: what its pods send to the node is "+
		"passed on to other ports, and the node does not get it",
)})

// deafBridge: [host.Network.Deaf], of the bridges that the packet or its answer leaves by: the hosts there ask and
// answer the node at the bridge's own address.
func (p *pathCase) deafBridge(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	for _, dev := range [2]string{end.Packet.Out, o.Iface} {
		if dev == "" || netfilter.IsUnknown(dev) || !p.isDeaf(dev) {
			continue
		}
		mac := p.net.MAC(dev)
		s := stoppedBy(fmt.Sprintf("ip link: %s has %s, and bridge fdb has no permanent entry of it with master %s", dev,
			mac, dev))
		s.remedy = report.Remedy{
			Text:     "add the entry again, and find what has removed it (bridge fdb flush, a script)",
			Commands: []report.Command{p.onNode("", "bridge", "fdb", "replace", mac, "dev", dev, "self", "permanent")},
		}
		return s
	}
	return nil
}

// isDeaf is [host.Network.Deaf], asked once.
func (w *worker) isDeaf(dev string) bool {
	return w.deaf.once(dev, func() bool { return w.net.Deaf(dev) })
}
