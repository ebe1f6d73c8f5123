// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"context"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// resolveOptions are those of the command resolve.
type resolveOptions struct {
	*shared
	subject
	printOptions
	targetOptions
}

func newResolveCommand(s *shared) *cobra.Command {
	o := &resolveOptions{shared: s, targetOptions: targetOptions{helper: helperOptions{none: true}}}
	cmd := &cobra.Command{
		Use:   "resolve SERVICE[:PORT]",
		Short: "Say what the API holds of a Service: names, addresses, endpoints, and why each is in or out",
		Long: `Say what the API holds of a Service, without a look at any node's rules: its DNS name and what DNS answers, its policies and
addresses, and every endpoint with its pod, node and conditions, and why connections are sent to it or not.

With --node it is that node's view: traffic policy Local and topology hints choose among the endpoints there.

SERVICE and PORT are those of kubectl svcproxy trace. -o name prints service/NAME.`,
		Example: `  # Whose address is this?
  kubectl svcproxy resolve 10.96.21.191 -o name

  # Which endpoints does worker-2 use, and why not the others?
  kubectl svcproxy resolve web -n shop --node worker-2`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     s.completeServices(1),
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
	o.kind = print.KindResolve
	o.printOptions.addFlags(cmd, "the Service")
	o.addSnapshotFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.nodes, "node", nil, "Show which endpoints this node uses")
	f.DurationVar(&o.helper.timeout, "timeout", launch.DefaultTimeout, "How long to wait for the API server")
	_ = cmd.RegisterFlagCompletionFunc("node", s.completeNodes)
	return cmd
}

// Complete fills in what the flags leave open.
func (o *resolveOptions) Complete(args []string) error {
	if len(args) != 1 {
		return usagef("resolve needs one Service: %s resolve SERVICE (see %s resolve --help)", name, name)
	}
	return o.fill(o.shared, &o.printOptions, args[0])
}

// Validate checks what the flags say together.
func (o *resolveOptions) Validate() error {
	if len(o.nodes) > 1 {
		return usagef("resolve shows the view of one node: give one --node")
	}
	return o.validate()
}

// Run resolves and prints.
func (o *resolveOptions) Run(ctx context.Context) error {
	return o.run(ctx, o.shared, o.ns, o.resolve)
}

func (o *resolveOptions) resolve(ctx context.Context, sc *scene) error {
	if err := sc.readObjects(ctx, o.what()); err != nil {
		return err
	}
	target, err := cluster.Find(sc.objects, o.ns, o.ref)
	if err != nil {
		return usagef("%w", err)
	}
	in := expect.Inputs{Services: sc.objects.Services, Slices: sc.objects.EndpointSlices, PodNames: podNames(sc.objects), Config: kubeproxy.DefaultConfig()}
	if len(o.nodes) == 1 {
		if err := o.viewOf(ctx, &in, sc); err != nil {
			return err
		}
	}
	r := cluster.Resolve(sc.objects, &target, in)
	view := print.View{Style: print.StyleOf(o.Out, o.getenv), Namespace: target.Service.Namespace}
	sc.progress.done()
	if err := o.printer.Resolve(o.Out, r, view); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// viewOf makes the inputs those of a node: it need not have been inspected, its Node object will do.
func (o *resolveOptions) viewOf(ctx context.Context, in *expect.Inputs, sc *scene) error {
	node := o.nodes[0]
	var known []string
	for _, n := range sc.objects.Nodes {
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
	inspected := sc.nodes.Known(sc.objects)
	if in.Node == nil && !slices.Contains(inspected, node) {
		known = append(known, inspected...)
		slices.Sort(known)
		return usagef("there is no node %q: there is %s", node, shorten(slices.Compact(known)))
	}
	in.NodeName = node
	// The configuration's feature gates decide on topology; a broken one is for trace to complain about.
	for _, cm := range sc.objects.ConfigMaps {
		if cfg, err := kubeproxy.ParseConfigMap(cm); err == nil {
			in.Config = cfg
		}
	}
	if sc.live || !slices.Contains(inspected, node) {
		return nil
	}
	files, err := sc.nodes.Inspect(ctx, node)
	if err != nil {
		return err
	}
	data, ok, err := files.File("configz.json")
	if err != nil || !ok {
		return err
	}
	if cfg, err := kubeproxy.ParseConfigz(data); err == nil {
		in.Config = cfg
	}
	return nil
}

// podNames names the pods by their addresses.
func podNames(objects *snapshot.Cluster) map[netip.Addr]string {
	out := make(map[netip.Addr]string, len(objects.Pods))
	for _, p := range objects.Pods {
		if p.Spec.HostNetwork {
			continue
		}
		for _, a := range podIPs(p) {
			out[a] = p.Namespace + "/" + p.Name
		}
	}
	return out
}
