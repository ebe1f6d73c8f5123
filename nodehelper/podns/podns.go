// SPDX-License-Identifier: Apache-2.0

// Package podns finds the network namespaces of a node's pods, and runs code in one of them. It changes nothing there.
package podns

import (
	"net/netip"
)

// Pod says which pod is meant.
type Pod struct {
	// UIDs are names that the pod may have in the control groups of the node: its UID, and of a static pod the hash of
	// its manifest (kubernetes.io/config.hash).
	UIDs []string
	// Addresses are those that the API knows of the pod. They find it where its control groups have another name.
	Addresses []netip.Addr
}
