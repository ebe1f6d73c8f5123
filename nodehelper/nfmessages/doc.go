// SPDX-License-Identifier: Apache-2.0

// Package nfmessages reads what the kernel answers to requests for nf_tables into the syntax tree, as nft does.
//
// A rule of the kernel is a program for registers. This package runs it on symbols instead of values, and makes the
// expressions and statements that nft would print. The bytes come from a node, and are not trusted: an error says what
// is wrong with them and where. An expression that is not known is no error, but a [syntax.Opaque].
package nfmessages
