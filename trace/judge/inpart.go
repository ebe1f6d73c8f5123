// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// This file is about nodes of which the rules of other Services were left out (nodestate.State.InPart). Of these only
// their own chains are missing: what leads to chains, and all that Services share, is there. The walk takes a chain
// that is missing for opaque, so that no path is a match by it. What else a judgement takes from the rules of all
// Services asks for the whole node here, and the report is none.

// needsWhole notes that the rules of all Services decide something.
func (n *node) needsWhole(why string) {
	if n.whole == "" && n.InPart() {
		n.whole = why
	}
}

// wholeForLayout: that up to kube-proxy 1.35 each endpoint's chain masquerades what it sends to itself is told by the
// first chain of an endpoint that there is.
func (n *node) wholeForLayout() {
	if n.Layout().NFTHairpin != 0 || n.config.Mode != kubeproxy.NFTables {
		return
	}
	for _, t := range n.Rules.Tables {
		if t.InPart && slices.ContainsFunc(t.Chains, func(c *netfilter.Chain) bool {
			return c.Unread != "" && strings.HasPrefix(c.Name, kubeproxy.NFTPrefixEndpoint)
		}) {
			n.needsWhole("the chains of other Services' endpoints tell how hairpin connections are masqueraded")
		}
	}
}

// partSuffices returns why the part of the node that was read decides too little; "" where nothing is left open. What
// is a mismatch by rules that were read is one, whatever the others are.
func (n *node) partSuffices(paths []judged, r *report.NodeReport) string {
	switch {
	case !n.InPart():
	case len(r.Asks) > 0:
		return "a path depends on what others say of their interfaces"
	case slices.ContainsFunc(paths, func(p judged) bool { return p.Verdict == report.Unknown }):
		return "a path is not decided by what was read"
	}
	return ""
}
