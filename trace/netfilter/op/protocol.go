// SPDX-License-Identifier: Apache-2.0

package op

import (
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// protocols are the names that iptables prints (libxtables/xtables.c, xtables_chain_protos), and those that it finds in
// /etc/protocols.
var protocols = map[string]uint8{
	"all": 0, "tcp": netfilter.TCP, "udp": netfilter.UDP, "udplite": netfilter.UDPLite, "icmp": netfilter.ICMP,
	"ipv6-icmp": netfilter.ICMPv6, "icmpv6": netfilter.ICMPv6, "esp": netfilter.ESP, "ah": netfilter.AH,
	"sctp": netfilter.SCTP, "dccp": netfilter.DCCP, "ip": 0, "hopopt": 0, "igmp": 2, "ggp": 3,
	"ipencap": 4, "ipip": 4, "st": 5, "egp": 8, "igp": 9,
	"pup": 12, "hmp": 20, "xns-idp": 22, "rdp": 27, "iso-tp4": 29, "xtp": 36, "ddp": 37, "idpr-cmtp": 38, "ipv6": 41,
	"ipv6-route": 43,
	"ipv6-frag":  44, "idrp": 45, "rsvp": 46, "gre": 47, "ipv6-nonxt": 59, "ipv6-opts": 60, "rspf": 73,
	"vmtp": 81, "eigrp": 88,
	"ospf":    89,
	"ospfigp": 89, "ax.25": 93, "etherip": 97, "encap": 98, "pim": 103, "ipcomp": 108, "vrrp": 112, "l2tp": 115,
	"isis": 124, "fc": 133,
	"mobility-header": 135, "mh": 135, "ipv6-mh": 135, "mpls-in-ip": 137, "manet": 138, "hip": 139,
	"shim6": 140, "wesp": 141, "rohc": 142, "ethernet": 143,
}

// Protocol returns the number of a protocol that is given by its name or number; 0 stands for any.
func Protocol(s string) (uint8, bool) {
	if p, ok := protocols[s]; ok {
		return p, true
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil
}
