// SPDX-License-Identifier: Apache-2.0

// Package expect computes what kube-proxy must have programmed on a node, from the same inputs that kube-proxy has:
// Services, EndpointSlices, the Node, and kube-proxy's configuration. It knows nothing of rules: its answer for a
// packet is where the packet must go, with which share, masqueraded or not. The authority is kube-proxy's own code
// (k8s.io/kubernetes/pkg/proxy, 1.26 to 1.37); test/oracle holds the two against each other.
package expect
