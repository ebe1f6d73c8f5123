// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy is what is specific to kube-proxy and independent of a node: the names of its chains, tables, maps
// and sets in each mode, and of those that the command program creates in their place; its configuration and where that
// is read; and what a running kube-proxy reports about itself.
package kubeproxy
