// SPDX-License-Identifier: Apache-2.0

// Package random compares the walk with the kernel for random rule sets: of iptables in both backends, of nftables, and
// of mixtures. Its test sends random packets through each of them in a network namespace of its own, and compares what
// became of every one (its end, its addresses, ports and marks, and the rules that it met) with what the walk says of
// the same rules.
//
// A case is one packet through one rule set. A number, the seed, determines a rule set and its packets, on systems that
// take the same terms. SVCPROXY_DIFF_SEED and SVCPROXY_DIFF_CASES say with which seed to begin, and after how many
// cases to end.
package random
