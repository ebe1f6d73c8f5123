// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// verifyOptions are the flags of the command verify.
type verifyOptions struct {
	from          string
	allNamespaces bool
	showAll       bool
	nodes         nodeFlags
	helper        helperFlags
	output        outputFlags
}

func newVerifyCommand(env *environment) *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:        "verify [SERVICE[:PORT]…]",
		SuggestFor: []string{"check", "doctor", "list", "ls", "scan", "test"},
		Short:      "Verify every frontend of the named or of all Services, and list what is wrong",
		Long: `Verify every frontend of the named Services, of all Services of a namespace, or
with -A of all Services: compare what kube-proxy should have programmed with what
the node's rules do. Only what is wrong is listed; the rest is counted.

With -A, also find rules and chains that no longer belong to a Service.

-o name prints service/NAMESPACE/NAME for each Service that is not right, and
node/NODE for each node that has a problem as a whole or could not be inspected.
For exit codes see "kubectl svcproxy --help".`,
		Example: `  # Everything, everywhere
  kubectl svcproxy verify -A --all-nodes

  # One namespace, two nodes
  kubectl svcproxy verify -n shop --node worker-1 --node worker-2

  # The names of the Services and nodes that are not right, from a snapshot
  kubectl svcproxy verify -A --snapshot dump.tar.gz -o name`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     env.completeServices(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return verify(cmd.Context(), env, c)
		},
	}
	o.add(cmd, env)
	return cmd
}

func (o *verifyOptions) add(cmd *cobra.Command, env *environment) {
	o.nodes.add(cmd, env)
	o.helper.add(cmd, env)
	o.output.add(cmd, report.KindVerify, "the Services that are not right")
	addFrom(cmd, env, &o.from)
	f := cmd.Flags()
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Verify the Services of all namespaces")
	f.BoolVar(&o.showAll, "show-all", false, "Also list what is right or refused by design")
}

// verifyConfig is what to verify.
type verifyConfig struct {
	session       run.Config
	podsOnly      bool // print the helper pods, and make none
	services      []cluster.Reference
	namespace     string
	allNamespaces bool
	from          string
	showAll       bool // also what is right
	printer       *print.Printer
	live          bool     // nodes are read, and not a snapshot
	again         []string // the flags that name the same data
}

// config completes and validates the options.
func (o *verifyOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c verifyConfig, err error) {
	suffices := ""
	for i, arg := range joinKind(args) {
		ref, namespace, err := env.service(arg)
		if err != nil {
			return c, err
		}
		c.services = append(c.services, ref)
		if i == 0 {
			suffices = namespace
		} else if namespace != suffices {
			suffices = "" // nothing less than all will do
		}
	}
	if c.printer, err = o.output.printer(report.KindVerify); err != nil {
		return c, err
	}
	if c.namespace, err = env.namespace(); err != nil {
		return c, err
	}
	if o.allNamespaces && len(c.services) > 0 {
		return c, run.Usagef("-A verifies every Service: leave out -A, or %s",
			c.services[0].Input)
	}
	selection, err := o.nodes.selection(flags, &o.helper)
	if err != nil {
		return c, err
	}
	if len(args) == 0 && !o.allNamespaces {
		suffices = c.namespace
	}
	c.session = o.helper.session(env, &o.nodes, selection, suffices)
	c.podsOnly, c.from = o.helper.podsOnly(), o.from
	c.allNamespaces, c.showAll = o.allNamespaces, o.showAll
	c.again, c.live = o.nodes.again(env, &o.helper), o.nodes.snapshot == ""
	return c, nil
}

// verify verifies and prints.
func verify(ctx context.Context, env *environment, c verifyConfig) error {
	s, err := run.Open(c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	r, v, err := verified(ctx, env, &c, s)
	if err != nil || r == nil {
		return err
	}
	return conclude(env, c.printer, r, v)
}

// verified verifies, and returns what is to be printed; no report where the helper pods alone were asked for, and
// printed.
func verified(ctx context.Context, env *environment, c *verifyConfig, s *run.Session) (
	r *report.Report, v print.View, err error,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if nodes, ok, err := s.CertainNodes(); err != nil {
		return nil, v, err
	} else if ok {
		s.ReadAhead(ctx, nodes)
	}
	if err := s.ReadObjects(ctx); err != nil {
		return nil, v, err
	}
	targets, err := c.targets(ctx, s)
	if err != nil {
		return nil, v, err
	}
	nodes, err := s.ChooseNodes(run.NodesOf(targets))
	if err != nil {
		return nil, v, err
	}
	from, err := s.FindOrigin(ctx, c.from, c.namespace)
	if err != nil {
		return nil, v, err
	}
	if from.IsNamed() && !slices.Equal(nodes, []string{from.Node}) {
		return nil, v, run.Usagef("--from %s is on node %s: give --node %s", c.from, from.Node, from.Node)
	}
	if c.podsOnly {
		return nil, v, printPods(env, s, nodes)
	}
	s.NoteNodes(nodes, c.printer.ForPeople(), "run endpoints")
	s.NoteOrigin(from, c.from)
	if err := s.ReadPods(ctx, cluster.Pods{Nodes: nodes}); err != nil {
		return nil, v, err
	}
	reports, err := s.Judge(ctx, run.Task{
		Nodes: nodes, Request: c.request(targets, from),
		Everything: c.allNamespaces && c.from == "" && !c.showAll && !c.printer.Draws(),
	})
	if err != nil {
		return nil, v, err
	}
	r = s.Combine(report.KindVerify, nil, reports)
	v = print.View{
		Now: s.Now(), All: c.showAll, Namespace: c.namespace, Services: c.count(s.Objects, targets), Scope: c.scope(),
		Elsewhere: c.elsewhere(s.Objects), Next: c.next(r), Keep: c.keep(r),
	}
	r.Source, v.Age = env.source(s, r.Nodes)
	return r, v, nil
}

// targets returns the Services that were named, or those of the namespace; nil for those of all namespaces.
func (c *verifyConfig) targets(ctx context.Context, s *run.Session) ([]cluster.Target, error) {
	var out []cluster.Target
	for _, ref := range c.services {
		found, err := s.FindServices(ctx, c.namespace, ref)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if out != nil || c.allNamespaces {
		return out, nil
	}
	namespaces := map[string]bool{}
	for _, svc := range s.Objects.Services {
		if svc.Namespace == c.namespace {
			out = append(out, cluster.Target{Service: svc})
		}
		namespaces[svc.Namespace] = true
	}
	if out == nil {
		var names []string
		for ns := range namespaces {
			names = append(names, ns)
		}
		slices.Sort(names)
		return nil, run.Usagef("there is no Service in namespace %q: give -A for all, or -n with one of %s%s",
			c.namespace, run.Shorten(names), cluster.DidYouMean(c.namespace, names))
	}
	return out, nil
}

// request says what is to be judged on a node.
func (c *verifyConfig) request(targets []cluster.Target, from *run.Origin) func(node string) run.Request {
	var names []types.NamespacedName
	byName := map[types.NamespacedName][]*cluster.Target{}
	for i := range targets {
		n := targets[i].Name()
		if byName[n] == nil {
			names = append(names, n)
		}
		byName[n] = append(byName[n], &targets[i])
	}
	return func(node string) run.Request {
		return run.Request{
			Services: names,
			Select: func(f expect.Frontend) bool {
				if !from.Reaches(f.Address) {
					return false
				}
				selected := func(t *cluster.Target) bool { return t.Selects(&f, node) }
				return c.allNamespaces || slices.ContainsFunc(byName[f.Service], selected)
			},
			From: from.On(node), Backwards: c.allNamespaces, PerPathService: true,
			Matching: c.showAll, Steps: c.printer.Wide() && c.showAll || c.printer.Draws(),
		}
	}
}

func (c *verifyConfig) count(objects *snapshot.Cluster, targets []cluster.Target) int {
	if c.allNamespaces {
		return len(objects.Services)
	}
	names := map[types.NamespacedName]bool{}
	for i := range targets {
		names[targets[i].Name()] = true
	}
	return len(names)
}

func (c *verifyConfig) scope() string {
	if c.allNamespaces || len(c.services) > 0 {
		return ""
	}
	return " in namespace " + c.namespace
}

// elsewhere is how many Services there are in other namespaces, where those of one were asked for.
func (c *verifyConfig) elsewhere(objects *snapshot.Cluster) (n int) {
	if c.allNamespaces || len(c.services) > 0 {
		return 0
	}
	for _, svc := range objects.Services {
		if svc.Namespace != c.namespace {
			n++
		}
	}
	return n
}

// keep says how to keep the evidence before something is changed; nothing of a snapshot, which keeps it.
func (c *verifyConfig) keep(r *report.Report) report.Remedy {
	if !c.live {
		return report.Remedy{}
	}
	return keepEvidence(r, c.again)
}

// next names the trace of the first path that is wrong.
func (c *verifyConfig) next(r *report.Report) report.Remedy {
	for _, v := range []report.Verdict{report.Mismatch, report.Unknown, report.Warning} {
		for i := range r.Nodes {
			n := &r.Nodes[i]
			for k := range n.Paths {
				if p := &n.Paths[k]; p.Verdict == v && p.Service != nil {
					return next("", slices.Concat([]string{
						"trace", nameArgument(p.Service.Name), "-n", p.Service.Namespace, "--node", n.Node,
					}, c.again)...)
				}
			}
		}
	}
	return report.Remedy{}
}
