// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// resolveOptions are the flags of the command resolve, which has few of those that its groups hold.
type resolveOptions struct {
	nodes  nodeFlags   // --snapshot, --node
	helper helperFlags // --timeout
	output outputFlags
}

func newResolveCommand(env *environment) *cobra.Command {
	o := &resolveOptions{}
	cmd := &cobra.Command{
		Use:        "resolve SERVICE[:PORT]",
		SuggestFor: []string{"get", "describe", "find", "lookup", "svc", "service", "show", "endpoints", "ep"},
		Short:      "Show what the API says about a Service: names, addresses, and which endpoints are used and why",
		Long: `Show what the API says about a Service, without reading the rules of any node:
its DNS name and what DNS answers, its policies and addresses, and every endpoint
with its pod, node and conditions, and the reason why connections are sent to it
or not.

With --node, show the view of that node: traffic policy Local and topology hints
select among the endpoints there.

SERVICE and PORT have the same forms as for "kubectl svcproxy trace". -o name
prints service/NAME.`,
		Example: `  # Whose address is this?
  kubectl svcproxy resolve 10.96.21.191 -o name

  # Which endpoints does worker-2 use, and why not the others?
  kubectl svcproxy resolve web -n shop --node worker-2`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     env.completeServices(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return resolve(cmd.Context(), env, c)
		},
	}
	o.nodes.addSnapshot(cmd)
	o.output.add(cmd, print.KindResolve, "the Service")
	f := cmd.Flags()
	f.StringSliceVar(&o.nodes.nodes, "node", nil, "Show which endpoints this node uses (one node)")
	f.DurationVar(&o.helper.timeout, "timeout", launch.DefaultTimeout, "How long to wait for the API server")
	_ = cmd.RegisterFlagCompletionFunc("node", env.completeNodes)
	return cmd
}

// resolveConfig is what to resolve.
type resolveConfig struct {
	session   run.Config
	service   cluster.Reference
	namespace string
	node      string // whose view it is; "": the whole cluster's
	printer   *print.Printer
}

// config completes and validates the options.
func (o *resolveOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c resolveConfig, err error) {
	arg, err := oneService("resolve", args, "")
	if err != nil {
		return c, err
	}
	if c.service, c.namespace, err = env.service(arg); err != nil {
		return c, err
	}
	if c.printer, err = o.output.printer(print.KindResolve); err != nil {
		return c, err
	}
	if len(o.nodes.nodes) > 1 {
		return c, run.Usagef("resolve shows the view of one node: give one --node")
	}
	selection, err := o.nodes.selection(flags, &o.helper)
	if err != nil {
		return c, err
	}
	if len(o.nodes.nodes) == 1 {
		c.node = cluster.NodeName(o.nodes.nodes[0])
	}
	c.session = o.helper.session(env, &o.nodes, selection, c.namespace)
	c.session.NoNodes = true
	return c, nil
}

// resolve resolves and prints.
func resolve(ctx context.Context, env *environment, c resolveConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := run.Open(c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.ReadObjects(ctx); err != nil {
		return err
	}
	target, err := s.FindService(ctx, c.namespace, c.service)
	if err != nil {
		return err
	}
	in := expect.Inputs{
		Services: s.Objects.Services, Slices: s.Objects.EndpointSlices, PodNames: cluster.PodNames(s.Objects),
		Config: kubeproxy.DefaultConfig(),
	}
	if c.node != "" {
		if err := viewOf(ctx, &in, s, c.node); err != nil {
			return err
		}
	}
	r := resolveReport(s.Objects, cluster.Resolve(&target, in))
	view := print.View{Style: env.style(c.printer), Namespace: target.Service.Namespace}
	s.Progress.Done()
	if err := c.printer.Resolve(env.out, r, view); err != nil {
		return run.Usagef("%w", err)
	}
	return nil
}

// viewOf makes the inputs those of a node: it need not have been inspected, its Node object will do.
func viewOf(ctx context.Context, in *expect.Inputs, s *run.Session, node string) error {
	var known []string
	for _, n := range s.Objects.Nodes {
		known = append(known, n.Name)
		if n.Name == node {
			in.Node = n
			for i := range n.Status.Addresses {
				if a, err := netip.ParseAddr(n.Status.Addresses[i].Address); err == nil {
					in.Addresses = append(in.Addresses, a.Unmap())
				}
			}
		}
	}
	inspected := s.KnownNodes()
	if in.Node == nil && !slices.Contains(inspected, node) {
		known = append(known, inspected...)
		slices.Sort(known)
		return run.Usagef("there is no node %q: there is %s%s", node, run.Shorten(slices.Compact(known)),
			cluster.DidYouMean(node, known))
	}
	in.NodeName = node
	// The configuration's feature gates decide on topology; a broken one is for trace to complain about.
	var pod *corev1.Pod
	for _, p := range s.Objects.Pods {
		if p.Spec.NodeName == node && kubeproxy.RunsIn(p) {
			pod = p
		}
	}
	if cfg, _, err := kubeproxy.ConfigOf(pod, kubeproxy.StoredConfigs(s.Objects.ConfigMaps)); err == nil && cfg != nil {
		in.Config = *cfg
	}
	if s.Live() || !slices.Contains(inspected, node) {
		return nil
	}
	data, ok, err := s.ReadFile(ctx, node, "configz.json")
	if err != nil || !ok {
		return err
	}
	if cfg, err := kubeproxy.ParseConfigz(data); err == nil {
		in.Config = cfg
	}
	return nil
}
