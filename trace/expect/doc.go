// SPDX-License-Identifier: Apache-2.0

// Package expect computes what kube-proxy must have programmed on a node, from the same inputs that kube-proxy has:
// Services, EndpointSlices, the Node, and kube-proxy's configuration. It does not know rules: for a packet it returns
// the allowed endpoints with their shares, or the refusal, and whether the source is masqueraded. The reference is
// kube-proxy's own code (k8s.io/kubernetes/pkg/proxy, 1.26 to 1.37); test/oracle compares the two.
package expect
