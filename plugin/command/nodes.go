// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// openNodes opens a session, reads the objects of the cluster, and chooses the nodes for a command that names no
// Service. The caller closes the session.
func openNodes(ctx context.Context, c run.Config) (s *run.Session, nodes []string, err error) {
	if s, err = run.Open(c); err != nil {
		return nil, nil, err
	}
	if err = s.ReadObjects(ctx); err == nil {
		nodes, err = s.ChooseNodes(nil)
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, nodes, nil
}
