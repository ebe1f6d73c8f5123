// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// modeOptions are the flags of the command mode.
type modeOptions struct {
	nodes  nodeFlags
	helper helperFlags
	output outputFlags
}

func newModeCommand(env *environment) *cobra.Command {
	o := &modeOptions{}
	cmd := &cobra.Command{
		Use:        "mode [NODE…]",
		SuggestFor: []string{"modes", "node", "nodes"},
		Short:      "Show which proxy mode each node really runs, and whether kube-proxy is healthy",
		Long: `Show, for each node,

- the mode in which its kernel serves Services: iptables (with the nft or the
  legacy backend), nftables or ipvs;
- the mode that kube-proxy is configured for, and the mode that it reports;
- kube-proxy's version, when it last wrote its rules, which changes it has not
  written yet, and how often writing failed (by IP family, where kube-proxy tells
  them apart);
- whether kube-proxy is healthy, and whether the node is draining;
- rules of another mode that are still live;
- another program that serves Services in place of kube-proxy (Cilium,
  kube-router, Antrea Proxy, OVN-Kubernetes, Calico's eBPF dataplane).

Nodes are given as arguments or with --node. Without either, all nodes of a
snapshot are read, or the first ` + fmt.Sprint(run.FewNodes) + ` nodes of a cluster; --all-nodes reads all.

-o name prints node/NODE for each node that has a problem or could not be
inspected. The exit code is 0 if no node has a problem, 4 if there are warnings,
1 if kube-proxy's rules are missing altogether, and 3 if a node could not be
inspected or kube-proxy does not serve its Services.`,
		Example: `  # Every node
  kubectl svcproxy mode --all-nodes

  # Only the modes, for a script
  kubectl svcproxy mode --all-nodes -o jsonpath='{range .nodes[*]}{.node} {.mode.actual}{"\n"}{end}'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     env.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return mode(cmd.Context(), env, c)
		},
	}
	o.nodes.add(cmd, env)
	o.helper.add(cmd, env)
	o.output.add(cmd, report.KindMode, "the nodes that have a problem")
	return cmd
}

// modeConfig says of which nodes to say the mode.
type modeConfig struct {
	session  run.Config
	podsOnly bool // print the helper pods, and make none
	printer  *print.Printer
	again    []string // the flags that name the same data
}

// config completes and validates the options. args are nodes.
func (o *modeOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c modeConfig, err error) {
	o.nodes.nodes = append(o.nodes.nodes, args...)
	if c.printer, err = o.output.printer(report.KindMode); err != nil {
		return c, err
	}
	selection, err := o.nodes.selection(flags, &o.helper)
	if err != nil {
		return c, err
	}
	c.session = o.helper.session(env, &o.nodes, selection, "")
	c.podsOnly, c.again = o.helper.podsOnly(), o.nodes.again(env, &o.helper)
	return c, nil
}

// mode reads the nodes and prints their modes.
func mode(ctx context.Context, env *environment, c modeConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, nodes, err := openNodes(ctx, c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	if c.podsOnly {
		return printPods(env, s, nodes)
	}
	s.NoteNodes(nodes, c.printer.ForPeople(), "are the first")
	if err := s.ReadPods(ctx, cluster.Pods{Nodes: nodes}); err != nil {
		return err
	}
	reports, err := s.Judge(ctx, run.Task{Nodes: nodes, Request: func(string) run.Request {
		return run.Request{NodeAlone: true, Services: []types.NamespacedName{}}
	}})
	if err != nil {
		return err
	}
	r := s.Combine(report.KindMode, nil, reports)
	v := print.View{Now: s.Now(), Next: c.next(reports)}
	r.Source, v.Age = env.source(s, r.Nodes)
	return conclude(env, c.printer, r, v)
}

// next names the command that goes on from what is wrong.
func (c *modeConfig) next(reports []report.NodeReport) report.Remedy {
	for i := range reports {
		if r := &reports[i]; r.Error == "" && r.Verdict != report.Match {
			return next("whether Services are affected", slices.Concat([]string{"verify", "-A", "--node", r.Node}, c.again)...)
		}
	}
	return report.Remedy{}
}
