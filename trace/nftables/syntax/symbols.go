// SPDX-License-Identifier: Apache-2.0

package syntax

// The names of values that expressions have (src/datatype.c, src/ct.c, src/proto.c and src/meta.c of nft).
var (
	// EtherTypes are those of ether type and meta protocol.
	EtherTypes = map[string]uint64{"ip": 0x0800, "ip6": 0x86dd, "arp": 0x0806, "vlan": 0x8100}
	// NFProtos are those of meta nfproto.
	NFProtos = map[string]uint64{"ipv4": 2, "ipv6": 10}
	// CTStates are the bits of ct state (include/uapi/linux/netfilter/nf_conntrack_common.h).
	CTStates = map[string]uint64{"invalid": 1, "established": 2, "related": 4, "new": 8, "untracked": 64}
	// CTStatuses are the bits of ct status (ibid.).
	CTStatuses = map[string]uint64{
		"expected": 1, "seen-reply": 2, "assured": 4, "confirmed": 8, "snat": 16, "dnat": 32, "dying": 512,
	}
	// DSCPs are those of ip dscp and ip6 dscp.
	DSCPs = map[string]uint64{
		"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56, "lephb": 1, "af11": 10,
		"af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22, "af31": 26, "af32": 28, "af33": 30, "af41": 34,
		"af42": 36, "af43": 38, "va": 44, "ef": 46,
	}
	// ICMPTypes are those of icmp type.
	ICMPTypes = map[string]uint64{
		"echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5, "echo-request": 8,
		"router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
		"timestamp-request": 13, "timestamp-reply": 14, "info-request": 15, "info-reply": 16, "address-mask-request": 17,
		"address-mask-reply": 18,
	}
	// ICMPCodes are those of icmp code, and of refusals.
	ICMPCodes = map[string]uint64{
		"net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4,
		"net-prohibited": 9, "host-prohibited": 10, "admin-prohibited": 13,
	}
	// ICMPv6Types are those of icmpv6 type.
	ICMPv6Types = map[string]uint64{
		"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4,
		"echo-request": 128, "echo-reply": 129, "mld-listener-query": 130, "mld-listener-report": 131,
		"mld-listener-done": 132, "nd-router-solicit": 133, "nd-router-advert": 134, "nd-neighbor-solicit": 135,
		"nd-neighbor-advert": 136, "nd-redirect": 137, "router-renumbering": 138, "ind-neighbor-solicit": 141,
		"ind-neighbor-advert": 142, "mld2-listener-report": 143,
	}
	// ARPOperations are those of arp operation.
	ARPOperations = map[string]uint64{
		"request": 1, "reply": 2, "rrequest": 3, "rreply": 4, "inrequest": 8, "inreply": 9, "nak": 10,
	}
	// CTDirs are those of ct direction.
	CTDirs = map[string]uint64{"original": 0, "reply": 1}
	// TCPFlags are the bits of tcp flags.
	TCPFlags = map[string]uint64{
		"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ecn": 64, "cwr": 128,
	}
)
