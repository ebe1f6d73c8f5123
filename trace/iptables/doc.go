// SPDX-License-Identifier: Apache-2.0

// Package iptables parses what iptables-save and ip6tables-save print into the model of package netfilter.
//
// What it knows of matches and targets stands in two tables (matches.go, targets.go). What it does not know becomes an op that
// says so with its text: a match is Unknown, a target Opaque. Nothing is ever left out.
package iptables
