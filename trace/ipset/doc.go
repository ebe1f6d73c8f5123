// SPDX-License-Identifier: Apache-2.0

// Package ipset reads the output of ipset save and decides as the kernel does whether a packet is in a set.
//
// A packet is turned into an element by the set's type and the rule's flags, the element is looked up, and of nested
// networks the most specific one decides (net/netfilter/ipset/ip_set_hash_gen.h). Where the result depends on what the
// snapshot does not hold, as a MAC address or an ephemeral port, it is unknown.
package ipset
