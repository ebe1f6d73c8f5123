// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Helper is a connection to a node's helper. It handles one request at a time.
type Helper struct {
	node   string
	build  string // of this program
	waits  bool   // it was there before
	conn   *conn
	say    func(node, what string)
	why    func(error) error // adds what the cluster knows of a helper's end; may be nil
	remove func(ctx context.Context) error
	forget func(*Helper) // may be nil

	once sync.Once
	err  error
}

// Node is the node's name.
func (h *Helper) Node() string { return h.node }

// Build is the version of the helper program.
func (h *Helper) Build() string { return h.conn.client.Peer.Build }

// Collect has the helper read its node (nil: every file of the contract). It returns files by their names, and for
// each file that could not be read why. It returns all of an answer or an error, never a part. large is called before
// a large answer is taken into memory, and may wait; nil: it need not be.
func (h *Helper) Collect(
	ctx context.Context, files []string, large func(context.Context) error,
) (data map[string]snapshot.Packed, unread map[string]string, err error) {
	ctx, cancel := h.conn.deadline(ctx, bounds.Call)
	defer cancel()
	sink, data, unread := filesOf(ctx, large)
	if err = h.call(ctx, "collecting", wire.MethodCollect, wire.CollectParams{Files: files}, sink); err != nil {
		return nil, nil, fmt.Errorf("cannot read node %s: %w", h.node, err)
	}
	return data, unread, nil
}

// Judges tells whether the helper is to judge its node itself: one that waits on the node, and that is of the same
// build, so that it judges as this program does.
func (h *Helper) Judges() bool { return h.waits && h.Build() == h.build }

// Judge has the helper judge its node. It returns the answer's files by their names.
func (h *Helper) Judge(ctx context.Context, params *wire.JudgeParams) (map[string]snapshot.Packed, error) {
	ctx, cancel := h.conn.deadline(ctx, bounds.Call)
	defer cancel()
	sink, data, _ := filesOf(ctx, nil)
	sink.Large = func() error { return bounds.Errorf("the answer is larger than %s", bounds.Bytes(bounds.Held)) }
	if err := h.call(ctx, "judging", wire.MethodJudge, params, sink); err != nil {
		return nil, fmt.Errorf("node %s cannot be judged by its helper: %w", h.node, err)
	}
	return data, nil
}

// filesOf takes the files of an answer by their names, and why others could not be read. large may be nil.
func filesOf(
	ctx context.Context, large func(context.Context) error,
) (sink wire.Sink, data map[string]snapshot.Packed, unread map[string]string) {
	data, unread = map[string]snapshot.Packed{}, map[string]string{}
	sink = wire.Sink{File: func(f wire.Received) {
		if f.Unread != "" {
			unread[f.Name] = f.Unread
			return
		}
		data[f.Name] = f.Content
	}}
	if large != nil {
		sink.Large = func() error { return large(ctx) }
	}
	return sink, data, unread
}

// Pod has the helper read the network namespace of a pod of its node. It returns what [Helper.Collect] does, with the
// names of snapshot.PodFiles.
func (h *Helper) Pod(
	ctx context.Context, pod wire.PodParams, large func(context.Context) error,
) (data map[string]snapshot.Packed, unread map[string]string, err error) {
	ctx, cancel := h.conn.deadline(ctx, bounds.Call)
	defer cancel()
	sink, data, unread := filesOf(ctx, large)
	if err := h.call(ctx, "collecting from a pod", wire.MethodPod, pod, sink); err != nil {
		return nil, nil, err
	}
	return data, unread, nil
}

// Probe has the helper connect to targets, and returns the file [snapshot.ProbesFile].
func (h *Helper) Probe(ctx context.Context, params wire.ProbeParams) (data []byte, err error) {
	data, err = h.small(ctx, "probing", wire.MethodProbe, params)
	if err != nil {
		return nil, fmt.Errorf("cannot probe from node %s: %w", h.node, err)
	}
	return data, nil
}

// Follow has the helper follow connections that others make, until [Helper.Followed] asks what was seen.
func (h *Helper) Follow(ctx context.Context, params wire.FollowParams) error {
	if _, err := h.small(ctx, "following connections", wire.MethodFollow, params); err != nil {
		return fmt.Errorf("cannot follow connections on node %s: %w", h.node, err)
	}
	return nil
}

// Followed has the helper end what Follow began, and tell what its node's kernel saw of flows.
func (h *Helper) Followed(ctx context.Context, flows []snapshot.Flow) (*snapshot.Followed, error) {
	data, err := h.small(ctx, "following connections", wire.MethodFollowed, wire.FollowedParams{Flows: flows})
	if err != nil {
		return nil, fmt.Errorf("cannot follow connections on node %s: %w", h.node, err)
	}
	return snapshot.ParseFollowed(data)
}

// Names has the helper ask name servers from a pod of its node.
func (h *Helper) Names(
	ctx context.Context, pod wire.PodParams, questions []snapshot.NameQuestion,
) (*snapshot.NameAnswers, error) {
	data, err := h.small(ctx, "asking for names", wire.MethodNames, wire.NamesParams{Pod: pod, Questions: questions})
	if err != nil {
		return nil, fmt.Errorf("cannot ask for names on node %s: %w", h.node, err)
	}
	return snapshot.ParseNameAnswers(data)
}

// Health has the helper ask health-check ports of its node.
func (h *Helper) Health(ctx context.Context, ports []netip.AddrPort) (*snapshot.HealthAnswers, error) {
	data, err := h.small(ctx, "asking health-check ports", wire.MethodHealth, wire.HealthParams{Ports: ports})
	if err != nil {
		return nil, fmt.Errorf("cannot ask health-check ports of node %s: %w", h.node, err)
	}
	return snapshot.ParseHealthAnswers(data)
}

// small returns the last file of an answer that has one, and is not large; also with an error of the helper, if there
// is one. Of an answer that broke off nothing is used.
func (h *Helper) small(ctx context.Context, what, method string, params any) (data []byte, err error) {
	ctx, cancel := h.conn.deadline(ctx, bounds.Change)
	defer cancel()
	var content snapshot.Packed
	var received bool
	sink := wire.Sink{
		File:  func(f wire.Received) { content, received = f.Content, true },
		Large: func() error { return bounds.Errorf("the answer is larger than %s", bounds.Bytes(bounds.Held)) },
	}
	err = h.call(ctx, what, method, params, sink)
	if !received || err != nil && !Answers(err) {
		return nil, err
	}
	if content.Len() > bounds.SmallFile {
		return nil, errors.Join(err, bounds.TooLarge("the answer", bounds.SmallFile))
	}
	data, unpacking := content.Bytes()
	return data, errors.Join(err, unpacking)
}

// Answers reports whether an error is the helper's own account, so that it can be asked for more.
func Answers(err error) bool {
	_, remote := errors.AsType[*wire.RemoteError](err)
	return remote
}

// Program has the helper program paths.
func (h *Helper) Program(ctx context.Context, params *wire.ProgramParams) (*wire.ProgramResult, error) {
	var out wire.ProgramResult
	if err := h.change(ctx, "programming", wire.MethodProgram, params, &out); err != nil {
		return nil, fmt.Errorf("cannot program node %s: %w", h.node, err)
	}
	return &out, nil
}

// Undo has the helper remove programmed paths: which is wire.UndoMine, wire.UndoDead or wire.UndoAll. With an error it
// returns those that are removed.
func (h *Helper) Undo(ctx context.Context, which string) (undone []wire.Undone, err error) {
	if err := h.change(ctx, "undoing", wire.MethodUndo, wire.UndoParams{Which: which}, &undone); err != nil {
		return undone, fmt.Errorf("cannot undo what is programmed on node %s: %w", h.node, err)
	}
	return undone, nil
}

// Orphans has the helper list what outlives the journal of programmed paths on its node, and remove what is asked for.
func (h *Helper) Orphans(ctx context.Context, params wire.OrphansParams) (*wire.Orphans, error) {
	var found wire.Orphans
	if err := h.change(ctx, "looking for what is left over", wire.MethodOrphans, params, &found); err != nil {
		return nil, fmt.Errorf("cannot tell what is left over on node %s: %w", h.node, err)
	}
	return &found, nil
}

// change has the helper change the node. The answer is decoded also with an error, if there is one.
func (h *Helper) change(ctx context.Context, what, method string, params, out any) error {
	data, err := h.small(ctx, what, method, params)
	if data == nil && err != nil {
		return err
	}
	return errors.Join(err, json.Unmarshal(data, out))
}

// Leave closes the connection and lets the helper run until its programmed paths expire; the next run removes its pod
// then. It is called instead of Close.
func (h *Helper) Leave() {
	h.once.Do(func() {
		h.conn.close()
		if h.forget != nil {
			h.forget(h)
		}
	})
}

// call sends the helper a request, and receives the answer; what is the progress that people see.
func (h *Helper) call(ctx context.Context, what, method string, params any, sink wire.Sink) error {
	if h.say != nil {
		sink.Progress = func(text string) { h.say(h.node, text) }
		h.say(h.node, what)
	}
	err := h.conn.call(ctx, method, params, sink)
	if err != nil && ctx.Err() == nil && h.why != nil {
		return h.why(err)
	}
	return err
}

// Close ends the helper and removes its pod, also when the context of the run has ended. It may be called twice.
func (h *Helper) Close() error {
	h.once.Do(func() {
		// Undoing may take the helper some time; the pod is deleted meanwhile.
		ended := make(chan struct{})
		go func() {
			h.conn.close()
			close(ended)
		}()
		h.err = h.remove(context.Background())
		<-ended
		if h.forget != nil {
			h.forget(h)
		}
	})
	return h.err
}
