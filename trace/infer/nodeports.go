// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// served is where the rules of a family serve NodePorts.
type served struct {
	rule      bool         // something shows it
	all       bool         // at every address of the node
	addresses []netip.Addr // at these
}

func (s *served) at(a netip.Addr) {
	s.rule = true
	if !slices.Contains(s.addresses, a) {
		s.addresses = append(s.addresses, a)
	}
}

// everyRange are the ranges of nodePortAddresses that leave out no address, by family (pkg/proxy/util,
// NewNodePortAddresses: a family of which none is given has it, too).
var everyRange = [2]string{"0.0.0.0/0", "::/0"}

// noAddress are ranges that select no address of any node: the unspecified addresses.
var noAddress = [2]string{"0.0.0.0/32", "::/128"}

// nodePortFact says what the families show of nodePortAddresses. standard is what the mode takes for no value.
func (in *Input) nodePortFact(families [2]served, standard []string) Fact {
	out := Fact{Setting: kubeproxy.NodePortRanges}
	known, all := true, true
	var list []string
	for i, f := range nodestate.Families {
		s := &families[i]
		if s.rule {
			out.Families = append(out.Families, f)
		}
		switch {
		case !s.rule:
			// nothing serves NodePorts: it may be that nothing should
			if in.programmed(f) {
				known = false
			}
			list = append(list, everyRange[i])
		case s.all && (in.State.Host.Addresses() == nil || len(s.addresses) == 0 || in.everyAddress(s.addresses, f)):
			list = append(list, everyRange[i])
		default:
			all = false
			slices.SortFunc(s.addresses, netip.Addr.Compare)
			for _, a := range s.addresses {
				list = append(list, netip.PrefixFrom(a, a.BitLen()).String())
			}
			if len(s.addresses) == 0 {
				list = append(list, noAddress[i])
			}
			// One that leaves out the node's own address is more than can be told from a rule.
			own := slices.ContainsFunc(s.addresses, func(a netip.Addr) bool { return slices.Contains(in.NodeIPs, a) })
			known = known && (own || len(s.addresses) >= enough)
		}
	}
	if all && standard == nil {
		list = nil
	}
	out.Known = known
	out.Allowed = []kubeproxy.Config{{NodePortAddresses: list}}
	if !known {
		for _, other := range [][]string{standard, {everyRange[0], everyRange[1]}, {noAddress[0], noAddress[1]}} {
			if !slices.ContainsFunc(out.Allowed, func(c kubeproxy.Config) bool {
				return slices.Equal(c.NodePortAddresses, other)
			}) {
				out.Allowed = append(out.Allowed, kubeproxy.Config{NodePortAddresses: other})
			}
		}
	}
	return out
}

// programmed tells whether the node has rules of a family.
func (in *Input) programmed(f netfilter.Family) bool {
	if in.Mode == kubeproxy.NFTables {
		return in.nftTable(f) != nil
	}
	return len(in.natTables(f)) > 0
}
