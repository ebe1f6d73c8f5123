// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// unroutedPod is what shows that a pod of the node has no route of its own, where its packets leave the node by the
// default route: other pods of the node have such routes, or the node has links to pods, and its address is of the
// node's pod network. Pods whose network is that of the uplink (macvlan, ipvlan) have neither.
func (p *pathCase) unroutedPod(a netip.Addr, l *host.Lookup) []string {
	if !l.By.Default() {
		return nil
	}
	off := fmt.Sprintf("%s: the route to %s, a pod of this node, leads off the node", l.By, a)
	links := slices.ContainsFunc(p.net.Devs(), p.net.PodLink)
	for _, net := range p.podCIDRs {
		if links && net.Contains(a) {
			return []string{off, a.String() + " is of " + net.String() + ", which is for pods of this node"}
		}
	}
	for _, other := range p.routedPods(a.Is4()) {
		if other.ip != a && p.net.PodLink(other.Dev) && near(a, other.ip) {
			return []string{off, other.By.String() + ": the route to another pod of it is by " + other.Dev}
		}
	}
	return nil
}

// near tells whether two pods of a node seem to have their addresses of the same network: a node has a few blocks of
// addresses (Calico's have 64). Pods beside them may be of another network that a router knows.
func near(a, b netip.Addr) bool {
	bits := 24
	if !a.Is4() {
		bits = 112
	}
	return netip.PrefixFrom(a, bits).Masked().Contains(b)
}

// sharedLink is what shows that the route to a pod of the node is by the link of another one: both are routed to the
// same interface that is no bridge, and nothing there has answered for it.
func (p *pathCase) sharedLink(a netip.Addr, l *host.Lookup) []string {
	if l.Gateway.IsValid() || !l.By.ToOne() || !p.net.PodLink(l.Dev) {
		return nil
	}
	if e, ok := p.net.Neighbour(l.Dev, a); ok && e.MAC != "" && !e.Failed {
		return nil
	}
	for _, other := range p.routedPods(a.Is4()) {
		if other.ip != a && other.Dev == l.Dev && other.By.ToOne() {
			return []string{fmt.Sprintf("%s; %s: two pods are routed to %s, a link to one", l.By, other.By, l.Dev)}
		}
	}
	return nil
}

// mostSiblings bounds how many pods of a node are asked for.
const mostSiblings = 256

// routedPod is a pod of the node with the route to it.
type routedPod struct {
	ip netip.Addr
	host.Lookup
}

// routedPods are the pods of the node with an address of a family, and the routes to them.
func (p *pathCase) routedPods(v4 bool) []routedPod {
	return p.siblings.once(v4, func() []routedPod {
		var out []routedPod
		for _, x := range p.pods() {
			a := x.address(v4)
			if !a.IsValid() || len(out) == mostSiblings {
				continue
			}
			l := p.net.Lookup(host.Query{Dst: a, AnyMark: true, AnyUID: true})
			if l.Known && l.Type == host.RouteUnicast && l.Dev != "" && !l.Gateway.IsValid() {
				out = append(out, routedPod{a, l})
			}
		}
		return out
	})
}

// calicoGateway is that of Calico's pods, which no interface has.
var calicoGateway = netip.AddrFrom4([4]byte{169, 254, 1, 1})

// withoutProxyARP: the node answers for the gateway of Calico's pods where proxy_arp is set for the pod's interface or
// for all, or where it has an entry for it.
func (p *pathCase) withoutProxyARP(a netip.Addr) (evidence []string, fix []report.Command) {
	dev := ""
	if o := &p.want.Origin; a == o.Address && !netfilter.IsUnknown(o.Iface) {
		dev = o.Iface
	} else if l := p.net.Lookup(host.Query{Dst: a, AnyMark: true, AnyUID: true}); l.Known {
		dev = l.Dev
	}
	all, own := "net/ipv4/conf/all/proxy_arp", "net/ipv4/conf/"+dev+"/proxy_arp"
	if !a.Is4() || !strings.HasPrefix(dev, calicoPrefix) ||
		slices.ContainsFunc(p.net.AddressesOn(dev), netip.Addr.Is4) {
		return nil, nil
	}
	if local, known := p.net.Local(calicoGateway); local || !known {
		return nil, nil
	}
	if why, by := p.net.NoProxy(dev, calicoGateway, a); why != "" {
		if words := by.DeleteRoute(); words != nil && !by.Default() {
			fix = append(fix, p.onNode("where nothing needs the route", words...))
		}
		return []string{why + ": the node does not answer for " + calicoGateway.String() + ", the gateway of Calico's pods"},
			fix
	}
	if !p.isOff(all) || !p.isOff(own) || p.mayAnswerFor(dev, calicoGateway) {
		return nil, nil
	}
	return []string{all + "=0, " + own + "=0: the node does not answer for " + calicoGateway.String() +
			", the gateway of Calico's pods"},
		[]report.Command{p.onNode("as Calico sets it", "sysctl", "-w", own+"=1")}
}

// mayAnswerFor tells whether the node answers by ARP for an address of others, by what was read.
func (p *pathCase) mayAnswerFor(dev string, ip netip.Addr) bool {
	may, _, _ := p.net.AnswersForOthers(dev, ip)
	return may
}
