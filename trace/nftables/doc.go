// SPDX-License-Identifier: Apache-2.0

// Package nftables compiles nf_tables rules into the model of package netfilter: tables of the families ip, ip6 and
// inet, with base chains and others, rules, sets and maps.
//
// The rules come as a syntax tree (package syntax), which is read from what nft -j list ruleset prints (package json),
// or from what the kernel answers to the same question (package netlink). What is known of expressions and statements
// stands in tables: the fields of the packet in fields.go, the statements without arguments in statement.go. What is
// not known becomes an op that says so with its text: a match is Unknown, a statement Opaque. Nothing is ever left out.
// The tables that iptables-nft keeps in nf_tables are read from what iptables-save prints, for nft cannot print all of
// them.
package nftables
