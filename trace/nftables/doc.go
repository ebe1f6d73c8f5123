// SPDX-License-Identifier: Apache-2.0

// Package nftables reads what nft -j list ruleset prints, or what the kernel answers to the same question, into the model of package
// netfilter: tables of the families ip, ip6 and inet, with base chains and others, rules, sets and maps (libnftables-json(5)).
//
// What it knows of expressions and of statements stands in tables (fields.go and expr.go, statement.go): a new one is a new entry.
// What it does not know becomes an op that says so with its text: a match is Unknown, a statement Opaque. Nothing is ever left
// out. The kernel's messages (netlink*.go) are made into the expressions and statements that nft would print, and read by the same
// code. The tables that iptables-nft keeps in nf_tables are read from what iptables-save prints, for nft cannot print all of them.
package nftables
