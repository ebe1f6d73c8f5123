// SPDX-License-Identifier: Apache-2.0

// Command svcproxy-nodehelper is what runs on a node, in the pods of kubectl svcproxy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper"
)

const usage = `svcproxy-nodehelper is the part of kubectl svcproxy that runs on a node, as root. The plugin starts ` +
	`it; it is not meant to be run by hand.

  svcproxy-nodehelper [serve] [flags]   answer the plugin over stdin and stdout, until stdin ends
  svcproxy-nodehelper wait              do nothing until SIGTERM: the container of a DaemonSet, in which the plugin ` +
	`runs serve
  svcproxy-nodehelper version           print the version

Flags of serve:
`

// How long undoing may take after SIGTERM, before the process ends all the same. It is shorter than the termination
// grace period of the pod (plugin/launch), so that the message about it is still written.
const (
	defaultGrace = 8 * time.Second
	programGrace = 55 * time.Second // in pods that program paths, which have --run
)

// commands are the subcommands.
var commands = map[string]func(ctx context.Context, args []string, stdout io.Writer) error{
	"serve": serve,
	"wait": func(ctx context.Context, args []string, _ io.Writer) error {
		return noArgs(args, func() error { return wait(ctx) })
	},
	"watch":  watchNode,
	"expire": expire, // not in the usage: a helper starts it
	"version": func(_ context.Context, args []string, stdout io.Writer) error {
		return noArgs(args, func() error { return version(stdout) })
	},
}

// helperMemoryLimit is from how many bytes on the garbage collector works more: half of the memory limit of the
// helper's pod, as the programs that it starts need the other half.
const helperMemoryLimit = 512 << 20

// tuneCollector sets how much garbage may accumulate, in percent of the memory in use, and the memory limit in bytes,
// each unless the environment does.
func tuneCollector(percent int, memoryLimit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

func main() {
	os.Exit(run())
}

func run() int {
	tuneCollector(400, helperMemoryLimit) // most of what a short run reads is in use until its end
	// Only frames may go to stdout: what else prints, by mistake, prints to stderr.
	stdout := os.Stdout
	os.Stdout = os.Stderr
	// The runtime closes a file that nobody refers to: its number is then the next one's, which the collector of a program
	// that is executed in this one's place closes in turn.
	defer runtime.KeepAlive(stdout)
	// A plugin that is gone must not kill a helper that has something to undo.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	command, args := "serve", os.Args[1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	run := commands[command]
	if run == nil {
		fmt.Fprintf(os.Stderr, "error: %q is not a command of svcproxy-nodehelper: use serve, wait, watch or version\n",
			command)
		return 2
	}
	err := run(ctx, args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled):
		return 0
	}
	fail(err)
	return 1
}

// fail says why the process ends.
func fail(err error) {
	message := safetext.Line(err.Error(), maxMessage) // kubectl logs and kubectl describe print it as it is
	fmt.Fprintln(os.Stderr, "error: "+message)
	leaveMessage(message)
}

// endWithin ends the process when undoing takes longer than the grace period after the end of the context. The journal
// says what is left; others can undo it, as the process does not run any more.
func endWithin(ctx context.Context, grace time.Duration) {
	context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() {
			fail(fmt.Errorf("undoing did not end within %v: what is programmed stays on the node until the next helper that "+
				"programs something there after its time, or kubectl svcproxy cleanup --node NODE", grace))
			os.Exit(1)
		})
	})
}

// maxMessage is how many bytes of a termination message the kubelet keeps (pkg/kubelet/kuberuntime,
// MaxContainerTerminationMessageLength).
const maxMessage = 4096

// leaveMessage writes an error to the file of the container's termination message (terminationMessagePath), if there is
// one: the plugin finds it in the pod's status, also if it was not attached.
func leaveMessage(message string) {
	f, openErr := os.OpenFile("/dev/termination-log", os.O_WRONLY|os.O_TRUNC, 0)
	if openErr != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(message)
}

func serve(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	o := nodehelper.Options{
		Build: nodehelper.Version(), Log: func(line string) { fmt.Fprintln(os.Stderr, line) },
	}
	flags.StringVar(&o.Root, "root", "/proc/1/root", "where the node's file system is")
	flags.DurationVar(&o.Hello, "hello", 30*time.Second, "exit if the plugin does not say hello within this time")
	flags.DurationVar(&o.Deadline, "deadline", 10*time.Minute, "exit after this time in any case")
	flags.StringVar(&o.Run, "run", "", "take over what an earlier helper of this run programmed")
	grace := flags.Duration("grace", 0, fmt.Sprintf("how long undoing may take after SIGTERM (default %v, with --run %v)",
		defaultGrace, programGrace))
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *grace <= 0 {
		*grace = defaultGrace
		if o.Run != "" {
			*grace = programGrace
		}
	}
	endWithin(ctx, *grace)
	return noArgs(flags.Args(), func() error {
		return nodehelper.Serve(ctx, os.Stdin, stdout, o)
	})
}

// expire ends the path of a plan at its time. A helper starts it, with file descriptor 3 for its answer.
func expire(ctx context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("expire", flag.ContinueOnError)
	root := flags.String("root", "/proc/1/root", "where the node's file system is")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("expire takes the name of one plan, and %d arguments were given", flags.NArg())
	}
	const answer = 3
	started := os.NewFile(answer, "answer")
	if started == nil {
		return errors.New("expire is started by a helper, not by a person")
	}
	return nodehelper.Expire(ctx, *root, flags.Arg(0), started)
}

func version(stdout io.Writer) error {
	_, err := fmt.Fprintln(stdout, "svcproxy-nodehelper "+nodehelper.Version())
	return err
}

func noArgs(args []string, run func() error) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is one argument too many: see svcproxy-nodehelper -h", args[0])
	}
	return run()
}
