// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// AddressOfTwoPods says that two running pods have the address of an endpoint, or of the client: frames go to
// whichever of them answered last.
const AddressOfTwoPods = "AddressOfTwoPods"

var _ = register(kind{code: AddressOfTwoPods, severity: warning, scope: onPath, by: ofTwoPods})

var ofTwoPods = &detector{stage: stageOnward, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT {
		return nil
	}
	is := issue{code: AddressOfTwoPods, predicate: true}
	var subjects []string
	shared := false
	var fix []report.Command
	add := func(a netip.Addr, subject string, endpoints ...string) {
		pods, why := p.podsAt(a)
		if len(pods) < 2 || slices.Contains(subjects, subject) { //nolint:mnd // two
			return
		}
		subjects = append(subjects, subject)
		shared = shared || why == ownListings
		is.endpoints = append(is.endpoints, endpoints...)
		if len(is.evidence) < maxEvidence {
			is.evidence = append(is.evidence, report.Evidence{Text: a.String() + " " + why + strings.Join(pods, ", ")})
			for _, pod := range pods {
				namespace, name, _ := strings.Cut(pod, "/")
				fix = append(fix, report.Command{Line: report.ShellLine("kubectl", "describe", "pod", "-n", namespace, name)})
			}
		}
	}
	if o := &p.want.Origin; o.Kind == expect.FromPod && o.Pod != "" {
		add(o.Address, o.Address.String())
	}
	for i := range p.want.Endpoints {
		e := &p.want.Endpoints[i]
		if pods, _ := p.podsAt(e.Address.Addr()); len(pods) > 1 { // the text is made for few
			add(e.Address.Addr(), addressText(e.Address), addressText(e.Address))
		}
	}
	if subjects == nil {
		return p.ofPodAndNode()
	}
	switch {
	case shared && p.verdict != report.Mismatch:
		p.verdict = report.Unknown // it is what the pods say, now
	case p.verdict == report.Match:
		p.verdict = report.Warning
	}
	is.subject = cut(subjects, 4)
	is.message = "is the address of two running pods: packets to it reach whichever of them the network has found last"
	is.remedy = report.Remedy{
		Text: "delete the pod that has the address wrongly, so that its replacement gets another one; then find out why " +
			"the CNI has assigned it twice: its records of addresses (IPAM) were lost or restored, two of its " +
			"configurations have the same range, or someone has set the address by hand",
		Commands: fix,
	}
	return []issue{is}
}}

// ofPodAndNode finds a pod at the client's bridge, or at that of an endpoint, which has the address that the node has
// there: that of the other pods' gateway.
func (p *pathCase) ofPodAndNode() []issue {
	o, held := &p.want.Origin, p.peers.holders(p.node)
	if len(held) == 0 {
		return nil
	}
	var out []issue
	for i := range p.res.Outcomes {
		for _, dev := range []string{o.Iface, p.res.Outcomes[i].Packet.Out} {
			for _, a := range p.net.AddressesOn(dev) {
				pods := held[a]
				if len(pods) == 0 || slices.ContainsFunc(out, func(is issue) bool { return is.subject == a.String() }) {
					continue
				}
				out = append(out, issue{
					code: AddressOfTwoPods, subject: a.String(), predicate: true,
					message: "is the node's address on " + dev + ", by which the pods there reach it, and also that of " +
						strings.Join(pods, ", ") + ": packets to it reach whichever of them answered last",
					evidence: say(a.String() + " is an address, by ip addr in its own network namespace, of " +
						strings.Join(pods, ", ") + "; ip addr: " + a.String() + " dev " + dev),
					remedy: report.Remedy{Text: "delete the pod that has the address wrongly, or take the address from it; then " +
						"find out why it has it: the CNI's range of addresses does not leave the gateway out, or someone has set " +
						"it by hand"},
				})
			}
		}
	}
	if len(out) > 0 && p.verdict != report.Mismatch {
		p.verdict = report.Unknown
	}
	return out
}

// podsAt are the running pods with an address of their own that have an address, by the API or by their own listings,
// and which of these says so.
func (n *node) podsAt(a netip.Addr) (pods []string, why string) {
	if pods = n.cluster.podsAt[a]; len(pods) > 1 {
		return pods, "is the address of the running pods "
	}
	if len(pods) == 0 {
		return nil, ""
	}
	listed := n.peers.holders(n)[a]
	if len(listed) == 0 {
		return pods, ""
	}
	pods = slices.Concat(pods, listed)
	slices.Sort(pods)
	return slices.Compact(pods), ownListings
}

const ownListings = "is an address, by ip addr in their own network namespaces or by the API, of the pods "

// holders are the pods of the node that say that they have the address of a pod, or the node's own on the bridge that
// they are at.
type holders struct {
	asked bool // to read all pods of a node is too much where all Services are judged
	once  sync.Once
	at    map[netip.Addr][]string
}

// holders reads what the node's pods say of their addresses, where that is there to be read.
func (p *peers) holders(n *node) map[netip.Addr][]string {
	p.held.once.Do(func() {
		if p.read == nil || !p.held.asked {
			return
		}
		p.held.at = map[netip.Addr][]string{}
		for _, x := range n.pods() {
			own := p.ask(Owner{Node: n.Name, Pod: x.name})
			if own.net == nil {
				continue
			}
			for _, a := range own.net.Addresses() {
				dev, _ := own.net.HasAddress(a)
				switch at, _ := n.net.HasAddress(a); {
				case dev == "lo":
				case n.cluster.podsAt[a] != nil, at != "" && n.net.Master(own.net.PeerIn(n.net, dev)) == at:
					p.held.at[a] = append(p.held.at[a], x.name)
				}
			}
		}
	})
	return p.held.at
}

// notePodAt notes that a running pod has an address.
func (c *Cluster) notePodAt(a netip.Addr, name string) {
	if !slices.Contains(c.podsAt[a], name) {
		c.podsAt[a] = append(c.podsAt[a], name)
	}
}
