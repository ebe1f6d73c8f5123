// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// programOptions are the flags of the command program.
type programOptions struct {
	node      string
	mode      string
	scheduler string
	ttl       time.Duration
	follow    bool
	log       bool
	yes       bool
	allow     []string
	helper    helperFlags
	probes    probeFlags
	output    outputFlags
}

// defaultTTL is how long a programmed path stays.
const defaultTTL = 15 * time.Minute

// programDryRuns are the values of --dry-run.
var programDryRuns = []string{"none", "client", "server"}

func newProgramCommand(env *environment) *cobra.Command {
	o := &programOptions{}
	cmd := &cobra.Command{
		Use:        "program SERVICE[:PORT] --node NODE",
		SuggestFor: []string{"repair", "apply", "fix"},
		Short:      "Program the right path of a Service on a node, ahead of kube-proxy's rules, for a limited time",
		Long: `Program on one node what kube-proxy should have programmed for a Service: every
frontend (cluster IP, NodePort, external IP, load-balancer IP), with its
endpoints, traffic policies, source ranges and session affinity. The rules are
evaluated ahead of kube-proxy's, whose chains and tables are not changed. They
are removed after --ttl, by ^C with --follow, by "kubectl svcproxy cleanup
--running", and when the helper pod is deleted. The node is then as it was
before, except for what other programs changed in the meantime.

Addresses through which the author of a Service could take over the traffic of
others, or reach what is not theirs, are refused, unless --allow names their
class. Loopback, link-local and multicast addresses are always refused.

Before the command reports success, it reads the node again and walks packets
through its rules. If they do not go where they should, everything is removed
again, and the exit code is 1.

--dry-run asks the node, and prints exactly what would be done and how the node
would differ; nothing is changed.

SERVICE has the same forms as for "trace". What would not be safe is refused,
with the reason and exit code 2; for the other exit codes see
"kubectl svcproxy --help".`,
		Example: `  # What would be done?
  kubectl svcproxy program web -n shop --node worker-2 --dry-run

  # kube-proxy on worker-2 is broken: make this Service work there for 15 minutes
  kubectl svcproxy program web -n shop --node worker-2

  # For an hour, or until ^C, updated when the Service's endpoints change
  kubectl svcproxy program web -n shop --node worker-2 --ttl 1h --follow

  # End it before its time
  kubectl svcproxy cleanup --running --node worker-2`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     env.completeServices(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.config(env, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return program(cmd.Context(), env, c)
		},
	}
	o.addFlags(cmd, env)
	return cmd
}

func (o *programOptions) addFlags(cmd *cobra.Command, env *environment) {
	f := cmd.Flags()
	f.StringVar(&o.node, "node", "", "The node to program")
	f.StringVar(&o.mode, "mode", "", "Mode in which to program the path: "+strings.Join(wire.Modes, ", ")+" (default "+
		"the mode of the node)")
	f.StringVar(&o.scheduler, "scheduler", "", "How connections are distributed, with --mode ipvs ("+
		strings.Join(wire.Schedulers[wire.IPVS], ", ")+") or userspace ("+
		strings.Join(wire.Schedulers[wire.Userspace], ", ")+") (default rr; in ipvs mode the scheduler of kube-proxy)")
	f.BoolVar(&o.log, "log", false, "With --mode userspace: log each connection, for kubectl logs")
	f.DurationVar(&o.ttl, "ttl", defaultTTL, fmt.Sprintf("How long the path stays, up to %gh", wire.MaxTTL.Hours()))
	f.BoolVar(&o.follow, "follow", false,
		"Keep running, update the path when the Service's endpoints change, and remove it at ^C")
	f.BoolVarP(&o.yes, "yes", "y", false, "Do not ask for confirmation")
	f.StringSliceVar(&o.allow, "allow", nil, "Allow addresses of these classes, which are otherwise refused: "+
		strings.Join(run.Classes(), ", "))
	o.helper.add(cmd, env)
	dry := f.Lookup("dry-run")
	dry.Usage = "server asks the node and prints what would be done, client prints the helper pod; nothing is changed"
	dry.NoOptDefVal = "server"
	o.output.add(cmd, report.KindTrace, "the node, if it is not right")
	o.probes.add(f)
	for _, hidden := range []string{"parallel", "own-pod"} {
		_ = f.MarkHidden(hidden)
	}
	_ = cmd.RegisterFlagCompletionFunc("node", env.completeNodes)
	for flag, values := range map[string][]string{
		"mode": wire.Modes, "scheduler": wire.Schedulers[wire.IPVS], "dry-run": programDryRuns, "allow": run.Classes(),
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, noFiles))
	}
}

// programConfig is what to program.
type programConfig struct {
	session  run.Config
	podsOnly bool // print the helper pod, and make none
	service  cluster.Reference
	// namespace is that of the Service.
	namespace string
	node      string // "": the machine that this is
	path      run.PathConfig
	follow    bool
	yes       bool // do not ask
	printer   *print.Printer
	again     []string // the flags that name the same cluster and helper
}

// config completes and validates the options.
func (o *programOptions) config(env *environment, flags *pflag.FlagSet, args []string) (c programConfig, err error) {
	arg, err := oneService("program", args, "")
	if err != nil {
		return c, err
	}
	if c.service, c.namespace, err = env.service(arg); err != nil {
		return c, err
	}
	if c.printer, err = o.output.printer(report.KindTrace); err != nil {
		return c, err
	}
	probes, err := o.probes.count(flags, false)
	if err != nil {
		return c, err
	}
	if err := o.validate(flags); err != nil {
		return c, err
	}
	dryRun := o.helper.dryRun == "server"
	c.podsOnly, c.node, c.follow, c.yes = o.helper.podsOnly(), o.node, o.follow, o.yes
	c.path = run.PathConfig{
		Mode: o.mode, Scheduler: o.scheduler, Log: o.log, TTL: o.ttl, DryRun: dryRun, By: whoami(), Allow: o.allow,
		Attached: o.follow || o.helper.local, // on the node itself nobody else could take it away
		Probes:   probes, Steps: c.printer.Steps(),
	}
	c.session = o.helper.session(env, &nodeFlags{}, run.Selection{Local: o.helper.local}, c.namespace)
	if !o.helper.local && !dryRun {
		c.session.Helper.Hold = o.ttl
	}
	c.session.Helper.OwnPod = !o.helper.local // what is run in the DaemonSet's pod ends with this process
	c.again = o.again(env, flags)
	return c, nil
}

// validate checks what the flags say together.
func (o *programOptions) validate(flags *pflag.FlagSet) error {
	switch {
	case o.node == "" && flags.Changed("node"):
		return run.Usagef("--node is empty: give the name of a node")
	case o.node == "" && !o.helper.local:
		return run.Usagef("program changes one node: name it with --node NODE, or run the command on it with --local")
	case o.mode != "" && !slices.Contains(wire.Modes, o.mode):
		return run.Usagef("--mode %q: it may be %s%s", o.mode, strings.Join(wire.Modes, ", "),
			cluster.DidYouMean(strings.ToLower(o.mode), wire.Modes))
	case o.scheduler != "" && !slices.Contains(wire.Schedulers[o.mode], o.scheduler):
		return run.Usagef("--scheduler %q: with --mode ipvs it may be %s, with --mode userspace %s; other modes have none",
			o.scheduler, strings.Join(wire.Schedulers[wire.IPVS], ", "), strings.Join(wire.Schedulers[wire.Userspace], ", "))
	case o.log && o.mode != wire.Userspace:
		return run.Usagef("--log is about connections that --mode userspace passes on: give that, too")
	case o.ttl < time.Second || o.ttl > wire.MaxTTL:
		return run.Usagef("--ttl %v: it may be 1s to %gh", o.ttl, wire.MaxTTL.Hours())
	case slices.ContainsFunc(o.allow, notAClass):
		return run.Usagef("--allow %q: it may be %s",
			o.allow[slices.IndexFunc(o.allow, notAClass)], strings.Join(run.Classes(), ", "))
	case o.follow && o.helper.dryRun == "server":
		return run.Usagef("--follow updates a path, and --dry-run programs none: give one of them")
	}
	return o.helper.validateDryRun(false, flags, programDryRuns)
}

func notAClass(name string) bool { return !slices.Contains(run.Classes(), name) }

// again are the flags that name the same cluster and helper.
func (o *programOptions) again(env *environment, flags *pflag.FlagSet) []string {
	words := (&nodeFlags{}).again(env, &helperFlags{})
	if flags.Changed("helper-namespace") {
		words = append(words, "--helper-namespace", o.helper.namespace)
	}
	return words
}

// program programs the path, verifies it, prints the report, and leaves the path until it expires or follows the
// Service.
func program(ctx context.Context, env *environment, c programConfig) error {
	s, err := run.Open(c.session)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.ReadObjects(ctx); err != nil {
		return err
	}
	if c.path.Target, err = s.FindService(ctx, c.namespace, c.service); err != nil {
		return err
	}
	if c.path.Node, err = s.OneNode(c.node); err != nil {
		return err
	}
	nodes := []string{c.path.Node}
	if c.podsOnly {
		return printPods(env, s, nodes)
	}
	if err := s.ReadPods(ctx, cluster.Pods{Nodes: nodes}); err != nil {
		return err
	}
	k, err := s.KeepPath(ctx, c.path)
	if err != nil {
		return err
	}
	defer k.Close()
	if c.path.DryRun {
		return c.showPlan(ctx, env, s, k)
	}
	s.Progress.Done()
	if err := confirm(env, c.yes, orDryRun, k.Taken, fmt.Sprintf("Program %s on node %s, in %s, for %v?",
		c.path.Target.Name(), c.path.Node, k.How(), c.path.TTL)); err != nil {
		return err
	}
	return c.apply(ctx, env, s, k)
}

// orDryRun is what else there is to do where nobody can be asked.
const orDryRun = "program changes the node: give --yes where there is no terminal to ask at, " +
	"or --dry-run to see what it would do"

// whoami names the user, for others who find the path on the node.
func whoami() string {
	who := "someone"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		who += "@" + host
	}
	return who
}

// showPlan prints what would be done.
func (c *programConfig) showPlan(ctx context.Context, env *environment, s *run.Session, k *run.PathKeeper) error {
	r, err := k.Apply(ctx)
	if err != nil {
		return err
	}
	s.Progress.Done()
	service, node := c.path.Target.Name(), c.path.Node
	if r.What == wire.Unchanged {
		env.out.Line("%s is already programmed like this on node %s, by %s, until %s: nothing would be done",
			service, node, safetext.Line(r.By, 100), run.Clock(r.Expires))
		return nil
	}
	t := terminal.NewText(false)
	t.Linef("# node %s, %s: what would be run", node, k.How())
	for i := range r.Commands {
		commandText(t, &r.Commands[i])
	}
	t.Blank()
	t.Linef("# what would differ from now")
	for _, l := range r.Removed {
		t.Linef("-%s", l)
	}
	for _, l := range r.Added {
		t.Linef("+%s", l)
	}
	return env.out.Text(t)
}

// commandText writes a command of a plan as it can be pasted into a shell: its input is a here-document, whose end is a
// line that the input does not have. What a helper says is in the lines of the command and of its input, and makes no
// other ones.
func commandText(t *terminal.Text, c *wire.Command) {
	if c.Input == "" {
		t.Linef("%s", c.Line)
		return
	}
	lines := strings.Split(strings.TrimSuffix(c.Input, "\n"), "\n")
	for i := range lines {
		lines[i] = safetext.Clean(lines[i])
	}
	end := "EOF"
	for slices.Contains(lines, end) {
		end += "_"
	}
	t.Linef("%s <<'%s'", c.Line, end)
	for _, l := range lines {
		t.Linef("%s", l)
	}
	t.Linef("%s", end)
}

// apply programs the path, and removes it if it is not right afterwards.
func (c *programConfig) apply(ctx context.Context, env *environment, s *run.Session, k *run.PathKeeper) error {
	r, err := k.Apply(ctx)
	if err != nil {
		return err
	}
	service, node := c.path.Target.Name(), c.path.Node
	if r.What == wire.Unchanged {
		s.Progress.Note("%s is already programmed like this on node %s, by %s, until %s: nothing was changed",
			service, node, safetext.Line(r.By, 100), run.Clock(r.Expires))
	}
	got, err := k.Verify(ctx)
	if err != nil {
		return errors.Join(err, k.TakeAway(ctx))
	}
	if !k.Right(got) {
		if err := k.TakeAway(ctx); err != nil {
			return run.NotInspected(err)
		}
		s.Progress.Note("the path was not right after it was programmed, so it was removed again")
		return c.show(env, s, k, got, report.Remedy{})
	}
	if r.What != wire.Unchanged {
		s.Progress.Note("%s is programmed on node %s, in %s: %s, until %s",
			service, node, k.How(), k.Frontends(), run.Clock(r.Expires))
	}
	if !c.path.Attached {
		if r.What != wire.Unchanged {
			k.Leave()
		}
		return c.show(env, s, k, got, next("to end it before its time",
			slices.Concat([]string{"cleanup", "--running", "--node", node}, c.again)...))
	}
	if err := c.show(env, s, k, got, report.Remedy{}); err != nil {
		return err
	}
	return k.Keep(ctx, r.Expires, c.follow)
}

// show prints the report. The exit code is that of programming: the report may not tell the endpoints of a proxy.
func (c *programConfig) show(
	env *environment, s *run.Session, k *run.PathKeeper, r *report.Report, next report.Remedy,
) error {
	r.Source, _ = env.source(s, r.Nodes)
	err := conclude(env, c.printer, r, print.View{
		Now: s.Now(), Namespace: c.path.Target.Service.Namespace, Next: next,
	})
	if e, ok := errors.AsType[*run.ExitError](err); ok && e.Err == nil && e.Code == run.ExitNotInspected && k.Right(r) {
		return nil
	}
	return err
}
