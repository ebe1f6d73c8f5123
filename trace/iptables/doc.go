// SPDX-License-Identifier: Apache-2.0

// Package iptables parses what iptables-save and ip6tables-save print into the model of package netfilter.
//
// What it knows of matches and targets stands in two tables (matches.go, targets.go): a new one is a new entry.
// What it does not know becomes an op that says so with its text: a match is Unknown, and so is a known match with
// an option that is not known; a target is Opaque. Nothing is ever left out. The kernel is the authority:
// TestAgainstTheKernel gives it the same rules and the same packets, and compares.
//
// Some matches are known and yet Unknown, for they ask what neither the snapshot nor the first packet of a
// connection tells: rates and counters, lengths and header bits, payloads, the time, processes, sockets, MAC
// addresses, IPsec policies (also "--pol none": without the node's policies it is not known that there are none).
package iptables
