// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// message returns a message as the kernel sends it, without padding behind it.
func message(kind netlink.HeaderType, flags netlink.HeaderFlags, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, uint16(kind))
	b = binary.NativeEndian.AppendUint16(b, uint16(flags))
	b = binary.NativeEndian.AppendUint32(b, 7)
	b = binary.NativeEndian.AppendUint32(b, 4711)
	return append(b, body...)
}

func errorCode(code unix.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(code)))
}

func encoded(t testing.TB, attributes ...Attribute) []byte {
	t.Helper()
	b, err := Encode(attributes)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAttributes(t *testing.T) {
	inner := []Attribute{Uint16(1, 0x1234), Bytes(2, []byte{9}), String(3, "")}
	b := encoded(t, String(1, "abc"), Uint32(2, 5), Uint64(3, 6), Nested(4, inner...), Bytes(5, nil))
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	want := []Attribute{
		{Type: 1, Value: []byte("abc\x00")},
		{Type: 2, Value: []byte{0, 0, 0, 5}},
		{Type: 3, Value: []byte{0, 0, 0, 0, 0, 0, 0, 6}},
		{Type: 4, Value: encoded(t, inner...)},
		{Type: 5, Value: []byte{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if kind := binary.NativeEndian.Uint16(b[8+8+12+2:]); kind != 4|unix.NLA_F_NESTED {
		t.Errorf("the type of the nested attribute is %#x", kind)
	}
	for size, want := range map[int]error{1<<16 - 12: nil, 1<<16 - 8: errLarge, 1<<16 - 4: errLarge, 1 << 20: errLarge} {
		if _, err := Encode([]Attribute{Nested(1, Bytes(2, make([]byte, size)))}); !errors.Is(err, want) {
			t.Errorf("nested %d bytes: %v, want %v", size, err, want)
		}
	}
}

func TestDecode(t *testing.T) {
	for data, want := range map[string][]Attribute{
		"":                                 {},
		"\x05\x00\x09\x00a\x00\x00\x00":    {{Type: 9, Value: []byte("a")}},
		"\x05\x00\x09\x00a":                {{Type: 9, Value: []byte("a")}}, // without its padding
		"\x04\x00\x09\x80\x04\x00\x0a\x40": {{Type: 9, Value: []byte{}}, {Type: 10, Value: []byte{}}},
		"\x09\x00\x09\x00a":                nil, // longer than the data
		"\x03\x00\x09\x00":                 nil, // shorter than its header
		"\x04\x00":                         nil,
	} {
		if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
			t.Skip("the data is of a machine with little-endian numbers")
		}
		got, err := Decode([]byte(data))
		if (err != nil) != (want == nil) || want != nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v; want %v", data, got, err, want)
		}
	}
}

func TestMessages(t *testing.T) {
	first := message(netlink.HeaderType(messageType(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_TRACE)), 0,
		append([]byte{unix.NFPROTO_IPV6, 0, 0, 0}, encoded(t, Uint32(1, 2))...))
	second := message(netlink.Done, netlink.Multi, []byte{0, 0, 0, 0, 1}) // without its padding
	var got []Message
	for m, err := range Messages(slices.Concat(first, second)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if len(got) != 2 || !bytes.Equal(got[0].raw, first) || !bytes.Equal(got[1].raw, second) {
		t.Fatalf("%v", got)
	}
	m := got[0]
	if !m.Is(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_TRACE) || m.Sequence != 7 || m.PID != 4711 || m.last() {
		t.Errorf("the first message is %+v", m)
	}
	family, attributes, err := m.Attributes()
	want := []Attribute{Uint32(1, 2)}
	if family != unix.NFPROTO_IPV6 || !reflect.DeepEqual(attributes, want) || err != nil {
		t.Errorf("family %d, attributes %v, %v", family, attributes, err)
	}
	if m := got[1]; !m.last() || m.err() != nil || m.Flags != netlink.Multi {
		t.Errorf("the second message is %+v", m)
	}

	for _, short := range [][]byte{first[:10], first[:20], append(slices.Clone(first), 0), make([]byte, 16)} {
		var last error
		for _, last = range Messages(short) { //nolint:revive // the last one
		}
		if !errors.Is(last, errShort) {
			t.Errorf("%d bytes of a message: %v", len(short), last)
		}
	}
	short := Message{Body: []byte{1, 2, 3}}
	if _, _, err := short.Attributes(); !errors.Is(err, errShort) {
		t.Errorf("a message without struct nfgenmsg: %v", err)
	}
}

// The formats are those of netlink_ack and netlink_dump_done in net/netlink/af_netlink.c.
func TestErrorsOfTheKernel(t *testing.T) {
	request := message(1, netlink.Request, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	text := encoded(t, Uint32(2, 9), String(attrMessage, "no such thing"))
	for name, tt := range map[string]struct {
		message []byte
		errno   unix.Errno
		want    string
	}{
		"success":            {message(netlink.Error, 0, append(errorCode(0), request[:16]...)), 0, ""},
		"end":                {message(netlink.Done, netlink.Multi, errorCode(0)), 0, ""},
		"end without a code": {message(netlink.Done, netlink.Multi, nil), 0, ""},
		"error": {
			message(netlink.Error, 0, append(errorCode(unix.ENOENT), request...)), unix.ENOENT, unix.ENOENT.Error(),
		},
		"error at the end": {
			message(netlink.Done, netlink.Multi, errorCode(unix.EBUSY)), unix.EBUSY, unix.EBUSY.Error(),
		},
		"explained": {
			message(netlink.Error, netlink.AcknowledgeTLVs, slices.Concat(errorCode(unix.EINVAL), request, text)),
			unix.EINVAL, unix.EINVAL.Error() + " (no such thing)",
		},
		"explained, without the request": {
			message(netlink.Error, netlink.AcknowledgeTLVs|netlink.Capped,
				slices.Concat(errorCode(unix.EINVAL), request[:16], text)),
			unix.EINVAL, unix.EINVAL.Error() + " (no such thing)",
		},
		"explained at the end": {
			message(netlink.Done, netlink.Multi|netlink.AcknowledgeTLVs, slices.Concat(errorCode(unix.EINVAL), text)),
			unix.EINVAL, unix.EINVAL.Error() + " (no such thing)",
		},
		"explanation that is cut off": {
			message(netlink.Error, netlink.AcknowledgeTLVs,
				slices.Concat(errorCode(unix.EINVAL), request, text[:len(text)-8])),
			unix.EINVAL, unix.EINVAL.Error(),
		},
		"request that is cut off": {
			message(netlink.Error, netlink.AcknowledgeTLVs, slices.Concat(errorCode(unix.EINVAL), request[:18])),
			unix.EINVAL, unix.EINVAL.Error(),
		},
	} {
		for m, err := range Messages(tt.message) {
			if err != nil || !m.last() {
				t.Fatalf("%s: %v, %v", name, m, err)
			}
			switch err := m.err(); {
			case tt.errno == 0 && err != nil, tt.errno != 0 && (!errors.Is(err, tt.errno) || err.Error() != tt.want):
				t.Errorf("%s: %v, want %q", name, err, tt.want)
			}
		}
	}
	for m, err := range Messages(message(netlink.Error, 0, nil)) {
		if err != nil || !errors.Is(m.err(), errShort) {
			t.Errorf("without a code: %v, %v", m.err(), err)
		}
	}
}

// Whatever is received is read, or refused.
func FuzzMessages(f *testing.F) {
	text := encoded(f, String(attrMessage, "no such thing"))
	request := message(1, netlink.Request, []byte{1, 2, 3, 4})
	f.Add(slices.Concat(errorCode(unix.EINVAL), request, text))
	f.Add(message(netlink.Error, netlink.AcknowledgeTLVs, slices.Concat(errorCode(unix.EINVAL), request, text)))
	f.Add(message(netlink.Done, netlink.AcknowledgeTLVs, slices.Concat(errorCode(unix.EINVAL), text)))
	f.Add(message(1, 0, append([]byte{2, 0, 0, 0}, encoded(f, Nested(1, Uint32(2, 3)))...)))
	f.Fuzz(func(_ *testing.T, data []byte) {
		for m, err := range Messages(data) {
			if err != nil {
				return
			}
			_ = m.err()
			_, _, _ = m.Attributes()
		}
	})
}
