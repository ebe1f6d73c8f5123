// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// traceOptions are the flags of the command trace.
type traceOptions struct {
	from   string
	ends   endFlags
	nodes  nodeFlags
	helper helperFlags
	probes probeFlags
	output outputFlags
	pair   compareFlags
}

func newTraceCommand(env *environment) *cobra.Command {
	o := &traceOptions{}
	cmd := &cobra.Command{
		Use:        "trace SERVICE[:PORT]",
		SuggestFor: []string{"debug", "diagnose", "ping", "curl", "path", "why"},
		Short:      "Trace packets to a Service: where they should go, where they do go, and why the two differ",
		Long: `Trace packets to every frontend of a Service (cluster IP, NodePort, external IP,
load-balancer IP) from every relevant origin (a pod, the node itself, outside):
where kube-proxy should send them, where the node's rules send them, and what is
wrong if the two differ.

SERVICE is one of

- NAME or svc/NAME in the namespace of -n, NAMESPACE/NAME, or
  service/NAMESPACE/NAME;
- a DNS name (web.shop, web.shop.svc.cluster.local) or a URL;
- an address: a cluster IP, external IP or load-balancer IP, NODE:NODEPORT with
  the node's name or address, or the IP address of an endpoint;
- pod/NAME, deploy/NAME or another workload, for the Service that selects it;
- a chain of kube-proxy (KUBE-SVC-…), for the Service that it belongs to.

PORT is a number or a name, followed by /tcp, /udp or /sctp where that matters.
Without it, every port is traced.

-o name prints node/NODE for each node on which the path is not right. For exit
codes see "kubectl svcproxy --help".`,
		Example: `  # Every frontend of web, on worker-2
  kubectl svcproxy trace web -n shop --node worker-2

  # One port, from one pod, on its node, rule by rule
  kubectl svcproxy trace web:http -n shop --from pod/client -o wide

  # From that pod through both nodes into the endpoints' pods, and back
  kubectl svcproxy trace web:http -n shop --from pod/client --end-to-end

  # Whose address is this, and what happens to packets to it?
  kubectl svcproxy trace 10.96.21.191:80

  # What is different on the node where it fails?
  kubectl svcproxy trace web -n shop --compare worker-1,worker-2

  # From a snapshot, without a cluster
  kubectl svcproxy trace web -n shop --snapshot dump.tar.gz

  # An HTML page for the post-mortem, with pictures
  kubectl svcproxy trace web -n shop -o html > web.html

  # For a script: the codes of all findings (the exit code says whether the path is right)
  kubectl svcproxy trace web -n shop --all-nodes -o jsonpath='{.nodes[*].paths[*].findings[*].code}'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     env.completeServices(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return trace(cmd.Context(), env, c)
		},
	}
	o.add(cmd, env)
	return cmd
}

// add defines the flags.
func (o *traceOptions) add(cmd *cobra.Command, env *environment) {
	o.nodes.add(cmd, env)
	o.helper.add(cmd, env)
	o.output.add(cmd, report.KindTrace, "the nodes that are not right")
	o.probes.add(cmd.Flags())
	o.probes.addPayload(cmd.Flags())
	addFrom(cmd, env, &o.from)
	o.ends.add(cmd)
	o.pair.add(cmd, env)
}

// traceConfig is what to trace.
type traceConfig struct {
	session     run.Config
	podsOnly    bool // print the helper pods, and make none
	service     cluster.Reference
	namespace   string // of the Service, and of pods without one
	from        string
	probes      int    // connections of each frontend and origin; 0: none
	payload     string // sent over each of them
	ends        endFlags
	compare     []string // the two nodes to compare; nil: none are
	printer     *print.Printer
	live, local bool // nodes are read, and not a snapshot; the node is this machine
	// again and everywhere are flags for a next command: those that name the same data, and the one for all nodes.
	again, everywhere []string
}

// config completes and validates the options.
func (o *traceOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c traceConfig, err error) {
	arg, err := oneService("trace", args, verifySeveral)
	if err != nil {
		return c, err
	}
	if c.service, c.namespace, err = env.service(arg); err != nil {
		return c, err
	}
	if c.printer, err = o.output.printer(report.KindTrace); err != nil {
		return c, err
	}
	if c.probes, err = o.probes.count(flags, o.nodes.snapshot != ""); err != nil {
		return c, err
	}
	if c.payload, err = o.probes.bytes(flags); err != nil {
		return c, err
	}
	selection, err := o.nodes.selection(flags, &o.helper)
	if err != nil {
		return c, err
	}
	c.session = o.helper.session(env, &o.nodes, selection, c.namespace)
	c.podsOnly, c.from, c.ends = o.helper.podsOnly(), o.from, o.ends
	if err := o.ends.check(o.from, o.helper.local); err != nil {
		return c, err
	}
	c.again, c.everywhere = o.nodes.again(env, &o.helper), o.nodes.everywhere()
	c.live, c.local = o.nodes.snapshot == "", o.helper.local
	err = o.pair.config(flags, o, &c)
	return c, err
}

// trace traces and prints.
func trace(ctx context.Context, env *environment, c traceConfig) error {
	s, err := run.Open(c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	r, v, err := traced(ctx, env, &c, s)
	if err != nil || r == nil {
		return err
	}
	return conclude(env, c.printer, r, v)
}

// traced traces, and returns what is to be printed; no report where the helper pods alone were asked for, and printed.
func traced(ctx context.Context, env *environment, c *traceConfig, s *run.Session) (
	r *report.Report, v print.View, err error,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if nodes, ok, err := s.CertainNodes(); err != nil {
		return nil, v, err
	} else if ok && len(nodes) == 1 && !c.ends.endToEnd {
		s.ReadAhead(ctx, nodes) // while the cluster's objects are read
	}
	if err := s.ReadObjects(ctx); err != nil {
		return nil, v, err
	}
	target, err := s.FindService(ctx, c.namespace, c.service)
	if err != nil {
		return nil, v, err
	}
	from, err := s.FindOrigin(ctx, c.from, c.namespace)
	if err != nil {
		return nil, v, err
	}
	if err := from.CheckFamilies(c.from, target.Service); err != nil {
		return nil, v, err
	}
	nodes, err := c.chooseNodes(s, &target, from)
	if err != nil {
		return nil, v, err
	}
	s.NoteOrigin(from, c.from)
	if c.podsOnly {
		return nil, v, printPods(env, s, nodes)
	}
	if from != nil && from.HostNetwork {
		s.Progress.Note("%s uses the host network: its packets start on the node itself", c.from)
	}
	if !c.ends.endToEnd {
		s.NoteNodes(nodes, c.printer.ForPeople(), "run its endpoints")
	}
	if err := s.ReadPods(ctx, cluster.Pods{Nodes: nodes}); err != nil {
		return nil, v, err
	}
	request := func(node string) run.Request {
		return run.Request{
			Services: []types.NamespacedName{target.Name()},
			Select:   func(f expect.Frontend) bool { return target.Selects(&f, node) && from.Reaches(f.Address) },
			From:     from.On(node), Steps: c.printer.Steps(), Matching: true,
		}
	}
	if c.compare != nil {
		return nil, v, c.compareNodes(ctx, env, s, &target, request)
	}
	var reports []report.NodeReport
	if c.ends.endToEnd {
		reports, err = c.endToEnd(ctx, s, from, &target, nodes, request)
	} else {
		reports, err = s.Judge(ctx, run.Task{Nodes: nodes, Probes: c.probes, Payload: c.payload, Request: request})
	}
	if err != nil {
		return nil, v, err
	}
	for i := range reports {
		notServed(&reports[i], &target)
	}
	r = s.Combine(report.KindTrace, run.ServiceInfo(s.Objects, target.Service), reports)
	v = print.View{
		Now: s.Now(), Namespace: target.Service.Namespace, Next: c.next(r, &target, len(s.KnownNodes())),
		Keep: c.keep(r),
	}
	r.Source, v.Age = env.source(s, r.Nodes)
	return r, v, nil
}

// chooseNodes returns the nodes to read: the address of a NodePort and a named pod are each on one node.
func (c *traceConfig) chooseNodes(s *run.Session, target *cluster.Target, from *run.Origin) ([]string, error) {
	want, what := target.Node, c.service.Input
	named := from.IsNamed()
	if from != nil && (named || want == "" && from.Node != "") {
		want, what = from.Node, "--from "+c.from
	}
	if want != "" && !c.session.Nodes.Chosen() {
		if known := s.KnownNodes(); len(known) > 0 && !slices.Contains(known, want) {
			return nil, run.Usagef("%s is on node %s, which is not in the %s %s", what, want, s.Place(), run.Shorten(known))
		}
		return []string{want}, nil
	}
	nodes, err := s.ChooseNodes(run.NodesOf([]cluster.Target{*target}))
	if err == nil && named && !slices.Equal(nodes, []string{want}) {
		return nil, run.Usagef("%s is on node %s, where its packets start: give --node %s", what, want, want)
	}
	return nodes, err
}

// notServed answers for an address that belongs to a Service in the API, and that kube-proxy has nothing to do for on a
// node.
func notServed(n *report.NodeReport, t *cluster.Target) {
	if n.Error != "" || len(n.Paths) > 0 {
		return
	}
	message := fmt.Sprintf("kube-proxy on %s serves no frontend of %s", n.Node, t.Name())
	f := report.Frontend{Kind: string(t.Service.Spec.Type)}
	if t.Address.IsValid() {
		f = report.Frontend{Kind: "Address", Address: t.Address.String(), Port: t.NodePort}
		message = fmt.Sprintf("kube-proxy on %s does nothing for packets to %s (a load balancer with ipMode Proxy, "+
			"or an address that nodePortAddresses leaves out)", n.Node, t.Address)
	}
	if t.NodePort != 0 {
		nodePort := strconv.Itoa(int(t.NodePort))
		if t.Address.IsValid() {
			nodePort = net.JoinHostPort(t.Address.String(), nodePort)
		}
		f.Kind, f.Port = "Address", t.NodePort
		message = fmt.Sprintf("kube-proxy on %s does not serve NodePort %s (nodePortAddresses, or the proxy mode)",
			n.Node, nodePort)
	}
	n.Paths = []report.Path{{
		Frontend: f, Verdict: report.ByDesign, Expected: report.Expected{Action: string(expect.None)},
		Findings: []report.Finding{{Code: expect.ReasonNotForKubeProxy, Severity: report.Info, Message: message}},
	}}
	report.Complete(&n.Paths[0])
	n.Summary.Paths++
	n.Summary.ByDesign++
}

// next says what to do with the result. all is how many nodes can be read.
func (c *traceConfig) next(r *report.Report, t *cluster.Target, all int) report.Remedy {
	service := []string{nameArgument(t.Service.Name), "-n", t.Service.Namespace}
	switch r.Verdict {
	case report.Match:
		return c.afterMatch(r, service)
	case report.ByDesign:
		return next("what DNS answers, and why each endpoint is used or not",
			slices.Concat([]string{"resolve"}, service, c.again)...)
	case report.Mismatch, report.Warning, report.Unknown:
	}
	if all > len(r.Nodes) && !c.ends.endToEnd {
		return next("other nodes", slices.Concat([]string{"verify"}, service, c.everywhere, c.again)...)
	}
	if c.printer.Steps() || r.Summary.Paths == 0 {
		return report.Remedy{}
	}
	return report.Remedy{Text: "every rule that the packets meet: the same command with -o wide"}
}

// afterMatch says what to try where the rules are right: real connections, then the path behind the client's node.
func (c *traceConfig) afterMatch(r *report.Report, service []string) report.Remedy {
	if c.ends.endToEnd {
		return report.Remedy{Text: "rules, routes, tunnels and listeners are right, in both directions; if clients still " +
			"fail, look at the log of the process behind the endpoint, and send it data with --live --payload"}
	}
	if !c.live {
		return report.Remedy{Text: "the rules are right; on the cluster --live shows what happens to real connections, and " +
			"--end-to-end --from pod/NAME follows them from the client's pod into the endpoint's"}
	}
	out := report.Remedy{Text: "the rules are right"}
	add := func(when string, words ...string) {
		line := name + " " + report.ShellLine(slices.Concat([]string{"trace"}, service, words, c.again)...)
		out.Commands = append(out.Commands, report.Command{Line: line, When: when})
	}
	pod, node := "pod/NAME", ""
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			if o := &r.Nodes[i].Paths[k].Origin; node == "" && o.Kind == "pod" && o.Pod != "" {
				pod, node = "pod/"+o.Pod, r.Nodes[i].Node
			}
		}
	}
	if c.probes == 0 {
		words := []string{"--live"}
		if len(r.Nodes) == 1 {
			words = append(words, "--node", r.Nodes[0].Node)
		}
		if c.from != "" {
			words = append(words, "--from", c.from)
		}
		add("real connections show what happens to them", words...)
	}
	if c.local {
		return out
	}
	if strings.HasPrefix(c.from, "pod/") {
		pod = c.from
	}
	when := "from the client's pod into the endpoint's"
	if len(out.Commands) > 0 {
		when = "then " + when
	}
	add(when, "--end-to-end", "--from", pod)
	return out
}

// keep says how to keep the evidence before something is changed; nothing of a snapshot, which keeps it.
func (c *traceConfig) keep(r *report.Report) report.Remedy {
	if !c.live {
		return report.Remedy{}
	}
	if c.ends.endToEnd && r.Service != nil && r.Verdict.NeedsAttention() { // at both ends
		words := []string{
			"dump", nameArgument(r.Service.Name), "-n", r.Service.Namespace, "--from", c.from, "--end-to-end",
		}
		for i := range r.Nodes {
			if isOutside(c.from) && len(r.Nodes) <= keptNodes {
				words = append(words, "--node", r.Nodes[i].Node)
			}
		}
		if isOutside(c.from) && len(r.Nodes) > keptNodes {
			words = append(words, "--all-nodes")
		}
		return next("", slices.Concat(words, c.again, []string{"-o", "evidence.tar.gz"})...)
	}
	return keepEvidence(r, c.again)
}
