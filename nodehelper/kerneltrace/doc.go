// SPDX-License-Identifier: Apache-2.0

// Package kerneltrace has the kernel tell which rules of nf_tables, iptables-nft's among them, a connection's packets meet
// (nft(8), meta nftrace; net/netfilter/nf_tables_trace.c). What it needs for that is a table of its own, which the kernel removes when the
// process ends, in whatever way.
package kerneltrace
