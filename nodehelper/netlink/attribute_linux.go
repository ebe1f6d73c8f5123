// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Attribute is an attribute of a message (struct nlattr in uapi/linux/netlink.h), without its header. It has either a
// value or attributes of its own.
type Attribute struct {
	Type     uint16 // without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER
	Value    []byte
	Children []Attribute
}

// String returns an attribute that is a string, which ends with a zero byte in the message.
func String(kind uint16, s string) Attribute {
	return Attribute{Type: kind, Value: append([]byte(s), 0)}
}

// Uint16 returns an attribute that is a number of 16 bits, in network byte order.
func Uint16(kind, v uint16) Attribute {
	return Attribute{Type: kind, Value: binary.BigEndian.AppendUint16(nil, v)}
}

// Uint32 returns an attribute that is a number of 32 bits, in network byte order.
func Uint32(kind uint16, v uint32) Attribute {
	return Attribute{Type: kind, Value: binary.BigEndian.AppendUint32(nil, v)}
}

// Uint64 returns an attribute that is a number of 64 bits, in network byte order.
func Uint64(kind uint16, v uint64) Attribute {
	return Attribute{Type: kind, Value: binary.BigEndian.AppendUint64(nil, v)}
}

// Bytes returns an attribute with this value.
func Bytes(kind uint16, value []byte) Attribute { return Attribute{Type: kind, Value: value} }

// Nested returns an attribute that consists of attributes.
func Nested(kind uint16, children ...Attribute) Attribute {
	return Attribute{Type: kind, Children: children}
}

// errLarge is the error of an attribute whose size does not fit into its header.
var errLarge = errors.New("netlink: an attribute is larger than 64 KiB")

// Encode returns attributes as they stand in a message. It is an error if one is larger than 64 KiB.
func Encode(attributes []Attribute) ([]byte, error) {
	raw := make([]netlink.Attribute, len(attributes))
	for i, a := range attributes {
		raw[i] = netlink.Attribute{Type: a.Type, Data: a.Value}
		if len(a.Children) > 0 {
			data, err := Encode(a.Children)
			if err != nil {
				return nil, err
			}
			raw[i] = netlink.Attribute{Type: a.Type | netlink.Nested, Data: data}
		}
		if len(raw[i].Data) > math.MaxUint16-unix.SizeofNlAttr {
			return nil, errLarge
		}
	}
	return netlink.MarshalAttributes(raw)
}

// Decode returns attributes in the order in which they stand in a message behind its headers, or in the value of
// another attribute. Children are not decoded: they are in Value. The last attribute may lack its padding. It is an
// error if an attribute is longer than the data.
func Decode(data []byte) ([]Attribute, error) {
	raw, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return nil, err
	}
	out := make([]Attribute, len(raw))
	for i, a := range raw {
		out[i] = Attribute{Type: a.Type &^ (netlink.Nested | netlink.NetByteOrder), Value: a.Data}
	}
	return out, nil
}
