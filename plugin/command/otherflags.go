// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
)

// otherFlags are flags that people know from other tools, or have other words for, with what they are here. needs is a
// flag without which a command has no such thing; "": every command has it. The first line that fits counts.
var otherFlags = []struct{ flags, needs, meant string }{
	{"all", "all-namespaces", "did you mean --all-namespaces or --all-nodes?"},
	{"all", "all-nodes", "--all-nodes reads all nodes, and verify -A verifies all Services"},
	{"A all all-namespaces", "", "verify -A verifies all Services"},
	{"N on node-name nodename on-node worker", "node", "did you mean --node?"},
	{"every-node each-node everywhere all-node", "all-nodes", "did you mean --all-nodes?"},
	{"label labels node-selector nodeselector node-label", "selector", "-l or --selector selects nodes by their labels"},
	{"ns nspace name-space namespaces", "", "-n or --namespace names the namespace"},
	{"ctx kube-context kubecontext", "", "--context names the context of the kubeconfig"},
	{"config kube-config conf", "", "--kubeconfig names the kubeconfig"},
	{"p port ports", "", "the port is part of the Service, as in SERVICE:PORT"},
	{
		"protocol proto tcp udp sctp t u", "",
		"the protocol is part of the Service, as in SERVICE:53/udp",
	},
	{
		"to dest destination target", "from",
		"the Service is an argument without a flag, and --from says where the packet comes from",
	},
	{
		"service svc dst d to dest destination target name host hostname ip address addr url vip clusterip cluster-ip", "",
		"the Service is an argument without a flag",
	},
	{
		"src s source client client-ip clientip client-pod source-ip src-ip sip pod from-pod from-node from-ip origin sender",
		"from", "--from says where the packet comes from",
	},
	{
		"4 6 ipv4 ipv6 family ip-family ip-families inet inet6", "",
		"IPv4 and IPv6 are both traced; for one of them, give the Service's address of that family",
	},
	{"e2e end2end endtoend end-2-end e-2-e ete both-ends", "end-to-end", "did you mean --end-to-end?"},
	{
		"e2e end2end endtoend end-2-end e-2-e ete both-ends", "",
		"trace --end-to-end follows packets from the client's pod to the endpoint's",
	},
	{"diff compare-with versus vs against", "compare", "--compare compares two nodes"},
	{"count c n-probes requests connections tries repeat", "probes", "--live --probes says how many connections are made"},
	{"real probe curl connect dial", "live", "--live makes real connections"},
	{"data body send", "payload", "--live --payload says what is sent"},
	{"wide long l full", "template", "-o wide shows everything"},
	{"format fmt out output-format", "template", "-o says the output format, as in -o json"},
	{
		"width columns cols no-trunc no-truncate", "template",
		"tables are as wide as the terminal, and -o wide cuts nothing",
	},
	{"json", "template", "-o json prints JSON"},
	{"yaml yml", "template", "-o yaml prints YAML"},
	{"html", "template", "-o html prints a page"},
	{"markdown md", "template", "-o markdown prints Markdown"},
	{"mermaid mmd graph dot picture svg", "template", "-o html and mermaid draw pictures"},
	{"jsonpath go-template", "template", "-o jsonpath=… and -o go-template=… take a template"},
	{"q quiet silent names", "template", "-o name prints names alone"},
	{"no-color no-colour nocolor plain colour", "color", "--color never"},
	{"no-header noheaders headers", "no-headers", "did you mean --no-headers?"},
	{"no-headers", "template", "this command prints no table; -o name prints names alone"},
	{"snap dump in input offline archive dir", "snapshot", "--snapshot reads a snapshot"},
	{"w watch interval every follow", "", "to repeat it: watch kubectl svcproxy …"},
	{"f filename file", "", "a snapshot is read by --snapshot"},
	{"file f filename out", "output", "-o says which file is written"},
	{"client short", "", "the version is that of the plugin, and no server is asked"},
	{"fix repair apply heal", "", "the output has the commands of the remedy"},
	{"version V", "", "the version is printed by kubectl svcproxy version"},
	{"verbose debug verbosity loglevel log-level", "", "-v 6 logs the requests to the API server"},
	{"for duration lifetime", "ttl", "--ttl says how long a path stays"},
	{"duration", "probes", "--live --probes says how many connections are made"},
	{"wait deadline", "timeout", "--timeout says how long to wait"},
}

// otherFlag says what a flag that a command does not have is here; "" where that is not known.
func otherFlag(c *cobra.Command, flag string) string {
	for _, o := range otherFlags {
		if !strings.Contains(" "+o.flags+" ", " "+flag+" ") {
			continue
		}
		if needed := c.Flags().Lookup(o.needs); o.needs == "" || needed != nil && !needed.Hidden {
			return o.meant
		}
	}
	return ""
}

// usedFlags are those of kubectl that people give to this program.
var usedFlags = []string{"namespace", "context", "kubeconfig", "cluster", "user", "server"}

// meantFlag says which flag of a command may have been meant, where there is none of a name. One that only kubectl has
// is meant by nearly its own name alone: most of them are about credentials.
func meantFlag(c *cobra.Command, flag string) string {
	if len(flag) < 2 {
		return ""
	}
	var ours, kubectls []string
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			ours = append(ours, f.Name)
		}
	})
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		kubectls = append(kubectls, f.Name)
	})
	meant := cluster.DidYouMean(flag, append(ours, usedFlags...))
	if meant == "" && len(flag) > 5 {
		meant = cluster.DidYouMean(flag, kubectls)
	}
	words := strings.Fields(meant)
	for i, word := range words {
		if name := strings.TrimSuffix(word, "?"); c.Flags().Lookup(name) != nil {
			words[i] = "--" + word
		}
	}
	if words == nil {
		return ""
	}
	return strings.Join(words, " ")
}
