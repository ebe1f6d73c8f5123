// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"
)

// Kind is what a reference names. The zero value is a Service, or a node with a NodePort where there is no such
// Service.
type Kind string

// The kinds of objects that lead to Services.
const (
	KindService       Kind = "Service"
	KindNode          Kind = "Node"
	KindEndpointSlice Kind = "EndpointSlice"
	KindPod           Kind = "Pod"
	KindDeployment    Kind = "Deployment"
	KindReplicaSet    Kind = "ReplicaSet"
	KindStatefulSet   Kind = "StatefulSet"
	KindDaemonSet     Kind = "DaemonSet"
	KindJob           Kind = "Job"
	KindController    Kind = "ReplicationController"
)

// kinds are the words for kinds, as kubectl takes them. Endpoints have the name of their Service.
var kinds = []struct {
	kind  Kind
	words []string // the first one is that of kubectl's -o name, without its API group
}{
	{KindService, []string{"service", "services", "svc"}},
	{KindService, []string{"endpoints", "ep"}},
	{KindNode, []string{"node", "nodes", "no"}},
	{KindEndpointSlice, []string{"endpointslice", "endpointslices"}},
	{KindPod, []string{"pod", "pods", "po"}},
	{KindDeployment, []string{"deployment", "deployments", "deploy"}},
	{KindReplicaSet, []string{"replicaset", "replicasets", "rs"}},
	{KindStatefulSet, []string{"statefulset", "statefulsets", "sts"}},
	{KindDaemonSet, []string{"daemonset", "daemonsets", "ds"}},
	{KindJob, []string{"job", "jobs"}},
	{KindController, []string{"replicationcontroller", "replicationcontrollers", "rc"}},
}

// KindOf returns the kind that a word stands for. An API group behind a dot, as kubectl's -o name prints it, is
// ignored.
func KindOf(word string) (kind Kind, ok bool) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	for _, k := range kinds {
		if slices.Contains(k.words, word) {
			return k.kind, true
		}
	}
	return "", false
}

// Word returns kubectl's word for a kind.
func (k Kind) Word() string {
	for _, known := range kinds {
		if known.kind == k {
			return known.words[0]
		}
	}
	return "service"
}

// words lists a word for each kind, for errors.
func words() string {
	var out []string
	for _, k := range kinds {
		if !slices.Contains(out, k.kind.Word()) {
			out = append(out, k.kind.Word())
		}
	}
	return strings.Join(out, ", ")
}

// NodeName is the name of a node as it was given: kubectl's -o name and this tool's print node/NAME.
func NodeName(arg string) string {
	if word, name, ok := strings.Cut(arg, "/"); ok {
		if kind, ok := KindOf(word); ok && kind == KindNode {
			return name
		}
	}
	return arg
}
