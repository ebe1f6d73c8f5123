// SPDX-License-Identifier: Apache-2.0

// Package iptables parses what iptables-save and ip6tables-save print into the model of package netfilter.
//
// The known matches and targets are in two tables (matches.go, targets.go): a new one is a new entry. An unknown one
// becomes an op with its text: a match is Unknown, and so is a known match with an option that is not known; a target
// is Opaque. No part of a rule is ignored. The reference is the kernel: TestAgainstTheKernel gives it the same rules
// and packets, and compares.
//
// Some matches are known but Unknown in the walk, because they depend on what is neither in the snapshot nor in the
// first packet of a connection: rates and counters, lengths and header bits, payloads, the time, processes, sockets,
// MAC addresses, IPsec policies (also "--pol none": without the node's policies it is not known that there are none).
package iptables
