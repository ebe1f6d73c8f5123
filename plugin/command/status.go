// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// statusOptions are the flags of the command status, which reads what agents have published.
type statusOptions struct {
	selector string
	helper   helperFlags // --timeout
	output   outputFlags
}

func newStatusCommand(env *environment) *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:        "status [SERVICE]",
		SuggestFor: []string{"top", "watch"},
		Short:      "Show what the agents on all nodes found: on which nodes, since when, and what these have in common",
		Long: `Show what the agents of deploy/watch found, by finding and Service: on how many
of the nodes, on which, since when, and what these nodes have in common that the
others do not have (kernel, OS image, zone, labels, age, kube-proxy's version,
mode, configuration, last sync). Each agent publishes one object for its node
(NodeReport). The command lists these objects and the Nodes, and runs nothing on
a node.

With SERVICE, in any form that "trace" accepts, show only what concerns that
Service with all its ports, and the nodes as a whole.

A node counts as not known, and never as right, if it has no object, if its
object is stale, or if its agent could not judge it.

-o name prints node/NODE for each node that is not right, or not known. For exit
codes see "kubectl svcproxy --help".`,
		Example: `  # Is a Service wrong on any node, and since when?
  kubectl svcproxy status

  # On which nodes is this Service wrong, and what do they have in common?
  kubectl svcproxy status web -n shop -o wide

  # The nodes of one pool
  kubectl svcproxy status -l cloud.google.com/gke-nodepool=big`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     env.completeServices(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return showStatus(cmd.Context(), env, c)
		},
	}
	o.output.add(cmd, report.KindStatus, "the nodes that are not right")
	f := cmd.Flags()
	f.StringVarP(&o.selector, "selector", "l", "", "Only the nodes with these labels, as in kubectl get nodes -l")
	f.DurationVar(&o.helper.timeout, "timeout", launch.DefaultTimeout, "How long to wait for the API server")
	return cmd
}

// statusConfig is what to ask for.
type statusConfig struct {
	session   run.Config
	asked     bool // for one Service
	service   cluster.Reference
	namespace string
	selector  string
	printer   *print.Printer
	again     []string // the flags that name the same cluster
}

// config completes and validates the options.
func (o *statusOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c statusConfig, err error) {
	if args = joinKind(args); len(args) > 1 {
		return c, run.Usagef("status takes one Service at most, and %d were given%s", len(args), meantPair(args))
	}
	if len(args) == 1 {
		c.asked = true
		if c.service, c.namespace, err = env.service(args[0]); err != nil {
			return c, err
		}
	}
	if n := *env.kube.Namespace; !c.asked && n != "" {
		env.errOut.Sentence("note: --namespace %s is for a SERVICE: without one, status shows the Services of all namespaces",
			safetext.Line(n, maxError))
	}
	if c.printer, err = o.output.printer(report.KindStatus); err != nil {
		return c, err
	}
	if o.selector == "" && flags.Changed("selector") {
		return c, run.Usagef("--selector is empty: give labels of nodes")
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return c, run.Usagef("--selector %q: %w", o.selector, err)
	}
	if err := o.helper.validate(false, flags); err != nil {
		return c, err
	}
	nodes := nodeFlags{}
	c.session = o.helper.session(env, &nodes, run.Selection{}, c.namespace)
	c.session.NoNodes = true
	c.selector, c.again = o.selector, nodes.again(env, &o.helper)
	return c, nil
}

// showStatus reads what agents have published, and prints it.
func showStatus(ctx context.Context, env *environment, c statusConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := run.Open(c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	var service *corev1.Service
	if c.asked {
		if err := s.ReadObjects(ctx); err != nil {
			return err
		}
		target, err := s.FindService(ctx, c.namespace, c.service)
		if err != nil {
			return err
		}
		service = target.Service
	}
	r, err := s.Status(ctx, c.selector, service)
	if err != nil {
		return err
	}
	r.Source, _ = env.source(s, nil)
	for i := range r.Nodes {
		r.Source.Nodes = append(r.Source.Nodes, r.Nodes[i].Node)
	}
	return concludeStatus(env, &c, r, s.Now())
}

// concludeStatus prints a StatusReport and makes its exit code.
func concludeStatus(env *environment, c *statusConfig, r *report.StatusReport, now time.Time) error {
	if !c.printer.ForPeople() {
		for _, line := range print.StatusNotKnown(r) {
			env.errOut.Sentence("error: %s", safetext.Line(line, maxError))
		}
	}
	v := print.View{Style: env.style(c.printer), Now: now}
	known := codes() // agents may be newer than this plugin, and what they say is as trustworthy as their nodes
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Severity != report.Info && slices.Contains(known, g.Code) {
			v.Explain = name + " explain " + report.ShellWord(g.Code)
			break
		}
	}
	if service, node, ok := print.StatusNext(r); ok {
		v.Next = next("", slices.Concat([]string{
			"trace", nameArgument(service.Name), "-n", service.Namespace, "--node", node,
		}, c.again)...)
	}
	if err := c.printer.Status(env.out, r, v); err != nil {
		return run.Usagef("%w", err)
	}
	return exitOf(r.Verdict)
}
