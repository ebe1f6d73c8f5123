// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfnl"
)

// packet is the start of a TCP packet from 10.0.0.1:4000 to 10.96.0.10:80, in IPv4.
var packet = []byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 96, 0, 10, 0x0f, 0xa0, 0, 80}

// message is as the kernel sends it.
func message(kind int, attrs ...*nl.RtAttr) []byte {
	req := nl.NewNetlinkRequest(kind, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_IPV4})
	for _, a := range attrs {
		req.AddData(a)
	}
	return req.Serialize()
}

var (
	loggedMessage = message(messagePacket,
		nl.NewRtAttr(packetPrefix, nl.ZeroTerminated("TRACE: nat:KUBE-SERVICES:rule:3 ")), nfnl.Uint32(packetMark, 0x4000), nfnl.Uint32(packetOut, 2),
		nl.NewRtAttr(packetPayload, packet))
	tracedMessage = message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE,
		nfnl.Uint32(unix.NFTA_TRACE_ID, 7), nfnl.Text(unix.NFTA_TRACE_TABLE, "kube-proxy"), nfnl.Text(unix.NFTA_TRACE_CHAIN, "services"),
		nl.NewRtAttr(unix.NFTA_TRACE_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, 12)), nfnl.Uint32(unix.NFTA_TRACE_TYPE, unix.NFT_TRACETYPE_RULE),
		nfnl.Nested(unix.NFTA_TRACE_VERDICT, nfnl.Uint32(unix.NFTA_VERDICT_CODE, uint32(1<<32+unix.NFT_JUMP)), nfnl.Text(unix.NFTA_VERDICT_CHAIN, "endpoint")),
		nl.NewRtAttr(unix.NFTA_TRACE_NETWORK_HEADER, packet[:20]), nl.NewRtAttr(unix.NFTA_TRACE_TRANSPORT_HEADER, packet[20:]))
)

func TestMessages(t *testing.T) {
	from, to := netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.96.0.10:80")
	events, err := parse(append(append([]byte{}, loggedMessage...), tracedMessage...))
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if e := events[0]; !e.Legacy || e.Table != "nat" || e.Chain != "KUBE-SERVICES" || e.Rule != 3 || e.Mark != 0x4000 || e.Out != 2 || e.Source != from || e.Destination != to {
		t.Errorf("of nfnetlink_log: %+v", e)
	}
	if e := events[1]; e.Legacy || e.ID != 7 || e.Chain != "services" || e.Handle != 12 || e.Verdict != "jump" || e.To != "endpoint" || e.Source != from || e.Destination != to {
		t.Errorf("of nf_tables: %+v", e)
	}
}

// TestAnAttributeWithoutPadding: fuzzing found a panic in nl.ParseRouteAttr.
func TestAnAttributeWithoutPadding(t *testing.T) {
	for name, whole := range map[string][]byte{"nfnetlink_log": loggedMessage, "nf_tables": tracedMessage} {
		for _, attr := range []string{"\x05\x00\x09\x00a", "\x04\x00\x09\x00", "\x07\x00\x20\x00abc"} {
			b := append(append([]byte{}, whole...), attr...)
			binary.NativeEndian.PutUint32(b, uint32(len(b)))
			if events, err := parse(b); err != nil || len(events) != 1 {
				t.Errorf("%s with %q: %v, %v", name, attr, events, err)
			}
		}
		b := append(append([]byte{}, whole...), 9, 0, 9, 0, 1)
		binary.NativeEndian.PutUint32(b, uint32(len(b)))
		if events, err := parse(b); err == nil {
			t.Errorf("%s with an attribute that breaks off: %v", name, events)
		}
	}
}

// FuzzEvents: whatever comes is read, or refused.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 40))
	f.Add(loggedMessage)
	f.Add(tracedMessage)
	f.Add([]byte(strings.Repeat(string(loggedMessage), 2) + string(tracedMessage)))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parse(data) })
}
