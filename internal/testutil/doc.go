// SPDX-License-Identifier: Apache-2.0

// Package testutil is what tests of several packages share: network namespaces, servers that say who they are, and
// listings of a node's rules. Most of it needs Linux, and root. No program of the project imports it.
package testutil
