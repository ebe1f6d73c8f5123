// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// Answers returns every path that kube-proxy may have programmed for packets from o to f, where chance decides which:
// an address has several entries in EndpointSlices with different conditions, or other Services claim the frontend's
// address and port. Those of the frontend's own Service come first; one of another Service has that Service's frontend.
// Of a path of which nothing depends on chance it is the one of [Node.Path]. Path.Unsure of an answer is what else it
// depends on. Endpoints must not be changed. Of many other Services only those are asked that have the endpoint to;
// where there are too many of these, the last answer is that it is not known.
func (n *Node) Answers(f Frontend, o Origin, to netip.AddrPort) []Path {
	if _, shared := n.otherClaim(&f); !shared {
		return n.own(f, o)
	}
	named, nodePorts, left := n.claimants(&f, to)
	var out []Path
	add := func(fs ...Frontend) (all bool) {
		all = len(fs) > 0
		for _, x := range fs {
			for _, p := range n.own(x, o) {
				if x.Service != f.Service && p.Action == None && p.Reason == ReasonNotForKubeProxy {
					continue // it has no such frontend after all: the family is not one of its own
				}
				all = all && p.Action == DNAT
				out = append(out, p)
			}
		}
		return all
	}
	if f.Kind == NodePort {
		nodePorts = append([]Frontend{f}, nodePorts...)
	} else {
		named = append([]Frontend{f}, named...)
	}
	// The rules for NodePorts are asked last, of what no other rule has translated.
	if !add(named...) {
		add(nodePorts...)
	}
	slices.SortStableFunc(out, func(a, b Path) int { return foreign(&a, &f) - foreign(&b, &f) })
	out = distinct(n.mixed(out))
	if left {
		out = append(out, Path{Frontend: f, Origin: o, Unsure: fmt.Sprintf(
			"more than %d Services with the same endpoint claim %s port %d", bounds.Claimants, f.Address, f.Port)})
	}
	return out
}

// foreign is 1 for a path of another Service than a frontend's, else 0.
func foreign(p *Path, f *Frontend) int {
	if p.Frontend.Service != f.Service {
		return 1
	}
	return 0
}

// own returns the paths that the Service of a frontend may have.
func (n *Node) own(f Frontend, o Origin) []Path {
	first := Path{Frontend: f, Origin: o}
	s, fam, port := n.find(&f, &first)
	if first.Action == None {
		return []Path{first}
	}
	if len(port.variants) == 0 {
		n.fillWith(&first, s, fam, port)
		return []Path{first}
	}
	out := make([]Path, 0, len(port.variants))
	for i := range port.variants {
		p := Path{Frontend: f, Origin: o}
		n.fillWith(&p, s, fam, &port.variants[i])
		out = append(out, p)
	}
	if out = distinct(out); len(out) > 1 {
		for i := range out {
			out[i].OneOf = port.unsure
		}
	}
	return out
}

// mixed adds what comes of two Services in modes where they share a virtual server: the one that was written last has
// its endpoints there, while either may have its address in the set whose packets are masqueraded
// (pkg/proxy/ipvs/proxier.go, syncProxyRules: kubeExternalIPSet, kubeNodePortSetTCP, …).
func (n *Node) mixed(all []Path) []Path {
	if !n.mode.virtual || !slices.ContainsFunc(all, func(p Path) bool { return p.Masquerade == MasqAlways }) {
		return all
	}
	for _, p := range all {
		if p.Action == DNAT && p.Masquerade != MasqAlways {
			p.Masquerade = MasqAlways
			all = append(all, p)
		}
	}
	return all
}

// distinct leaves out paths that are like an earlier one in all that a packet meets.
func distinct(all []Path) []Path {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(p Path) bool {
		var b strings.Builder
		for _, s := range []string{
			string(p.Action), string(p.Masquerade), strconv.Itoa(int(p.AffinitySeconds)), p.Unsure,
			p.Frontend.Service.String(),
		} {
			b.WriteString(s + " ")
		}
		if p.Action != DNAT && p.Action != Proxy {
			b.WriteString(p.Reason)
		}
		for i := range p.Endpoints {
			b.WriteString(p.Endpoints[i].Address.String() + " ")
		}
		key := b.String()
		if seen[key] {
			return true
		}
		seen[key] = true
		return false
	})
}
