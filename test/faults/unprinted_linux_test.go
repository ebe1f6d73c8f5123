// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of rules that iproute2 6.1 neither makes nor prints (include/uapi/linux/fib_rules.h): of Linux 6.13 and
// 6.14.
const (
	fraDSCP          = 25
	fraFlowLabel     = 26
	fraFlowLabelMask = 27
)

// policy is a routing rule of priority 100 that refuses what it applies to (FR_ACT_BLACKHOLE), made without ip.
type policy map[uint16][]byte

// add makes the rule.
func (p policy) add(t *testing.T, v6 bool) {
	t.Helper()
	const blackhole = 6
	family := uint8(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Type: blackhole}}) // its place is that of the action
	req.AddData(nl.NewRtAttr(unix.FRA_PRIORITY, nl.Uint32Attr(100)))
	for kind, value := range p {
		req.AddData(nl.NewRtAttr(int(kind), value))
	}
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		t.Skipf("the kernel has no such rules: %v", err)
	}
}

// unprintedFaults are those of routing rules with conditions that ip does not print.
func unprintedFaults() []fault {
	label := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	return []fault{
		{
			name: "packets with a DSCP that nobody sets are refused, which ip does not print", fails: none, unknownToo: true,
			policy: policy{fraDSCP: {46}},
		},
		{
			name: "packets with the DSCP of all are refused, which ip does not print", fails: all, named: `ip rule 100|unprinted`,
			policy: policy{fraDSCP: {0}},
		},
		{
			name: "packets with a flow label that nobody sets are refused, which ip does not print", v6: true,
			policy: policy{fraFlowLabel: label(0x12345), fraFlowLabelMask: label(0xfffff)},
			fails:  none, unknownToo: true,
		},
		{
			name: "packets from another port are refused, of which the kernel tells the whole mask", fails: none,
			make: `ip rule add pref 100 ipproto tcp sport 22 blackhole; ip rule add pref 101 ipproto tcp dport 22 blackhole`,
		},
	}
}
