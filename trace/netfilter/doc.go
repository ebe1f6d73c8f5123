// SPDX-License-Identifier: Apache-2.0

// Package netfilter is the model of a node's packet filter, whatever wrote it, and the walk of one packet through it.
//
// The walk decides as the kernel does for the first packet of a connection. These are the hooks of the IP families that
// it passes (NF_INET_* of uapi/linux/netfilter.h), with the decisions that the kernel takes between them:
//
//	comes in by an interface                                     leaves by an interface
//	         │                                                             ▲
//	         ▼                                                             │
//	   PREROUTING ──► routing decision   ───────► FORWARD   ────────► POSTROUTING
//	 raw, conntrack,         │                mangle, filter         mangle, nat (src)
//	 mangle, nat (dst)       │                                             ▲
//	                         ▼                                             │
//	                       INPUT                                    routing decision (again where
//	               mangle, filter, nat (src);                       mark or destination changed)
//	               IPVS schedules                                          ▲
//	                         │                                             │
//	                         ▼                                          OUTPUT
//	                   local socket ──► routing decision ──► raw, conntrack, mangle, nat (dst), filter;
//	                                                         IPVS schedules
//
// Before PREROUTING, and behind POSTROUTING, the packet meets the hooks of the devices and bridges that it passes:
// links.go has their order.
//
// Within a hook the base chains of all tables run in the order of their priorities. A packet that the node sends to
// itself leaves by lo behind POSTROUTING and comes in again at PREROUTING; its translations are settled then, and it
// meets no nat chain a second time. What IPVS sends on to another host it sends through OUTPUT and POSTROUTING,
// whichever hook it was scheduled at.
//
// What follows the first packet, the endpoint's answer and later packets, is walked by [Walker.Answer] and
// [Walker.Follow]: connection tracking finds the connection between raw and mangle, in the zone of the packet's
// direction, and translates at the hooks of nat, whose chains are not asked again.
//
// Where chance decides the walk follows every branch, with its exact probability; where something decides that the
// snapshot does not hold it follows both branches too, and says so unless both come to the same end. It never guesses,
// and it never skips what it does not know. What it may cost is bounded: past a budget of work or of branches the rest
// of the packets is uncertain ([Result.Ended]).
package netfilter
