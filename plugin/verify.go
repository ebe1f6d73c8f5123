// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// verifyOptions are those of the command verify.
type verifyOptions struct {
	*shared
	targetOptions
	printOptions
	from          string
	allNamespaces bool
	showAll       bool

	namespace string
	refs      []cluster.Reference
}

func newVerifyCommand(s *shared) *cobra.Command {
	o := &verifyOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "verify [SERVICE[:PORT]…]",
		Short: "Verify every frontend of the named or of all Services, and list what is wrong",
		Long: `Verify every frontend of the named Services, of all Services of a namespace, or with -A of all there are: what kube-proxy should
have programmed against what the node's rules do. Only what is wrong is listed; the rest is counted.

With -A it also looks from the rules back to the API: for rules and chains that belong to no Service any more.

-o name prints service/NAMESPACE/NAME for each Service that is not right, and node/NODE for each node that has something
wrong with it as a whole or could not be inspected. Exit codes: see kubectl svcproxy --help.`,
		Example: `  # Everything, everywhere
  kubectl svcproxy verify -A --all-nodes

  # One namespace, two nodes
  kubectl svcproxy verify -n shop --node worker-1 --node worker-2

  # The names of what is wrong, from a snapshot
  kubectl svcproxy verify -A --snapshot dump.tar.gz -o name`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     s.completeServices(0),
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
	o.kind = report.KindVerify
	o.printOptions.addFlags(cmd, "the Services that are not right")
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", fromHelp)
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Verify the Services of all namespaces")
	f.BoolVar(&o.showAll, "show-all", false, "List also what is right or refused by design")
	_ = cmd.RegisterFlagCompletionFunc("from", s.completeFrom)
	return cmd
}

// Complete fills in what the flags leave open.
func (o *verifyOptions) Complete(args []string) (err error) {
	for _, arg := range args {
		ref, err := cluster.ParseReference(arg)
		if err != nil {
			return usagef("%w", err)
		}
		o.refs = append(o.refs, ref)
	}
	if err := o.complete(); err != nil {
		return err
	}
	o.namespace, err = o.shared.namespace()
	return err
}

// Validate checks what the flags say together.
func (o *verifyOptions) Validate() error {
	if o.allNamespaces && len(o.refs) > 0 {
		return usagef("-A verifies every Service, so none can be named besides: leave out -A, or %s", o.refs[0].Input)
	}
	return o.validate()
}

// Run verifies and prints.
func (o *verifyOptions) Run(ctx context.Context) error {
	narrow := o.namespace
	if o.allNamespaces {
		narrow = "" // nothing less than all will do
	}
	return o.run(ctx, o.shared, narrow, o.verify)
}

func (o *verifyOptions) verify(ctx context.Context, sc *scene) error {
	if nodes, ok, err := o.certain(sc); err != nil {
		return err
	} else if ok {
		sc.readAhead(ctx, nodes)
	}
	if err := sc.readObjects(ctx, o.what()); err != nil {
		return err
	}
	targets, err := o.targets(sc.objects)
	if err != nil {
		return err
	}
	nodes, err := o.choose(sc, nodesThatMatter(targets))
	if err != nil {
		return err
	}
	from, err := findSender(ctx, sc, o.from, o.namespace)
	if err != nil {
		return err
	}
	if from != nil && from.pod != "" && !slices.Equal(nodes, []string{from.node}) {
		return usagef("--from %s is on node %s: give --node %s", o.from, from.node, from.node)
	}
	if done, err := o.helper.dry(o.shared, sc, nodes); done || err != nil {
		return err
	}
	o.noteNodes(sc, nodes, o.printer.ForPeople(), "run endpoints")
	if err := sc.readPods(ctx, cluster.Pods{Nodes: nodes}); err != nil {
		return err
	}
	reports, err := sc.judge(ctx, nodes, o.request(targets, from))
	if err != nil {
		return err
	}
	r := report.Combine(report.KindVerify, nil, reports)
	return conclude(o.shared, o.printer, r, print.View{
		Now: sc.now(), All: o.showAll, Namespace: o.namespace, Services: o.count(sc.objects, targets), Scope: o.scope(), Next: o.next(r),
	})
}

// targets looks the named Services up; nil where none was named.
func (o *verifyOptions) targets(objects *snapshot.Cluster) ([]cluster.Target, error) {
	var out []cluster.Target
	for _, ref := range o.refs {
		t, err := cluster.Find(objects, o.namespace, ref)
		if err != nil {
			return nil, usagef("%w", err)
		}
		out = append(out, t)
	}
	if out != nil || o.allNamespaces {
		return out, nil
	}
	namespaces := map[string]bool{}
	for _, svc := range objects.Services {
		if svc.Namespace == o.namespace {
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
		return nil, usagef("there is no Service in namespace %q: give -A for all, or -n with one of %s", o.namespace, shorten(names))
	}
	return out, nil
}

// request says what is to be judged on a node.
func (o *verifyOptions) request(targets []cluster.Target, from *sender) func(node string) diagnose.Request {
	var names []types.NamespacedName
	byName := map[types.NamespacedName][]*cluster.Target{}
	for i := range targets {
		n := targets[i].Name()
		if byName[n] == nil {
			names = append(names, n)
		}
		byName[n] = append(byName[n], &targets[i])
	}
	return func(node string) diagnose.Request {
		return diagnose.Request{
			Services: names,
			Select: func(f expect.Frontend) bool {
				if !from.speaks(familyOf(f.Address)) {
					return false
				}
				return o.allNamespaces || slices.ContainsFunc(byName[f.Service], func(t *cluster.Target) bool { return t.Selects(&f, node) })
			},
			From: from.on(node), Backwards: o.allNamespaces, PerPathService: true,
			Matching: o.showAll, Steps: o.printer.Wide() && o.showAll || o.printer.Draws(),
		}
	}
}

func (o *verifyOptions) count(objects *snapshot.Cluster, targets []cluster.Target) int {
	if o.allNamespaces {
		return len(objects.Services)
	}
	names := map[types.NamespacedName]bool{}
	for i := range targets {
		names[targets[i].Name()] = true
	}
	return len(names)
}

func (o *verifyOptions) scope() string {
	if o.allNamespaces || len(o.refs) > 0 {
		return ""
	}
	return " in namespace " + o.namespace
}

// next leads from the first thing that is wrong to its trace.
func (o *verifyOptions) next(r *report.Report) string {
	for _, v := range []report.Verdict{report.Mismatch, report.Unknown, report.Warning} {
		for i := range r.Nodes {
			n := &r.Nodes[i]
			for k := range n.Paths {
				if p := &n.Paths[k]; p.Verdict == v && p.Service != nil {
					return fmt.Sprintf("%s trace %s -n %s --node %s%s", name, p.Service.Name, p.Service.Namespace, n.Node, o.again(o.shared))
				}
			}
		}
	}
	return ""
}
