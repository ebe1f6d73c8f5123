// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy is what is particular to kube-proxy and known without a node: the names of its chains, tables, maps
// and sets in each mode, and of those that the command program puts there in its place; its configuration and where
// that is read; and what a running kube-proxy answers about itself.
package kubeproxy
