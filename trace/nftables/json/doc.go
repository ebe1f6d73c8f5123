// SPDX-License-Identifier: Apache-2.0

// Package json reads what nft -j list ruleset prints into the syntax tree (libnftables-json(5)).
//
// The text comes from a node, and is not trusted: an error says what is wrong with it and where. A statement or an
// expression that is not known, or that lacks a member, is no error, but a [syntax.Opaque] with its text.
package json
