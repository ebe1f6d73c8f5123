// SPDX-License-Identifier: Apache-2.0

package nodehelper

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/live"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// programs are the paths that were programmed for a plugin.
type programs struct {
	*program.Programmer

	root   string // the node's file system
	follow bool   // they end with the plugin
}

// program programs paths. A refusal is an answer.
func (p *programs) program(ctx context.Context, params wire.ProgramParams, a *wire.Answer) error {
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
	return send(a, result)
}

// undo takes away what was programmed. What tracing left goes along with what others left.
func (p *programs) undo(ctx context.Context, params wire.UndoParams, a *wire.Answer) error {
	records, err := p.Undo(ctx, params.Which)
	if params.Which != wire.UndoMine {
		err = errors.Join(err, live.Restore(p.root))
	}
	if err != nil {
		return err
	}
	undone := make([]wire.Undone, len(records))
	for i, r := range records {
		undone[i] = wire.Undone{Services: r.Plan.Services, Mode: r.Mode, By: r.By}
	}
	return send(a, undone)
}

func send(a *wire.Answer, answer any) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return a.File(wire.File{Name: wire.ProgramFile, Data: data})
}

// end keeps what was programmed for its time, or until the context ends, and takes it away then. What follows a plugin
// goes with it.
func (p *programs) end(ctx context.Context) error {
	if !p.follow {
		return p.Hold(ctx)
	}
	_, err := p.Undo(context.WithoutCancel(ctx), wire.UndoMine)
	return err
}
