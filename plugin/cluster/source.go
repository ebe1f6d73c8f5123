// SPDX-License-Identifier: Apache-2.0

// Package cluster is the API's side of a command: it finds the Service that a person means, by name or by address, and says what
// the API knows of it. It reads the objects through a Source, and does not care whether they come from a cluster or a snapshot.
package cluster

import (
	"context"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Source gives the cluster's objects.
type Source interface {
	Objects(ctx context.Context) (*snapshot.Cluster, error)
}

// FromSnapshot is a Source that reads the objects of a snapshot.
func FromSnapshot(s *snapshot.Snapshot) Source { return snapshotSource{s} }

type snapshotSource struct{ *snapshot.Snapshot }

func (s snapshotSource) Objects(context.Context) (*snapshot.Cluster, error) { return s.Cluster() }
