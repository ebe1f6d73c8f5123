// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Session is a helper that answers. It does one thing at a time.
type Session struct {
	node   string
	conn   *conn
	say    func(node, what string)
	why    func(error) error // adds what the cluster knows of a helper's end; may be nil
	remove func(ctx context.Context) error
	forget func(*Session) // may be nil

	once sync.Once
	err  error
}

// Node is the node's name, Build the version of its helper.
func (s *Session) Node() string { return s.node }

// Build is the version of the helper.
func (s *Session) Build() string { return s.conn.client.Peer.Build }

// Collect has the helper read its node (nil: every file of the contract). It returns files by their names, and for each
// file that could not be read why. It returns all of an answer or an error, never a part.
func (s *Session) Collect(
	ctx context.Context, files []string,
) (data map[string][]byte, unread map[string]string, err error) {
	data, unread = map[string][]byte{}, map[string]string{}
	sink := wire.Sink{File: func(f wire.File) {
		if f.Unread != "" {
			unread[f.Name] = f.Unread
			return
		}
		data[f.Name] = f.Data
	}}
	err = s.call(ctx, "collecting", wire.MethodCollect, wire.CollectParams{Files: files}, sink)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read node %s: %w", s.node, err)
	}
	return data, unread, nil
}

// Probe has the helper connect to targets, and returns the file [snapshot.ProbesFile].
func (s *Session) Probe(ctx context.Context, targets []snapshot.ProbeTarget) (data []byte, err error) {
	sink := wire.Sink{File: func(f wire.File) { data = f.Data }}
	err = s.call(ctx, "probing", wire.MethodProbe, wire.ProbeParams{Targets: targets}, sink)
	if err != nil {
		return nil, fmt.Errorf("cannot probe from node %s: %w", s.node, err)
	}
	return data, nil
}

// Program has the helper program paths.
func (s *Session) Program(ctx context.Context, params *wire.ProgramParams) (*wire.ProgramResult, error) {
	var out wire.ProgramResult
	if err := s.change(ctx, "programming", wire.MethodProgram, params, &out); err != nil {
		return nil, fmt.Errorf("cannot program node %s: %w", s.node, err)
	}
	return &out, nil
}

// Undo has the helper take programmed paths away: wire.UndoMine, wire.UndoDead or wire.UndoAll.
func (s *Session) Undo(ctx context.Context, which string) (undone []wire.Undone, err error) {
	if err := s.change(ctx, "undoing", wire.MethodUndo, wire.UndoParams{Which: which}, &undone); err != nil {
		return nil, fmt.Errorf("cannot undo what is programmed on node %s: %w", s.node, err)
	}
	return undone, nil
}

func (s *Session) change(ctx context.Context, what, method string, params, out any) error {
	var data []byte
	if err := s.call(ctx, what, method, params, wire.Sink{File: func(f wire.File) { data = f.Data }}); err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// Leave ends the connection, and leaves the helper to what it holds: it goes when that has had its time. It is in place
// of Close.
func (s *Session) Leave() {
	s.once.Do(func() {
		s.conn.close()
		if s.forget != nil {
			s.forget(s)
		}
	})
}

// call asks the helper for one thing; what says so to people.
func (s *Session) call(ctx context.Context, what, method string, params any, sink wire.Sink) error {
	if s.say != nil {
		sink.Progress = func(text string) { s.say(s.node, text) }
		s.say(s.node, what)
	}
	err := s.conn.call(ctx, method, params, sink)
	if err != nil && ctx.Err() == nil && s.why != nil {
		return s.why(err)
	}
	return err
}

// Close ends the helper and removes its pod, also when the context of the run has ended. It may be called twice.
func (s *Session) Close() error {
	s.once.Do(func() {
		// The helper may take its time to undo what it did; the API server is told meanwhile.
		ended := make(chan struct{})
		go func() {
			s.conn.close()
			close(ended)
		}()
		s.err = s.remove(context.Background())
		<-ended
		if s.forget != nil {
			s.forget(s)
		}
	})
	return s.err
}
