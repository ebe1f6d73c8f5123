// SPDX-License-Identifier: Apache-2.0

// Package kerneltrace makes the kernel report which rules the packets of a connection traverse: those of nf_tables,
// iptables-nft included (nft(8), meta nftrace; net/netfilter/nf_tables_trace.c), and those of iptables-legacy. It needs
// a table of its own for that, which the kernel removes when the process ends, for whatever reason.
package kerneltrace
