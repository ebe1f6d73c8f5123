// SPDX-License-Identifier: Apache-2.0

package nfmessages

import "fmt"

// The kinds of headers and options that exthdr reads (enum nft_exthdr_op).
const (
	extIPv6 = iota
	extTCP
	extIPv4
)

// optionOf are the headers that have them, by kind.
var optionOf = []struct {
	base     uint64
	protocol string
}{{baseNetwork, "ip6"}, {baseTransport, "tcp"}, {baseNetwork, "ip"}, {baseTransport, "sctp"}, {baseTransport, "dccp"}}

type extKey struct {
	kind   uint64
	number uint8
}

// optionNames are those of IPv6 extension headers and TCP options (src/exthdr.c and src/tcpopt.c of nft). The packets
// that are walked have none of them, so that names are for people only.
var optionNames = map[extKey]string{
	{extIPv6, 0}: "hbh", {extIPv6, 43}: "rt", {extIPv6, 44}: "frag", {extIPv6, 60}: "dst", {extIPv6, 135}: "mh",
	{extTCP, 0}: "eol", {extTCP, 1}: "nop", {extTCP, 2}: "maxseg", {extTCP, 3}: "window", {extTCP, 4}: "sack-perm",
	{extTCP, 5}: "sack", {extTCP, 8}: "timestamp",
	{extTCP, 30}: "mptcp",
	{extIPv4, 7}: "rr", {extIPv4, 131}: "lsrr", {extIPv4, 137}: "ssrr", {extIPv4, 148}: "ra",
}

type extField struct {
	extKey

	offset, len int
}

var optionFields = map[extField]string{
	{extKey{extTCP, 2}, 2, 2}: "size", {extKey{extTCP, 3}, 2, 1}: "count", {extKey{extTCP, 8}, 2, 4}: "tsval",
	{extKey{extTCP, 8}, 6, 4}:   "tsecr",
	{extKey{extIPv6, 43}, 2, 1}: "type", {extKey{extIPv6, 44}, 0, 1}: "nexthdr", {extKey{extIPv6, 44}, 4, 4}: "id",
}

func optionName(kind uint64, number uint8) string {
	if s, ok := optionNames[extKey{kind, number}]; ok {
		return s
	}
	return fmt.Sprintf("%d", number)
}

func optionField(kind uint64, number uint8, offset, length int) string {
	if s, ok := optionFields[extField{extKey{kind, number}, offset, length}]; ok {
		return s
	}
	return fmt.Sprintf("@%d,%d", offset*8, length*8)
}
