// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// modeOptions are those of the command mode.
type modeOptions struct {
	*shared
	targetOptions
	printOptions
}

func newModeCommand(s *shared) *cobra.Command {
	o := &modeOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "mode [NODE…]",
		Short: "Say which proxy each node really runs, and how it fares",
		Long: `Say of each node in which mode its kernel serves Services (iptables, with the nft or the legacy backend, nftables, ipvs), which one
kube-proxy is configured for and says that it runs, its version, when it last wrote its rules, what it has not written yet
and what it failed to, whether it is healthy, which other mode has left live rules behind, and whether another program
(Cilium, kube-router, Antrea Proxy, OVN-Kubernetes, Calico's eBPF dataplane) serves Services in its place.

Nodes are named as arguments or by --node; without any, all are looked at: at most ` + fmt.Sprint(fewNodes) + ` of a cluster unless --all-nodes is given.

-o name prints node/NODE for each node that has something wrong with it or could not be inspected. Exit codes: 0 nothing
is, 4 something is (warnings), 1 rules are missing altogether, 3 a node could not be inspected, or kube-proxy does not
handle its Services.`,
		Example: `  # Every node
  kubectl svcproxy mode --all-nodes

  # The modes alone, for a script
  kubectl svcproxy mode --all-nodes -o jsonpath='{range .nodes[*]}{.node} {.mode.actual}{"\n"}{end}'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     s.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.targetOptions.addFlags(cmd, s)
	o.kind = report.KindMode
	o.printOptions.addFlags(cmd, "the nodes with which something is wrong")
	return cmd
}

// Complete fills in what the flags leave open.
func (o *modeOptions) Complete(args []string) error {
	o.nodes = append(o.nodes, args...)
	return o.complete()
}

// Validate checks what the flags say together.
func (o *modeOptions) Validate() error { return o.validate() }

// Run looks and prints.
func (o *modeOptions) Run(ctx context.Context) error {
	return o.run(ctx, o.shared, "", o.mode)
}

func (o *modeOptions) mode(ctx context.Context, sc *scene) error {
	if err := sc.readObjects(ctx, o.what()); err != nil {
		return err
	}
	nodes, err := o.choose(sc, func(*snapshot.Cluster) []string { return nil })
	if err != nil {
		return err
	}
	if done, err := o.helper.dry(o.shared, sc, nodes); done || err != nil {
		return err
	}
	o.noteNodes(sc, nodes, o.printer.ForPeople(), "are the first")
	if err := sc.readPods(ctx, cluster.Pods{Nodes: nodes}); err != nil {
		return err
	}
	reports, err := sc.judge(ctx, nodes, func(string) diagnose.Request {
		return diagnose.Request{NodeAlone: true, Services: []types.NamespacedName{}}
	})
	if err != nil {
		return err
	}
	return conclude(o.shared, o.printer, report.Combine(report.KindMode, nil, reports), print.View{Now: sc.now(), Next: o.next(reports)})
}

// next leads on from what is wrong.
func (o *modeOptions) next(reports []report.NodeReport) string {
	for i := range reports {
		if r := &reports[i]; r.Error == "" && r.Verdict != report.Match {
			return fmt.Sprintf("whether Services suffer from it: %s verify -A --node %s%s", name, r.Node, o.again(o.shared))
		}
	}
	return ""
}
