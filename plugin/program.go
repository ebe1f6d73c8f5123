// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"bufio"
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// programOptions are those of the command program.
type programOptions struct {
	*shared
	subject
	printOptions
	probeOptions
	helper helperOptions
	flags  *pflag.FlagSet

	node      string
	mode      string
	scheduler string
	ttl       time.Duration
	follow    bool
	log       bool
	yes       bool
}

// defaultTTL is how long a programmed path stays.
const defaultTTL = 15 * time.Minute

func newProgramCommand(s *shared) *cobra.Command {
	o := &programOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "program SERVICE[:PORT] --node NODE",
		Short: "Put the right path of a Service on a node, beside kube-proxy's, for a limited time",
		Long: `Put on one node what kube-proxy should have programmed for a Service: for every frontend (cluster IP, NodePort, external and
load-balancer IP), with its endpoints, traffic policies, source ranges and session affinity. The rules stand ahead of kube-proxy's, which are
left as they are. They are taken away after --ttl, by ^C with --follow, by kubectl svcproxy cleanup --running, and when the helper pod goes;
then the node is as it was before.

Before success is said the node is read again, and packets are walked through its rules. Where they do not go where they should, all is taken
back, and the exit code is 1.

--dry-run asks the node and prints exactly what would be done, and what would differ from now; nothing is changed.

SERVICE is what it is for trace. Exit codes: see kubectl svcproxy --help; what would not be safe is refused, with the reason and exit code 2.`,
		Example: `  # What would be done?
  kubectl svcproxy program web -n shop --node worker-2 --dry-run

  # kube-proxy on worker-2 is broken: make this Service work there for a quarter of an hour
  kubectl svcproxy program web -n shop --node worker-2

  # For an hour, and in step with the Service's endpoints, until ^C
  kubectl svcproxy program web -n shop --node worker-2 --ttl 1h --follow

  # End it before its time
  kubectl svcproxy cleanup --running --node worker-2`,
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
	f := cmd.Flags()
	o.flags = f
	f.StringVar(&o.node, "node", "", "The node to program")
	f.StringVar(&o.mode, "mode", "", "How: "+strings.Join(wire.Modes, ", ")+" (default the node's own)")
	f.StringVar(&o.scheduler, "scheduler", "", "How connections are shared out, with --mode ipvs ("+strings.Join(wire.Schedulers[wire.IPVS], ", ")+") or userspace ("+strings.Join(wire.Schedulers[wire.Userspace], ", ")+") (default rr; in ipvs mode what kube-proxy is set to)")
	f.BoolVar(&o.log, "log", false, "Have the helper log each connection, with --mode userspace: kubectl logs shows them")
	f.DurationVar(&o.ttl, "ttl", defaultTTL, fmt.Sprintf("For how long, up to %v", wire.MaxTTL))
	f.BoolVar(&o.follow, "follow", false, "Stay, keep the path in step with the Service's endpoints, and take it away at ^C")
	f.BoolVarP(&o.yes, "yes", "y", false, "Do not ask")
	o.helper.addFlags(cmd, s)
	dry := f.Lookup("dry-run")
	dry.Usage = "server asks the node and prints what would be done, client prints the helper pod; nothing is changed"
	dry.NoOptDefVal = "server"
	o.helper.dryRuns = []string{"none", "client", "server"}
	o.kind = report.KindTrace
	o.printOptions.addFlags(cmd, "the node, if it is not right")
	o.probeOptions.addFlags(f)
	for _, hidden := range []string{"parallel", "own-pod"} {
		_ = f.MarkHidden(hidden)
	}
	_ = cmd.RegisterFlagCompletionFunc("node", s.completeNodes)
	for name, values := range map[string][]string{"mode": wire.Modes, "scheduler": wire.Schedulers[wire.IPVS], "dry-run": o.helper.dryRuns} {
		complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
		_ = cmd.RegisterFlagCompletionFunc(name, complete)
	}
	return cmd
}

// Complete fills in what the flags leave open.
func (o *programOptions) Complete(args []string) error {
	switch len(args) {
	case 0:
		return usagef("program needs a Service: %s program SERVICE[:PORT] --node NODE (see %s program --help)", name, name)
	case 1:
	default:
		return usagef("program takes one Service, and %d were given (%s)", len(args), shorten(args))
	}
	return o.fill(o.shared, &o.printOptions, args[0])
}

// Validate checks what the flags say together.
func (o *programOptions) Validate() error {
	if err := o.validate(o.flags, false); err != nil {
		return err
	}
	switch {
	case o.node == "" && o.flags.Changed("node"):
		return usagef("--node is empty: give the name of a node")
	case o.node == "" && !o.helper.local:
		return usagef("program changes one node: say which with --node NODE, or be on it and give --local")
	case o.mode != "" && !slices.Contains(wire.Modes, o.mode):
		return usagef("--mode %q: it may be %s", o.mode, strings.Join(wire.Modes, ", "))
	case o.scheduler != "" && !slices.Contains(wire.Schedulers[o.mode], o.scheduler):
		return usagef("--scheduler %q: with --mode ipvs it may be %s, with --mode userspace %s; other modes have none", o.scheduler,
			strings.Join(wire.Schedulers[wire.IPVS], ", "), strings.Join(wire.Schedulers[wire.Userspace], ", "))
	case o.log && o.mode != wire.Userspace:
		return usagef("--log is about connections that --mode userspace passes on: give that, too")
	case o.ttl < time.Second || o.ttl > wire.MaxTTL:
		return usagef("--ttl %v: it may be 1s to %v", o.ttl, wire.MaxTTL)
	case o.follow && o.dry():
		return usagef("--follow keeps up what --dry-run does not do: give one of them")
	}
	return o.helper.validate(false, o.flags)
}

func (o *programOptions) dry() bool { return o.helper.dryRun == "server" }

// staying tells whether this process stays as long as the path does: on the node itself nobody else could take it away.
func (o *programOptions) staying() bool { return o.follow || o.helper.local }

// Run programs and prints.
func (o *programOptions) Run(ctx context.Context) error {
	if !o.helper.local && !o.dry() {
		o.helper.hold = o.ttl
	}
	o.helper.ownPod = !o.helper.local // what is run in the DaemonSet's pod ends with this process
	progress := newProgress(o.ErrOut, o.getenv)
	sc, err := o.helper.open(o.shared, progress, o.ns)
	if err != nil {
		return err
	}
	defer sc.nodes.Close()
	defer sc.progress.done()
	w := &programming{programOptions: o, sc: sc}
	return w.run(ctx)
}

// ask asks the person, where there is one.
func (o *programOptions) ask(question string) error {
	if o.yes {
		return nil
	}
	in, ok := o.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usagef("program changes the node: give --yes where there is no terminal to ask at, or --dry-run to see what it would do")
	}
	fmt.Fprintf(o.ErrOut, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return usagef("nothing was done")
	}
	return nil
}

// whoami names the person, for others who find the path on the node.
func whoami() string {
	who := "somebody"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		who += "@" + host
	}
	return who
}

// programmer is an inspector that can program a node.
type programmer interface {
	// Session returns the helper of a node, which stays until it is released.
	Session(ctx context.Context, node string) (*launch.Session, error)
}

func (p *podInspector) Session(ctx context.Context, node string) (*launch.Session, error) {
	return p.session(ctx, node)
}

func (l *localInspector) Session(ctx context.Context, node string) (*launch.Session, error) {
	return launch.Local(ctx, node, l.options, l.serve)
}
