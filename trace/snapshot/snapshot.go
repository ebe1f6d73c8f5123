// SPDX-License-Identifier: Apache-2.0

// Package snapshot reads and writes the snapshot format: a directory or .tar.gz of what standard tools print about a
// cluster and its nodes (docs/snapshots.md). A missing file means "not collected", never "empty".
package snapshot

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Cluster is the API's side of a snapshot.
type Cluster struct {
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Nodes          []*corev1.Node
	Pods           []*corev1.Pod
	ConfigMaps     []*corev1.ConfigMap
	// Missing names the kinds that were not collected ("services", "pods", …).
	Missing []string
}

// Snapshot is an opened snapshot.
type Snapshot struct{ path string }

// Open opens a snapshot: a directory, a .tar.gz, or a .tar.
func Open(path string) (*Snapshot, error) { return nil, errors.New("stub") }

// Cluster decodes the cluster's objects.
func (s *Snapshot) Cluster() (*Cluster, error) { return nil, errors.New("stub") }

// NodeNames returns the names of the nodes that the snapshot holds, sorted.
func (s *Snapshot) NodeNames() []string { return nil }

// Node returns one node's files. The error names the nodes there are when it is not among them.
func (s *Snapshot) Node(name string) (*Node, error) { return nil, errors.New("stub") }

// Node is what was collected from one node: files by the names of the contract ("iptables-save.txt").
type Node struct {
	Name string
}

// File returns the content of a file, uncompressed. ok is false when it was not collected.
func (n *Node) File(name string) (data []byte, ok bool, err error) { return nil, false, nil }
