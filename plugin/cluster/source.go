// SPDX-License-Identifier: Apache-2.0

// Package cluster is the API's side of a command: it finds the Service that a person means, by name or by address, and
// says what the API knows of it, as facts that whoever makes a report puts into its types. It reads the objects through
// a Source, and does not care whether they come from a cluster or a snapshot.
package cluster

import (
	"context"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Source gives the cluster's objects.
type Source interface {
	// Objects returns all but the pods: Services, EndpointSlices, Nodes, kube-proxy's ConfigMap.
	Objects(ctx context.Context) (*snapshot.Cluster, error)
	// Proxied returns the same with Services and EndpointSlices as they are now.
	Proxied(ctx context.Context, objects *snapshot.Cluster) (*snapshot.Cluster, error)
	// Narrowed says why only one namespace's Services are read; nil where all are.
	Narrowed() error
	// Pods adds pods to the objects. Those that there are not are no error.
	Pods(ctx context.Context, objects *snapshot.Cluster, which Pods) error
}

// Pods says which pods are wanted. A large cluster has 150,000, and a trace needs a few hundred at most.
type Pods struct {
	All             bool
	Nodes           []string // those on these nodes
	Namespace, Name string   // this one; without a name all of the namespace
	Address         netip.Addr
}

// FromSnapshot is a Source that reads the objects of a snapshot; it has all of its pods from the start.
func FromSnapshot(s *snapshot.Snapshot) Source { return snapshotSource{s} }

type snapshotSource struct{ *snapshot.Snapshot }

func (s snapshotSource) Objects(context.Context) (*snapshot.Cluster, error) { return s.Cluster() }

func (s snapshotSource) Proxied(_ context.Context, objects *snapshot.Cluster) (*snapshot.Cluster, error) {
	return objects, nil
}

func (s snapshotSource) Narrowed() error { return nil }

func (s snapshotSource) Pods(context.Context, *snapshot.Cluster, Pods) error { return nil }
