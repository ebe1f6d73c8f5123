// SPDX-License-Identifier: Apache-2.0

// Package op has the operations that rules of several backends are made of: what the kernel does for an iptables target
// and for an nftables statement is often the same function. What only one of them has stays with its parser.
package op
