// SPDX-License-Identifier: Apache-2.0

// Package nodehelper is the part that runs on a node: it answers the plugin's requests, in the protocol of
// nodehelper/wire. It runs as root in the network namespace of a node, in a pod or on the node itself.
package nodehelper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/healthcheck"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/live"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/names"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Options are the settings of [Serve].
type Options struct {
	// Root is where the node's own file system is to be found: "/" on the node itself, "/proc/1/root" in a pod with
	// hostPID.
	Root string
	// Build is the version of this program, for people.
	Build string
	// Hello is how long to wait for the plugin's hello, Deadline how long to run altogether; 0: without limit.
	Hello, Deadline time.Duration
	// Run is the id of the plugin's run. If an earlier helper of the same run was killed, its programmed paths are taken
	// over, and no plugin is waited for.
	Run string
	// Log writes a line for people who read the container's log; nil: nobody does.
	Log func(line string)
	// Collect reads the node; nil: collect.Collect does.
	Collect func(ctx context.Context, o collect.Options, emit func(collect.File) error) error
	// Judge judges the node; nil: Judged does.
	Judge func(ctx context.Context, p *wire.JudgeParams) (*Judgement, error)
}

// maxLine is the length of the longest line of the log, in bytes.
const maxLine = 2000

// The errors of a helper that ends without a plugin. They do not tell of a fault on the node.
var (
	ErrNoHello  = errors.New("no hello arrived in time")
	ErrDeadline = errors.New("the helper's time is over")
)

// Serve answers the plugin until that closes in, the context ends or a deadline passes. It undoes all changes that were
// made for the plugin, and returns nil only for the first. A read of in may still be pending afterwards: the caller has
// to end the process, or to close in.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	if o.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Deadline, fmt.Errorf("%w: %v", ErrDeadline, o.Deadline))
		defer cancel()
	}
	log := func(line string) {
		if o.Log != nil {
			o.Log(safetext.Line(line, maxLine))
		}
	}
	programmer, err := programmerOf(o.Root, log)
	if err != nil {
		return err
	}
	if o.Run != "" {
		err := programmer.Adopt(ctx, o.Run)
		if len(programmer.Held()) > 0 {
			return errors.Join(err, programmer.Hold(ctx))
		}
		if err != nil {
			return err
		}
	}
	s, err := meet(ctx, in, out, o)
	if err != nil {
		return err
	}
	p, f := &paths{Programmer: programmer, root: o.Root}, &followings{root: o.Root}
	err = s.Serve(ctx, o.handlers(p, f))
	return errors.Join(err, f.end(), p.end(ctx))
}

// meet waits for the plugin's hello.
func meet(ctx context.Context, in io.Reader, out io.Writer, o Options) (*wire.Server, error) {
	if o.Hello > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Hello, fmt.Errorf("%w: %v", ErrNoHello, o.Hello))
		defer cancel()
	}
	type met struct {
		*wire.Server
		err error
	}
	result := make(chan met, 1)
	go func() {
		s, err := wire.NewServer(in, out, o.Build)
		result <- met{s, err}
	}()
	select {
	case m := <-result:
		return m.Server, m.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// handlers is the table of requests.
func (o Options) handlers(p *paths, f *followings) map[string]wire.Handler {
	return map[string]wire.Handler{
		wire.MethodCollect:  handler(o.collect),
		wire.MethodJudge:    handler(o.judge),
		wire.MethodPod:      handler(o.pod),
		wire.MethodNames:    handler(o.names),
		wire.MethodHealth:   handler(o.health),
		wire.MethodProbe:    handler(o.probe),
		wire.MethodFollow:   handler(f.follow),
		wire.MethodFollowed: handler(f.followed),
		wire.MethodProgram:  handler(p.program),
		wire.MethodUndo:     handler(p.undo),
		wire.MethodOrphans:  handler(p.orphans),
	}
}

// handler reads the parameters of a request.
func handler[P any](h func(context.Context, P, *wire.Answer) error) wire.Handler {
	return func(ctx context.Context, params json.RawMessage, a *wire.Answer) error {
		var p P
		if err := json.Unmarshal(params, &p); err != nil {
			return fmt.Errorf("the parameters of the request cannot be read: %w", err)
		}
		return h(ctx, p, a)
	}
}

// probe makes connections.
func (o Options) probe(ctx context.Context, p wire.ProbeParams, a *wire.Answer) error {
	if len(p.Targets) > bounds.ProbeTargets || len(p.Pods) > bounds.ProbeTargets {
		return bounds.Errorf("%d targets to connect to, from %d pods: at most %d were expected", len(p.Targets), len(p.Pods),
			bounds.ProbeTargets)
	}
	var pods []podns.Pod
	for _, params := range p.Pods {
		of, err := podOf(params)
		if err != nil {
			return err
		}
		pods = append(pods, of)
	}
	done, err := live.Run(ctx, o.Root, p.Targets, pods...)
	if err != nil {
		return err
	}
	return sendJSON(a, snapshot.ProbesFile, done)
}

// sendJSON answers with one file.
func sendJSON(a *wire.Answer, name string, answer any) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return a.File(wire.File{Name: name, Data: data})
}

// maxPodNames is how many UIDs and how many addresses one pod may have.
const maxPodNames = 64

// pod reads the network namespace of a pod.
func (o Options) pod(ctx context.Context, p wire.PodParams, a *wire.Answer) error {
	of, err := podOf(p)
	if err != nil {
		return err
	}
	return collect.Pod(ctx, collect.Options{Root: o.Root}, of, func(f collect.File) error {
		return a.File(wire.File{Name: f.Name, Data: f.Data, Unread: f.Unread})
	})
}

// podOf is the pod that parameters name.
func podOf(p wire.PodParams) (podns.Pod, error) {
	if len(p.UIDs) > maxPodNames || len(p.Addresses) > maxPodNames {
		return podns.Pod{}, bounds.Errorf("a pod with more than %d UIDs or addresses: one or two were expected",
			maxPodNames)
	}
	return podns.Pod{UIDs: p.UIDs, Addresses: p.Addresses}, nil
}

// names asks name servers from a pod.
func (Options) names(ctx context.Context, p wire.NamesParams, a *wire.Answer) error {
	of, err := podOf(p.Pod)
	if err != nil {
		return err
	}
	answers, err := names.Ask(ctx, of, p.Questions)
	if err != nil {
		return err
	}
	return sendJSON(a, snapshot.NamesFile, answers)
}

// health asks health-check ports of the node.
func (Options) health(ctx context.Context, p wire.HealthParams, a *wire.Answer) error {
	answers, err := healthcheck.Ask(ctx, p.Ports)
	if err != nil {
		return err
	}
	return sendJSON(a, snapshot.HealthFile, answers)
}

// collect reads the node.
func (o Options) collect(ctx context.Context, p wire.CollectParams, a *wire.Answer) error {
	return o.read(ctx, collect.Options{Root: o.Root, Files: p.Files}, func(f collect.File) error {
		return a.File(wire.File{Name: f.Name, Data: f.Data, Unread: f.Unread})
	})
}

// read reads the node.
func (o Options) read(ctx context.Context, what collect.Options, emit func(collect.File) error) error {
	read := o.Collect
	if read == nil {
		read = collect.Collect
	}
	return read(ctx, what, emit)
}
