// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// The messages and attributes of nf_tables, as far as they are read (include/uapi/linux/netfilter/nf_tables.h,
// nfnetlink.h and netlink.h). They are here, and not taken from package unix, because this package builds on every
// system.
const (
	subsystem = 10 // NFNL_SUBSYS_NFTABLES

	msgNewTable   = 0
	msgNewChain   = 3
	msgNewRule    = 6
	msgNewSet     = 9
	msgNewElement = 12

	messageHeader = 16 // struct nlmsghdr
	genericHeader = 4  // struct nfgenmsg
	attrHeader    = 4  // struct nlattr
	attrTypeMask  = 0x3fff
)

// The numbers of families in messages (include/uapi/linux/netfilter.h).
var familyNumbers = map[uint8]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}

// message is one message of a dump.
type message struct {
	kind   uint16 // msgNew…
	family uint8
	attrs  []byte
}

// messages walks the messages that the kernel has answered with, one after the other as they came. Those of other
// subsystems are passed over. The error names the offset of the message that cannot be read.
func messages(data []byte, order binary.ByteOrder, visit func(m message) error) error {
	for at := 0; at < len(data); {
		rest := data[at:]
		if len(rest) < messageHeader {
			return fmt.Errorf("the dump is cut off at byte %d", len(data))
		}
		size := int(order.Uint32(rest))
		if size < messageHeader || size > len(rest) {
			return fmt.Errorf("the message at byte %d of the dump says that it has %d bytes, where %d are left",
				at, size, len(rest))
		}
		if kind := order.Uint16(rest[4:]); kind>>8 == subsystem {
			if size < messageHeader+genericHeader {
				return fmt.Errorf("the message at byte %d of the dump has no header of nfnetlink", at)
			}
			m := message{
				kind: kind & 0xff, family: rest[messageHeader], attrs: rest[messageHeader+genericHeader : size],
			}
			if err := visit(m); err != nil {
				return fmt.Errorf("the message at byte %d of the dump: %w", at, err)
			}
		}
		at += align(size)
	}
	return nil
}

func align(n int) int { return (n + 3) &^ 3 }

// maxAttr is above every number of an attribute that is read.
const maxAttr = 24

// attrs are attributes by number, each without its header; nil is one that is not there. Numbers in them are in network
// byte order, of one that is there twice the last one counts, as in the kernel's nla_parse. One with a number beyond
// all that are known is number 0.
type attrs [maxAttr][]byte

// known is a set of attributes by number.
type known uint32

// upTo are the attributes from 1 to n.
func upTo(n int) known { return 1<<(n+1) - 2 }

// beyond returns the number of an attribute that is not among those that are known; false where there is none. What is
// not known may be a condition: nothing that has one is understood.
func (a *attrs) beyond(k known) (int, bool) {
	for n, value := range a {
		if value != nil && k>>n&1 == 0 {
			return n, true
		}
	}
	return 0, false
}

var errAttrs = errors.New("its attributes are damaged")

// parseAttrs reads attributes into a.
func parseAttrs(data []byte, order binary.ByteOrder, a *attrs) error {
	for kind, value := range eachAttr(data, order) {
		if value == nil {
			return errAttrs
		}
		if kind >= maxAttr {
			kind = 0
		}
		a[kind] = value
	}
	return nil
}

// eachAttr walks attributes. One that is damaged has no value, and is the last.
func eachAttr(data []byte, order binary.ByteOrder) iter.Seq2[uint16, []byte] {
	return func(yield func(kind uint16, value []byte) bool) {
		for len(data) >= attrHeader {
			size := int(order.Uint16(data))
			kind := order.Uint16(data[2:]) & attrTypeMask
			if size < attrHeader || size > len(data) {
				yield(kind, nil)
				return
			}
			if !yield(kind, data[attrHeader:size:size]) {
				return
			}
			data = data[min(align(size), len(data)):]
		}
		if len(data) > 0 {
			yield(0, nil)
		}
	}
}

// text returns an attribute that is a string.
func (a *attrs) text(n int) string { return cString(a[n]) }

// cString returns what stands in front of the first zero.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// num returns an attribute that is a number of 1, 2, 4 or 8 bytes; 0 where it is not there or of another size.
func (a *attrs) num(n int) uint64 {
	v, _ := a.number(n)
	return v
}

// number is num that tells whether the attribute is there.
func (a *attrs) number(n int) (uint64, bool) {
	switch b := a[n]; len(b) {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), true
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), true
	case 8:
		return binary.BigEndian.Uint64(b), true
	}
	return 0, false
}

// maxSize bounds what is taken for a length or an offset, in bytes.
const maxSize = 1 << 16

// size returns an attribute that is a length or an offset.
func (a *attrs) size(n int) int { return int(min(a.num(n), maxSize)) }
