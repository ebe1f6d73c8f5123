// SPDX-License-Identifier: Apache-2.0

// Package faults makes faults in network namespaces, measures which connections fail, and compares that with what is
// said of the node: where some fail the path is no match, and the object at fault is named, or what is missing to tell;
// where none fails it is a match. The node is that of testdata/faults/iptables-neighbours, with its rules and objects;
// its pods and the other nodes are namespaces.
//
// It is what the fault matrix of test/e2e does, for what needs no cluster, in seconds.
package faults
