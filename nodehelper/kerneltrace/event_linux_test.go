// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// packet is the start of a TCP packet from 10.0.0.1:4000 to 10.96.0.10:80, in IPv4.
var packet = []byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 96, 0, 10, 0x0f, 0xa0, 0, 80}

// message returns a message as the kernel sends it, about a packet of IPv4.
func message(t testing.TB, subsystem, kind uint8, attributes ...netlink.Attribute) []byte {
	t.Helper()
	body, err := netlink.Encode(attributes)
	if err != nil {
		t.Fatal(err)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+4+len(body)))
	b = binary.NativeEndian.AppendUint16(b, uint16(subsystem)<<8|uint16(kind))
	b = append(b, make([]byte, unix.SizeofNlMsghdr-len(b))...)
	b = append(b, unix.NFPROTO_IPV4, unix.NFNETLINK_V0, 0, 0)
	return append(b, body...)
}

func loggedMessage(t testing.TB) []byte {
	t.Helper()
	return message(t, unix.NFNL_SUBSYS_ULOG, logMessagePacket,
		netlink.String(logPrefix, "TRACE: nat:KUBE-SERVICES:rule:3 "),
		netlink.Uint32(logMark, 0x4000),
		netlink.Uint32(logOut, 2),
		netlink.Bytes(logPayload, packet))
}

func tracedMessage(t testing.TB) []byte {
	t.Helper()
	return message(t, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_TRACE,
		netlink.Uint32(unix.NFTA_TRACE_ID, 7),
		netlink.String(unix.NFTA_TRACE_TABLE, "kube-proxy"),
		netlink.String(unix.NFTA_TRACE_CHAIN, "services"),
		netlink.Uint64(unix.NFTA_TRACE_RULE_HANDLE, 12),
		netlink.Uint32(unix.NFTA_TRACE_TYPE, unix.NFT_TRACETYPE_RULE),
		netlink.Nested(unix.NFTA_TRACE_VERDICT,
			netlink.Uint32(unix.NFTA_VERDICT_CODE, uint32(1<<32+unix.NFT_JUMP)),
			netlink.String(unix.NFTA_VERDICT_CHAIN, "endpoint")),
		netlink.Bytes(unix.NFTA_TRACE_NETWORK_HEADER, packet[:20]),
		netlink.Bytes(unix.NFTA_TRACE_TRANSPORT_HEADER, packet[20:]))
}

func TestMessages(t *testing.T) {
	from, to := netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.96.0.10:80")
	events, err := parse(append(loggedMessage(t), tracedMessage(t)...))
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, want := range []Event{
		{Family: "ip", Legacy: true, Table: "nat", Chain: "KUBE-SERVICES", Rule: 3, Mark: 0x4000, Out: 2},
		{
			Family: "ip", ID: 7, Table: "kube-proxy", Chain: "services", Handle: 12,
			Kind: unix.NFT_TRACETYPE_RULE, Verdict: "jump", To: "endpoint",
		},
	} {
		want.Source, want.Destination, want.Protocol = from, to, unix.IPPROTO_TCP
		if events[i] != want {
			t.Errorf("event %d is %+v, want %+v", i, events[i], want)
		}
	}
}

// The last attribute of a message may lack its padding.
func TestAnAttributeWithoutPadding(t *testing.T) {
	for name, whole := range map[string][]byte{"nfnetlink_log": loggedMessage(t), "nf_tables": tracedMessage(t)} {
		with := func(attr string) []byte {
			b := append(slices.Clip(whole), attr...)
			binary.NativeEndian.PutUint32(b, uint32(len(b)))
			return b
		}
		for _, attr := range []string{"\x05\x00\x09\x00a", "\x04\x00\x09\x00", "\x07\x00\x20\x00abc"} {
			if events, err := parse(with(attr)); err != nil || len(events) != 1 {
				t.Errorf("%s with %q: %v, %v", name, attr, events, err)
			}
		}
		if events, err := parse(with("\x09\x00\x09\x00\x01")); err == nil {
			t.Errorf("%s with an attribute that is longer than the message: %v", name, events)
		}
	}
}

// Whatever is received is read, or refused.
func FuzzEvents(f *testing.F) {
	logged, traced := loggedMessage(f), tracedMessage(f)
	f.Add([]byte{})
	f.Add(make([]byte, 40))
	f.Add(logged)
	f.Add(traced)
	f.Add(slices.Concat(logged, logged, traced))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parse(data) })
}
