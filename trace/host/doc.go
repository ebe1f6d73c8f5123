// SPDX-License-Identifier: Apache-2.0

// Package host is a model of a node's addresses, links, routes and routing rules as collected in a snapshot. It does
// the kernel's route lookups on them and reports where the data does not suffice. [Parse] reads a [Network] from the
// files of a snapshot.
package host
