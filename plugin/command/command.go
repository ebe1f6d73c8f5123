// SPDX-License-Identifier: Apache-2.0

// Package command is the commands of kubectl svcproxy, one file each. A command has one struct of options, with a field
// for each of its flags; what several commands share is in flags.go. config completes and validates them and makes a
// config value of them, and a function that takes nothing else runs the command: it opens a run.Session, and has
// plugin/print print the result.
package command

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/docs"
	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// name is what a person types.
const name = "kubectl svcproxy"

// System is what only the main program has.
type System struct {
	// Serve answers for --local: nodehelper.Serve; nil where this system cannot be a node.
	Serve launch.Serve
}

// Main runs the plugin and returns its exit code. Nothing is written to the streams but by way of plugin/terminal.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams, system System) (code int) {
	env := newEnvironment(streams, system)
	env.args = args
	logTo(env.errOut)
	defer func() {
		if bug := recover(); bug != nil {
			code = crashed(env.errOut, bug)
		}
	}()
	args = withoutDashes(args)
	cmd := newRoot(env)
	cmd.SetArgs(args)
	for _, check := range []func(*cobra.Command, []string) error{oneDash, flagForValue} {
		if err := check(cmd, args); err != nil {
			return exit(ctx, err, env.errOut)
		}
	}
	return exit(ctx, cmd.ExecuteContext(ctx), env.errOut)
}

// environment is what every command gets: the streams, the kubectl flags, the process's environment, and the main
// program.
type environment struct {
	in          io.Reader
	out, errOut *terminal.Stream

	args   []string               // the command line
	offers func(flag string) bool // whether the command that runs shows a flag to people; nil before it does
	kube   *genericclioptions.ConfigFlags
	getenv func(string) string
	system System
}

func newEnvironment(streams genericiooptions.IOStreams, system System) *environment {
	return &environment{
		in:  streams.In,
		out: terminal.NewStream(streams.Out, os.Getenv), errOut: terminal.NewStream(streams.ErrOut, os.Getenv),
		kube: genericclioptions.NewConfigFlags(true), getenv: os.Getenv, system: system,
	}
}

// New makes the command tree.
func New(streams genericiooptions.IOStreams, system System) *cobra.Command {
	return newRoot(newEnvironment(streams, system))
}

func newRoot(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-svcproxy",
		Short: "Show what a node's kernel really does with packets to a Service",
		Long: `Follow packets to a Service through the rules of a node's kernel, compare the
result with what kube-proxy should have programmed, and explain every difference.

The exit code is 0 if the path is right, or refused because the API asks for it;
1 if there is a mismatch; 2 for wrong usage or unreadable input; 3 if something
could not be inspected, so that no claim is made; 4 if there are only warnings;
and 130 if interrupted. If several apply, the first of 1, 3, 4, 0 is returned.`,
		Example: `  # Where do packets to the Service web go on worker-2, and where should they go?
  kubectl svcproxy trace web -n shop --node worker-2

  # Is a Service wrong on any node?
  kubectl svcproxy verify -A --all-nodes

  # Keep the evidence, and inspect it again without the cluster
  kubectl svcproxy dump --node worker-2 -o dump.tar.gz
  kubectl svcproxy verify -A --snapshot dump.tar.gz`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,

		SuggestionsMinimumDistance: 2,

		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			env.offers = func(flag string) bool {
				f := cmd.Flags().Lookup(flag)
				return f != nil && !f.Hidden
			}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetOut(env.out.Writer())
	cmd.SetErr(env.errOut.Writer())
	cmd.SetIn(env.in)
	cmd.SetUsageTemplate(usageTemplate)
	fitHelps(env, cmd)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return flagError(c, env.args, err)
	})
	env.kube.AddFlags(cmd.PersistentFlags())
	addLogFlags(cmd.PersistentFlags())
	cmd.AddCommand(
		newTraceCommand(env), newVerifyCommand(env), newModeCommand(env), newStatusCommand(env),
		newResolveCommand(env), newDumpCommand(env),
		newDiffCommand(env), newProgramCommand(env), newCleanupCommand(env), newExplainCommand(env), newVersionCommand(env),
		newOptionsCommand(env.out.Style().Width),
	)
	for _, c := range cmd.Commands() {
		if c.Args == nil {
			c.Args = noLongDash
		}
	}
	cmd.SetHelpCommand(newHelpCommand())
	checkShells(cmd)
	env.addCompletions(cmd)
	return cmd
}

// pastedLines are lines of other tools that begin like a flag, each as one argument, with what is taken of them: a rule
// as iptables -S prints it; a virtual server, or one of its real servers, as ipvsadm-save does.
var pastedLines = []struct {
	line lazyregexp.Regexp
	by   string
}{
	{lazyregexp.New(`^(?:-t \w+ )?-[AI] (\S+ .*-[jg] \S.*)$`), "$1"},
	{lazyregexp.New(`^(?:-[AaEe] )?-t ([0-9\[]\S*)( .*)?$`), "TCP $1"},
	{lazyregexp.New(`^(?:-[AaEe] )?-u ([0-9\[]\S*)( .*)?$`), "UDP $1"},
	{lazyregexp.New(`^(?:-[AaEe] )?--sctp-service ([0-9\[]\S*)( .*)?$`), "SCTP $1"},
}

// withoutDashes makes arguments that are lines of other tools begin with a word.
func withoutDashes(args []string) []string {
	args = slices.Clone(args)
	for i := range args {
		for _, p := range pastedLines {
			args[i] = p.line().ReplaceAllString(args[i], p.by)
		}
	}
	return args
}

// noLongDash refuses arguments that were flags before an editor made one long dash of "--".
func noLongDash(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		first, _ := utf8.DecodeRuneInString(arg)
		if !cluster.IsDash(first) {
			continue
		}
		flag := strings.TrimLeftFunc(arg, func(r rune) bool { return r == '-' || cluster.IsDash(r) })
		dashes := "--"
		if utf8.RuneCountInString(flag) == 1 {
			dashes = "-"
		}
		return run.Usagef("%q begins with a dash that is not \"-\": did you mean %s%s?", arg, dashes, flag)
	}
	return nil
}

// noSuchCommand answers to a word that is not a command. The likeliest is the name of a Service.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if f, ok := docs.FindingOf(args[0]); ok {
		return run.Usagef("%q is a finding: %s explain %s", args[0], name, f.Code)
	}
	near := slices.Compact(cmd.SuggestionsFor(args[0])) // by its name, and by what it is suggested for
	if len(near) == 0 && isHelp(args[0]) {
		near = []string{"help"}
	}
	if len(near) > 0 {
		return run.Usagef("%q is not a command: did you mean %s %s?", args[0], name, strings.Join(near, " or "))
	}
	return run.Usagef("%q is not a command; to trace a Service: %s trace %s (see %s --help)",
		args[0], name, args[0], name)
}

// namespace returns that of -n, else that of the kubeconfig. With a snapshot no cluster is asked, so a kubeconfig that
// cannot be read matters only when it was named; without one, making the client complains.
func (e *environment) namespace() (string, error) {
	if ns := *e.kube.Namespace; ns != "" {
		return ns, nil
	}
	if err := e.checkContext(); err != nil {
		return "", err
	}
	ns, _, err := e.kube.ToRawKubeConfigLoader().Namespace()
	if err == nil {
		return ns, nil
	}
	if *e.kube.KubeConfig != "" {
		return "", err
	}
	return "default", nil
}
