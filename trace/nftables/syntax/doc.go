// SPDX-License-Identifier: Apache-2.0

// Package syntax is the syntax tree of nf_tables rules: tables, chains, sets, rules, and the statements and expressions
// of rules, as nft has them (libnftables-json(5)). It writes rules as nft list ruleset prints them.
//
// The packages json and netlink read into it what nft prints and what the kernel answers; package nftables compiles it.
// A node is not changed after it was made: several rules may share it.
package syntax
