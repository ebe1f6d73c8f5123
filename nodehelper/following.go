// SPDX-License-Identifier: Apache-2.0

package nodehelper

import (
	"context"
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/follow"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// followings are the connections that are followed for a plugin: of one request at a time.
type followings struct {
	root string // the node's file system
	now  *follow.Following
}

// follow begins to follow connections, in place of earlier ones.
func (f *followings) follow(_ context.Context, p wire.FollowParams, _ *wire.Answer) error {
	if err := f.end(); err != nil {
		return err
	}
	pods := make(map[string]podns.Pod, min(len(p.Pods), follow.MaxPods))
	for name, params := range p.Pods {
		of, err := podOf(params)
		if err != nil {
			return err
		}
		pods[name] = of
	}
	var err error
	f.now, err = follow.Begin(follow.Request{
		Servers: p.Servers, Clients: p.Clients, Pods: pods, Root: f.root, Rules: p.Rules, Tunnels: p.Tunnels,
	})
	return err
}

// followed says what was seen of connections.
func (f *followings) followed(ctx context.Context, p wire.FollowedParams, a *wire.Answer) error {
	if f.now == nil {
		return errors.New("no connections are followed")
	}
	seen, err := f.now.End(ctx, p.Flows)
	if err := errors.Join(err, f.end()); err != nil {
		return err
	}
	return sendJSON(a, snapshot.FollowedFile, seen)
}

// end ends what is under way.
func (f *followings) end() error {
	if f.now == nil {
		return nil
	}
	err := f.now.Close()
	f.now = nil
	return err
}
