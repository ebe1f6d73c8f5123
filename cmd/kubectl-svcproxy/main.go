// SPDX-License-Identifier: Apache-2.0

// Command kubectl-svcproxy is the kubectl plugin: kubectl svcproxy.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the authentication plugins that kubeconfigs name

	"github.com/svcproxy/kubectl-svcproxy/plugin/command"
)

// memoryLimit is from how many bytes on the garbage collector works more: two nodes of 5,000 Services and the objects
// of the cluster need 250 MB, and the plugin stays below 600 MB with hostile input, too (trace/bounds).
const memoryLimit = 448 << 20

func main() {
	os.Exit(run())
}

func run() int {
	debug.SetGCPercent(400) // most of what a run of a few seconds reads is in use until its end
	debug.SetMemoryLimit(memoryLimit)
	// The first signal ends the work in order; a second one ends the process, as the handler is gone by then.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return command.Main(ctx, os.Args[1:], streams, command.System{Serve: local()})
}
