// SPDX-License-Identifier: Apache-2.0

package nodehelper

import (
	"context"
	"errors"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/live"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// paths are the paths that are programmed for a plugin.
type paths struct {
	*program.Programmer

	root   string // the node's file system
	follow bool   // they are undone when the plugin ends
}

// programmerOf makes the Programmer of a node; root is its file system, log may be nil.
func programmerOf(root string, log func(line string)) (*program.Programmer, error) {
	return program.New(program.Options{
		Root: root, Roots: func() []string { return collect.WriterRoots(root) }, Log: log,
		// By this path it is found also in another mount namespace.
		Expirer: []string{"/proc/self/exe", "expire"},
	})
}

// Expire undoes a programmed path at its time, also where the helper that programmed it is gone. root is the node's
// file system, plan the name of the path. See [program.Programmer.Expire].
func Expire(ctx context.Context, root, plan string, started io.WriteCloser) error {
	p, err := programmerOf(root, nil)
	if err != nil {
		return err
	}
	return p.Expire(ctx, plan, started)
}

// program programs the paths of a request. A refusal is an answer, not an error.
func (p *paths) program(ctx context.Context, params wire.ProgramParams, a *wire.Answer) error {
	request, err := program.DecodeRequest(params)
	if err != nil {
		return err
	}
	result, err := p.Apply(ctx, request)
	if refusal, ok := errors.AsType[program.RefusalError](err); ok {
		result, err = &wire.ProgramResult{Refused: refusal.Error()}, nil
	}
	if err != nil {
		return err
	}
	p.follow = params.Follow
	return sendJSON(a, wire.ProgramFile, result)
}

// undo removes programmed paths. With those of other helpers it also restores what interrupted tracing changed.
func (p *paths) undo(ctx context.Context, params wire.UndoParams, a *wire.Answer) error {
	records, err := p.Undo(ctx, params.Which)
	if params.Which != wire.UndoMine {
		err = errors.Join(err, live.Restore(p.root))
	}
	undone := make([]wire.Undone, len(records))
	for i, r := range records {
		undone[i] = wire.Undone{Services: r.Plan.Services, Mode: r.Mode, By: r.By, Left: r.Left}
	}
	return errors.Join(err, sendJSON(a, wire.ProgramFile, undone)) // what was undone is said also where not all was
}

// orphans lists, and removes, what outlives the journal.
func (p *paths) orphans(ctx context.Context, params wire.OrphansParams, a *wire.Answer) error {
	found, err := p.Orphans(ctx, params.Remove, params.Foreign)
	if err != nil {
		return err
	}
	return sendJSON(a, wire.ProgramFile, found)
}

// end waits until the programmed paths expire, or the context ends, and removes them. Paths with follow are removed
// immediately.
func (p *paths) end(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.follow {
		cancel()
	}
	return p.Hold(ctx)
}
