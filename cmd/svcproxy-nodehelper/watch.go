// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/svcproxy/kubectl-svcproxy/internal/apiraw"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/live"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/watch"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// watchFlags are the flags of watch.
type watchFlags struct {
	node, root, namespace, listen, kubeconfig string

	apiServers []string
	share      float64
	full, poll time.Duration
}

func (o *watchFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "the node's name in the API (default $NODE_NAME)")
	flags.StringVar(&o.root, "root", "/proc/1/root", "where the node's file system is")
	flags.StringVar(&o.namespace, "netns", "/proc/1/ns/net", "the node's network namespace")
	flags.StringVar(&o.listen, "listen", ":9469", "where to serve /metrics, in the pod's own network namespace")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; by default as a pod does")
	flags.Func("api-server", "HOST:PORT of an API server, to be tried first; may be given several times",
		func(s string) error {
			_, _, err := net.SplitHostPort(s)
			o.apiServers = append(o.apiServers, s)
			return err
		})
	flags.Float64Var(&o.share, "cpu", watch.DefaultShare, "how much of one processor the agent may take on average")
	flags.DurationVar(&o.full, "full", watch.DefaultFull, "the time between two passes if nothing changes")
	flags.DurationVar(&o.poll, "poll", watch.DefaultPoll, "the same if the kernel does not announce changes of rules")
}

// check refuses what would never end or never begin.
func (o *watchFlags) check() error {
	switch {
	case o.node == "":
		return errors.New("--node is missing: the node's name in the API")
	case o.share <= 0 || o.share > 1:
		return fmt.Errorf("--cpu is %v: it has to be above 0 and at most 1", o.share)
	case o.full < time.Second || o.poll < time.Second:
		return errors.New("--full and --poll have to be at least 1s")
	}
	return nil
}

// watchNode watches the node until the context ends.
func watchNode(ctx context.Context, args []string, _ io.Writer) error {
	var o watchFlags
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	o.add(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return noArgs(flags.Args(), func() error {
		if err := o.check(); err != nil {
			return err
		}
		return o.run(ctx)
	})
}

// watchMemoryLimit is from how many bytes on the garbage collector of an agent works more: a pass over a node of 5,000
// Services stays below it, and the programs that a pass runs need memory of their own.
const watchMemoryLimit = 160 << 20

// endTime is how long after SIGTERM the process ends, whatever it does.
const endTime = 1500 * time.Millisecond

func (o *watchFlags) run(ctx context.Context) error {
	context.AfterFunc(ctx, func() {
		//nolint:forbidigo // for a pass that cannot be ended; nothing on the node is to be undone
		time.AfterFunc(endTime, func() { os.Exit(0) })
	})
	tuneCollector(50, watchMemoryLimit) // what a pass leaves is in use while the agent sleeps
	listener, err := watch.Enter(o.listen, o.namespace, os.Args)
	if err != nil {
		return err
	}
	defer listener.Close()
	dialer := watch.NewDialer(o.apiServers)
	client, err := o.client(dialer)
	if err != nil {
		return err
	}
	agent, err := watch.New(watch.Options{
		Node: o.node, Build: nodehelper.Version(), Client: client, Reports: watch.NewReports(client), Dialer: dialer,
		Share: o.share, Full: o.full, Poll: o.poll,
		Read: watch.NodeReader(o.node, o.root), Look: watch.NodeLooker(o.root), Tracked: live.Tracked,
		Log: func(line string) { fmt.Fprintln(os.Stderr, safetext.Line(line, maxMessage)) },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(agent.Serve(ctx, listener)) }()
	err = agent.Run(ctx)
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		return cause
	}
	return err
}

// client makes a client of the API server.
func (o *watchFlags) client(dialer *watch.Dialer) (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config.Dial = dialer.Dial
	config.Wrap(apiraw.Bound(bounds.File))
	config.UserAgent = "svcproxy-nodehelper/" + nodehelper.Version()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}
