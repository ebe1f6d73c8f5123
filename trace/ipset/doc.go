// SPDX-License-Identifier: Apache-2.0

// Package ipset reads the output of ipset save and answers, as the kernel would, whether a packet is in a set.
//
// A packet is turned into an element by the set's type and the rule's flags, the element is looked up, and of nested
// networks the most specific one decides (net/netfilter/ipset/ip_set_hash_gen.h). What the snapshot does not hold, a
// MAC address or an ephemeral port, makes the answer unknown where it would decide.
package ipset
