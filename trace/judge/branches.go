// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// branches returns for each step the endpoints ("10.244.1.5:8080") of the connections that it is for; nil where it is
// for those to all of them, and where the step alone does not tell: behind the translation rules tell endpoints apart
// by what they match.
func branches(steps []netfilter.Step) [][]string {
	ends := map[*netfilter.Chain][]string{}
	add := func(c *netfilter.Chain, list []string) (changed bool) {
		for _, e := range list {
			if !slices.Contains(ends[c], e) {
				ends[c], changed = append(ends[c], e), true
			}
		}
		return changed
	}
	own := make([][]string, len(steps))
	every := map[string]bool{}
	for i := range steps {
		if s := &steps[i]; s.Kind == netfilter.StepTranslate && s.NAT.Side == netfilter.Destination &&
			s.NAT.To.Addr().IsValid() {
			own[i] = []string{addrPortText(s.NAT.To)}
			every[own[i][0]] = true
			add(s.Ref.Chain, own[i])
		}
	}
	for changed := len(every) > 1; changed; { // from the called chains to those that call them
		changed = false
		for i := range steps {
			if s := &steps[i]; s.Target != nil && add(s.Ref.Chain, ends[s.Target]) {
				changed = true
			}
		}
	}
	out := make([][]string, len(steps))
	for i := range steps {
		s := &steps[i]
		of := own[i]
		if of == nil && s.Target != nil {
			of = ends[s.Target]
		}
		if of == nil {
			of = ends[s.Ref.Chain]
		}
		if len(of) > 0 && len(of) < len(every) {
			out[i] = slices.Clone(of)
		}
	}
	return out
}

// addrPortText is an address with its port, or without where that is not known.
func addrPortText(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}
