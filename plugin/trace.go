// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// traceOptions are those of the command trace.
type traceOptions struct {
	*shared
	subject
	targetOptions
	printOptions
	probeOptions
	from string
}

func newTraceCommand(s *shared) *cobra.Command {
	o := &traceOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "trace SERVICE[:PORT]",
		Short: "Trace packets to a Service: where they should go, where they do go, and why the two differ",
		Long: `Trace packets to every frontend of a Service (cluster IP, NodePort, external IP, load-balancer IP), from every origin that
matters (a pod, the node itself, outside): where kube-proxy should have them sent, where the node's rules send them, and
what is wrong where the two differ.

SERVICE is NAME, svc/NAME or service/NAME, in the namespace of -n, or an address that belongs to a Service: its cluster IP,
external IP, load-balancer IP, or NODEIP:NODEPORT. PORT is a number or a name, with /tcp, /udp or /sctp where that matters;
without it every port is traced.

-o name prints node/NODE for each node on which the path is not right. Exit codes: see kubectl svcproxy --help.`,
		Example: `  # Every frontend of web, on worker-2
  kubectl svcproxy trace web -n shop --node worker-2

  # One port, from one pod, on its node, rule by rule
  kubectl svcproxy trace web:http -n shop --from pod/client -o wide

  # Whose address is this, and what happens to packets to it?
  kubectl svcproxy trace 10.96.21.191:80

  # From a snapshot, without a cluster
  kubectl svcproxy trace web -n shop --snapshot dump.tar.gz

  # A page for the post-mortem, with pictures
  kubectl svcproxy trace web -n shop -o html > web.html

  # For a script: the exit code tells, the codes say why
  kubectl svcproxy trace web -n shop --all-nodes -o jsonpath='{.nodes[*].paths[*].findings[*].code}'`,
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
	o.targetOptions.addFlags(cmd, s)
	o.kind = report.KindTrace
	o.printOptions.addFlags(cmd, "the nodes that are not right")
	o.probeOptions.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.from, "from", "", fromHelp)
	_ = cmd.RegisterFlagCompletionFunc("from", s.completeFrom)
	return cmd
}

// Complete fills in what the flags leave open.
func (o *traceOptions) Complete(args []string) error {
	switch len(args) {
	case 0:
		return usagef("trace needs a Service: %s trace SERVICE[:PORT] (see %s trace --help)", name, name)
	case 1:
	default:
		return usagef("trace takes one Service, and %d were given (%s): for several use %s verify", len(args), shorten(args), name)
	}
	return o.fill(o.shared, &o.printOptions, args[0])
}

// Validate checks what the flags say together.
func (o *traceOptions) Validate() error {
	if err := o.probeOptions.validate(o.flags, o.snapshot != ""); err != nil {
		return err
	}
	return o.targetOptions.validate()
}

// Run traces and prints.
func (o *traceOptions) Run(ctx context.Context) error {
	return o.run(ctx, o.shared, o.ns, o.trace)
}

func (o *traceOptions) trace(ctx context.Context, sc *scene) error {
	if nodes, ok, err := o.certain(sc); err != nil {
		return err
	} else if ok && len(nodes) == 1 {
		sc.readAhead(ctx, nodes) // while the cluster's objects are read
	}
	if err := sc.readObjects(ctx, o.what()); err != nil {
		return err
	}
	target, err := cluster.Find(sc.objects, o.ns, o.ref)
	if err != nil {
		return usagef("%w", err)
	}
	from, err := findSender(ctx, sc, o.from, o.ns)
	if err != nil {
		return err
	}
	if err := from.reaches(o.from, target.Service); err != nil {
		return err
	}
	nodes, err := o.pin(sc, &target, from)
	if err != nil {
		return err
	}
	if done, err := o.helper.dry(o.shared, sc, nodes); done || err != nil {
		return err
	}
	o.notes(sc, from, nodes)
	if o.live {
		sc.probes = o.probes
	}
	if err := sc.readPods(ctx, cluster.Pods{Nodes: nodes}); err != nil {
		return err
	}
	reports, err := sc.judge(ctx, nodes, func(node string) diagnose.Request {
		return diagnose.Request{
			Services: []types.NamespacedName{target.Name()},
			Select:   func(f expect.Frontend) bool { return target.Selects(&f, node) && from.speaks(familyOf(f.Address)) },
			From:     from.on(node), Steps: o.printer.Steps(), Matching: true,
		}
	})
	if err != nil {
		return err
	}
	for i := range reports {
		notServed(&reports[i], &target)
	}
	r := report.Combine(report.KindTrace, cluster.Info(sc.objects, target.Service), reports)
	return conclude(o.shared, o.printer, r, print.View{Now: sc.now(), Namespace: target.Service.Namespace, Next: o.next(r, &target, len(sc.nodes.Known(sc.objects)))})
}

// pin settles the nodes to look at: the address of a NodePort and a named pod are each on one node.
func (o *traceOptions) pin(sc *scene, target *cluster.Target, from *sender) ([]string, error) {
	want, what := target.Node, o.ref.Input
	named := strings.HasPrefix(o.from, "pod/")
	if from != nil && (named || want == "" && from.node != "") {
		want, what = from.node, "--from "+o.from
	}
	if want != "" && !o.chosen() {
		if known := sc.nodes.Known(sc.objects); len(known) > 0 && !slices.Contains(known, want) {
			return nil, usagef("%s is on node %s, which is not in the %s %s", what, want, o.place(), shorten(known))
		}
		return []string{want}, nil
	}
	nodes, err := o.choose(sc, nodesThatMatter([]cluster.Target{*target}))
	if err == nil && named && !slices.Equal(nodes, []string{want}) {
		return nil, usagef("%s runs on node %s, where its packets start: give --node %s", what, want, want)
	}
	return nodes, err
}

// notes says what was decided for the person and is not to be seen in the report.
func (o *traceOptions) notes(sc *scene, from *sender, nodes []string) {
	if from != nil && from.hostNet {
		sc.progress.note("%s uses the host network: its packets start on the node itself", o.from)
	}
	o.noteNodes(sc, nodes, o.printer.ForPeople(), "run its endpoints")
}

// notServed answers for an address that belongs to a Service in the API, and that kube-proxy has nothing to do for on a node.
func notServed(n *report.NodeReport, t *cluster.Target) {
	if n.Error != "" || len(n.Paths) > 0 {
		return
	}
	message := fmt.Sprintf("kube-proxy on %s serves no frontend of %s", n.Node, t.Name())
	f := report.Frontend{Kind: string(t.Service.Spec.Type)}
	if t.Address.IsValid() {
		f = report.Frontend{Kind: "Address", Address: t.Address.String(), Port: t.NodePort}
		message = fmt.Sprintf("kube-proxy on %s does nothing for packets to %s (a load balancer with ipMode Proxy, or an address that nodePortAddresses leaves out)", n.Node, t.Address)
		if t.NodePort != 0 {
			message = fmt.Sprintf("kube-proxy on %s does not serve NodePort %s (nodePortAddresses, or the proxy mode)", n.Node, net.JoinHostPort(t.Address.String(), strconv.Itoa(int(t.NodePort))))
		}
	}
	n.Paths = []report.Path{{
		Frontend: f, Verdict: report.ByDesign, Expected: report.Expected{Action: string(expect.None)},
		Findings: []report.Finding{{Code: expect.ReasonNotForKubeProxy, Severity: report.Info, Message: message}},
	}}
	report.Complete(&n.Paths[0])
	n.Summary.Paths++
	n.Summary.ByDesign++
}

// next says what to do with the result.
func (o *traceOptions) next(r *report.Report, t *cluster.Target, all int) string {
	service := t.Service.Name + " -n " + t.Service.Namespace
	switch r.Verdict {
	case report.Match:
		return "the rules are right: look at the pods, at NetworkPolicies and at the network between the nodes"
	case report.ByDesign:
		return "what DNS says, and why each endpoint is in or out: " + name + " resolve " + service + o.again(o.shared)
	case report.Mismatch, report.Warning, report.Unknown:
	}
	if all > len(r.Nodes) {
		return "other nodes: " + name + " verify " + service + o.everywhere() + o.again(o.shared)
	}
	if o.printer.Steps() || r.Summary.Paths == 0 {
		return ""
	}
	return "the packet's way, rule by rule: the same command with -o wide"
}
