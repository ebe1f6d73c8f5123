// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// mode is one of kube-proxy's proxy modes: where its rules are, which of them are a Service's, and how a difference in
// them is explained. Each has a file, mode_NAME.go, and stands in modes. What a mode shares with iptables mode it takes
// from [iptablesMode] by embedding.
type mode interface {
	// name is what kube-proxy calls the mode.
	name() string
	// names are those that the mode gives to what it writes.
	names() chainNames

	// where its rules are, for people.
	where() string
	// home tells whether the mode keeps the chains of Services in a table.
	home(t *netfilter.Table) bool
	// owns tells whether a rule, a policy or a chain is kube-proxy's, written in this mode.
	owns(r netfilter.Ref) bool
	// baseChain names, for people, the base chain of a hook that leads to the chain of all Services.
	baseChain(h netfilter.Hook) string

	// holds tells whether the node has rules of the mode.
	holds(s *nodestate.State) bool
	// programmed tells whether a node with the chain of all Services has what else makes a family's rules complete.
	programmed(s *nodestate.State, f netfilter.Family) bool
	// notRead says why the rules of a family cannot be judged; "" when they can.
	notRead(s *nodestate.State, f netfilter.Family) string
	// tellsWhy tells whether notRead names the file that is missing even where the collector does not tell what it could
	// not read.
	tellsWhy(s *nodestate.State) bool
	// notCollected are files that the mode can be judged without, but not all that matters beside it.
	notCollected(s *nodestate.State) []issue
	// showBackends notes in the node's report.Mode in which of iptables' backends the rules are.
	showBackends(n *node)

	// leftovers are what the mode has left on a node that runs in another one.
	leftovers(n *node) []issue
	// unowned finds what is programmed for frontends that belong to no Service, and what is left of Services that are
	// gone.
	unowned(n *node) []issue

	// untranslated tells whether a packet was refused because no rule has translated it.
	untranslated(o *outcome) bool
	// refusal says what a reject or drop by one of the mode's rules means where it should not refuse.
	refusal(is issue, o *outcome) issue
	// affinity judges whether clients stay with their endpoint.
	affinity(p *pathCase) []issue
	// explain says where each difference comes from. Several with one cause become one.
	explain(p *pathCase, issues []issue) []issue
	// reachesServices tells whether packets that enter at a path's hook can come to the chain of all Services.
	reachesServices(p *pathCase, w *walked) bool
	// noTranslation says why the chain of all Services leads from a frontend to nothing.
	noTranslation(n *node, f expect.Frontend) (message string, evidence []report.Evidence)
	// missing says what the chain that should lead to an endpoint holds in its place.
	missing(w *walked, c *netfilter.Chain, is *issue)
	// elements quotes what the mode's maps have for a frontend.
	elements(n *node, f expect.Frontend) []report.Evidence
}

// modes are all of them; the first is that of a node of which nothing tells the mode
// (cmd/kube-proxy/app/server_linux.go: the default on Linux).
var modes = []mode{
	&iptablesMode{kubeproxy.IPTables, chainNames{&kubeproxy.IPTablesNames}},
	&nftablesMode{iptablesMode{kubeproxy.NFTables, chainNames{&kubeproxy.NFTablesNames}}},
	&ipvsMode{iptablesMode{kubeproxy.IPVS, chainNames{&kubeproxy.IPVSNames}}},
}

// modeOf returns the mode of a name; the first one for a name that is not known.
func modeOf(name string) mode {
	if i := slices.IndexFunc(modes, func(m mode) bool { return m.name() == name }); i >= 0 {
		return modes[i]
	}
	return modes[0]
}

// checkMode refuses a configured mode that is none, as kube-proxy does (pkg/proxy/apis/config/validation). That of
// userspace is one of old.
func checkMode(name string) error {
	known := []string{"", kubeproxy.Userspace}
	names := make([]string, 0, len(modes))
	for _, m := range modes {
		names = append(names, m.name())
	}
	if slices.Contains(slices.Concat(known, names), name) {
		return nil
	}
	last := len(names) - 1
	return fmt.Errorf("mode is %q, where %s or %s was expected", name, strings.Join(names[:last], ", "), names[last])
}

// held are the modes whose rules a node has.
func held(s *nodestate.State) []mode {
	var out []mode
	for _, m := range modes {
		if m.holds(s) {
			out = append(out, m)
		}
	}
	return out
}

// owner is whose a rule is.
type owner uint8

const (
	others    owner = iota
	kubeProxy       // kube-proxy's
	program         // what the command program has put there in its place
)

// ownerOf tells whose a rule, a policy or a chain is.
func (n *node) ownerOf(r netfilter.Ref) owner {
	switch {
	case r.Chain == nil:
		return others
	case n.mode.owns(r) || namedByKubeProxy(r.Chain.Table, r.Chain.Name):
		return kubeProxy
	case strings.HasPrefix(r.Chain.Name, kubeproxy.ProgramChainPrefix),
		r.Chain.Table.Backend == netfilter.BackendNative &&
			strings.HasPrefix(r.Chain.Table.Name, kubeproxy.ProgramTablePrefix):
		return program
	}
	return others
}

// writerOf returns the mode in which kube-proxy has written a rule of its own: the node's, or another that has left it.
func (n *node) writerOf(r netfilter.Ref) mode {
	if r.Chain == nil || n.mode.owns(r) {
		return n.mode
	}
	if i := slices.IndexFunc(modes, func(m mode) bool { return m.owns(r) }); i >= 0 {
		return modes[i]
	}
	return n.mode
}

// untranslated tells whether a packet was refused because no rule has translated it.
func (n *node) untranslated(o *outcome) bool { return n.writerOf(o.where).untranslated(o) }

// byKubeProxy tells whether a rule is kube-proxy's.
func (n *node) byKubeProxy(r netfilter.Ref) bool { return n.ownerOf(r) == kubeProxy }

// chainName names a chain for people: "nat KUBE-SVC-…", "nft kube-proxy service-…".
func chainName(c *netfilter.Chain) string {
	if c.Table.Backend == netfilter.BackendNative {
		return "nft " + c.Table.Name + " " + c.Name
	}
	return c.Table.Name + " " + c.Name
}
