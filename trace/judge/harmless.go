// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// takesAway matches what removes something, in a command of any program.
var takesAway = lazyregexp.New(
	`(^| )(del|delete|flush|destroy|detach|drain|off|stop|disable|reboot|rmmod|-[A-Za-z]*[DFXCZ]|` +
		`--(cleanup|clear|delete[a-z-]*|flush)|[a-z0-9-]+-restore)( |$)`)

// harmless is a remedy without the commands that remove more than what is wrong: what the kernel or the agent of a
// network plugin has made for all pods, and kube-proxy's own chains, tables, sets and virtual servers. In place of one
// is what shows the same, and the reason. Every finding's commands come through here. What removes something and is not
// known here is left out, too.
func (n *node) harmless(r report.Remedy) report.Remedy {
	if !slices.ContainsFunc(r.Commands, func(c report.Command) bool { return takesAway().MatchString(c.Line) }) {
		return r
	}
	out := report.Remedy{Text: r.Text}
	for _, c := range r.Commands {
		see, why := "", ""
		if takesAway().MatchString(c.Line) {
			see, why = n.harm(&c)
		}
		if why == "" {
			out.Commands = append(out.Commands, c)
			continue
		}
		if see != "" {
			out.Commands = append(out.Commands, report.Command{Line: see, Node: c.Node, When: "to see it"})
		}
		if !strings.Contains(out.Text, why) {
			out.Text += "; " + why
		}
	}
	return out
}

// harm says why a command that removes something is not printed, and what is in its place; why is "" for one that is.
func (n *node) harm(c *report.Command) (see, why string) {
	words := report.ShellWords(c.Line)
	tool, v6 := words[0], slices.Contains(words, "-6")
	words = slices.DeleteFunc(words[1:], func(w string) bool { return w == "-4" || w == "-6" })
	does := strings.Join(words[:min(2, len(words))], " ") //nolint:mnd // object and verb
	here := c.Node == n.Name && n.net != nil
	switch {
	case tool == "ip" && does == "route del" && here:
		return n.harmOfRoute(v6, words[2:])
	case tool == "ip" && does == "addr del" && here && len(words) > 4: //nolint:mnd // PREFIX dev DEV
		return n.harmOfAddress(words[2], words[4])
	case tool == "ip" && does == "rule del" && !slices.Contains(words, "l3mdev"),
		tool == "ip" && does == "neigh del",
		tool == "ip" && strings.HasSuffix(c.Line, "route flush cache"),
		tool == "ip" && does == "link del" && here && n.takesFrames(wordAfter(words, "dev")),
		tool == "ip" && does == "link set" && !slices.Contains(words, "xdp"),
		tool == "bridge",
		slices.Contains(words, "-S"), strings.HasPrefix(c.Line, "nft -a list "), // names may be any words
		tool == "tc" && (does == "filter del" || does == "qdisc del"),
		tool == "conntrack" && slices.Contains(words, "--orig-dst"),
		tool == "kubectl" && onePod(words),
		tool == "nft" && ofOneEndpoint().MatchString(c.Line),
		ofOldChains().MatchString(c.Line):
		return "", ""
	}
	return "", "no command is given that removes it, as that would remove more"
}

// takesFrames reports whether an interface is one that takes frames from another (a macvlan of the node's own).
func (n *node) takesFrames(dev string) bool {
	return slices.ContainsFunc(n.net.Takers(), func(t host.Taker) bool { return t.Dev == dev })
}

// onePod reports whether kubectl removes one pod at most, or what the command program has made.
func onePod(words []string) bool {
	if words[0] == "svcproxy" {
		return true
	}
	if at := slices.Index(words, "delete"); at >= 0 && (at == 0 || words[at-1] != "-n") {
		what := slices.Clone(words[at+1:])
		if n := slices.Index(what, "-n"); n >= 0 {
			what = slices.Delete(what, n, min(n+2, len(what))) //nolint:mnd // the flag and its value
		}
		return len(what) == 1 && strings.HasPrefix(what[0], "pod/")
	}
	return !slices.Contains(words, "exec") || !strings.Contains(strings.Join(words, " "), " kube-proxy")
}

// ofOneEndpoint matches [node.keptChain]: the chain of one endpoint is written anew.
var ofOneEndpoint = lazyregexp.New(`^nft 'flush chain ip6? kube-proxy endpoint-[^ ;']+` +
	`(; add rule ip6? kube-proxy endpoint-[^;']+)+'$`)

// ofOldChains matches [removing]: chains of a kube-proxy before 1.24, which no packet gets to.
var ofOldChains = lazyregexp.New(`^printf '%s\\n' '\*[a-z]+'` +
	`( '(:|-X )(KUBE-XLB-[A-Z0-9]+|KUBE-MARK-DROP)( - \[0:0\])?')+ ` +
	`COMMIT \| ip6?tables-[a-z]+-restore --noflush$`)

// harmOfRoute: a route goes where it refuses packets, or is to a single address that is none of a pod of this node; and
// where a person or a script has made it.
func (n *node) harmOfRoute(v6 bool, words []string) (see, why string) {
	r, ok := n.net.Named(v6, words)
	if !ok {
		return "", "no command is given that removes the route, as it is not known who made it"
	}
	a := r.Prefix.Addr()
	switch {
	case r.Local && !slices.Contains(words, "anycast"): // of IPv4 the kernel makes none of that type, of IPv6 as its own
		why = "the kernel keeps the table local itself, for its addresses"
	case r.Agents:
		why = "the kernel, or a program that keeps it, has made it"
	case !r.Refuses && !r.Prefix.IsSingleIP():
		why = "it is the way to more than one address"
	case !r.Refuses && (n.local(a) || r.Dev != "" && !n.net.Bridge(r.Dev) && n.net.PodsOnly(r.Dev, a.Is4())):
		why = "it leads to a pod of this node"
	default:
		return "", ""
	}
	tool := []string{"ip", "route", "show", "to", "exact", r.Prefix.String(), "table", r.Table}
	if v6 {
		tool = slices.Insert(tool, 1, "-6")
	}
	return report.ShellLine(tool...),
		"no command is given that removes the route \"" + strings.Join(words, " ") + "\": " + why
}

// harmOfAddress: with an address that is more than itself goes the route to its subnet, and with the first of a subnet
// go the others of it (promote_secondaries). An address of a Node's, or of the interface of a pod network, is needed by
// all.
func (n *node) harmOfAddress(text, dev string) (see, why string) {
	see = report.ShellLine("ip", "addr", "show", "dev", dev)
	p, err := netip.ParsePrefix(text)
	if a, alone := netip.ParseAddr(text); alone == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	network := n.cluster.podNets.of(p.Addr())
	switch {
	case err != nil:
		why = "whose it is, is not known"
	case !p.IsSingleIP():
		why = fmt.Sprintf("the route to %s goes with it", p.Masked())
	case n.cluster.ofNode(p.Addr()) != "":
		why = "it is that of a Node"
	case n.net.TunnelText(dev) != "" || n.net.BridgeOfPods(dev) ||
		slices.ContainsFunc(network, func(x podNetwork) bool {
			first := x.network.Masked().Addr()
			return p.Addr() == first || p.Addr() == first.Next()
		}):
		why = "it is that of the node in the pod network"
	default:
		return "", ""
	}
	return see, "no command is given that takes " + text + " from " + dev + ": " + why
}
