// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// Event is one report of the kernel about a traced packet: a rule whose matches it met, or the end of a chain.
type Event struct {
	ID     uint32 // of the packet at one hook
	Family string // of the table: "ip", "ip6", "inet"
	Table  string
	Chain  string
	Handle uint64 // of the rule; 0 for the end of a chain
	// Legacy is true for iptables-legacy, which reports the number of the rule, as save files count them, and no
	// verdict. Rule is that number; at the end of a chain it is the number of rules plus one.
	Legacy  bool
	Rule    int
	Kind    uint32 // unix.NFT_TRACETYPE_…
	Verdict string // accept, drop, continue, jump, goto, return, queue, …; also that of a policy
	To      string // the chain of a jump or goto
	Mark    uint32
	In, Out uint32 // indices of interfaces; 0 if there is none
	// Source, Destination and Protocol (unix.IPPROTO_…) are those of the packet. They are zero if the event has no
	// headers, which the first event of each base chain has.
	Source, Destination netip.AddrPort
	Protocol            uint8
}

// Policy tells whether the base chain's policy was applied.
func (e *Event) Policy() bool { return e.Kind == unix.NFT_TRACETYPE_POLICY }

// verdicts are those of netfilter and of nf_tables (uapi/linux/netfilter.h; enum nft_verdicts in
// uapi/linux/netfilter/nf_tables.h).
var verdicts = map[int32]string{
	0: "drop", 1: "accept", 2: "stolen", 3: "queue", 4: "repeat",
	-1: "continue", -2: "break", -3: "jump", -4: "goto", -5: "return",
}

// families are the names of families by their numbers in messages.
var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge",
}

// errShort is the error of an attribute that is shorter than its type.
var errShort = errors.New("a trace message is incomplete")

// parse reads the messages of a datagram; those that are not about traces are left out.
func parse(datagram []byte) (out []Event, err error) {
	for m, err := range netlink.Messages(datagram) {
		if err != nil {
			return out, err
		}
		traced := m.Is(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_TRACE)
		if !traced && !m.Is(unix.NFNL_SUBSYS_ULOG, logMessagePacket) {
			continue
		}
		family, attributes, err := m.Attributes()
		if err != nil {
			return out, fmt.Errorf("a trace message: %w", err)
		}
		var e Event
		ok := true
		if traced {
			e, err = tracedEvent(family, attributes)
		} else {
			e, ok, err = logged(family, attributes)
		}
		if err != nil {
			return out, err
		}
		if ok {
			out = append(out, e)
		}
	}
	return out, nil
}

// tracedEvent reads a message of nf_tables (nft_trace_notify).
func tracedEvent(family uint8, attributes []netlink.Attribute) (e Event, err error) {
	e.Family = families[family]
	var network, transport []byte
	for _, a := range attributes {
		v := a.Value
		switch a.Type {
		case unix.NFTA_TRACE_ID:
			e.ID, err = number(v)
		case unix.NFTA_TRACE_TABLE:
			e.Table = unix.ByteSliceToString(v)
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = unix.ByteSliceToString(v)
		case unix.NFTA_TRACE_RULE_HANDLE:
			if len(v) != 8 { // bytes of a handle
				return e, errShort
			}
			e.Handle = binary.BigEndian.Uint64(v)
		case unix.NFTA_TRACE_TYPE:
			e.Kind, err = number(v)
		case unix.NFTA_TRACE_MARK:
			e.Mark, err = number(v)
		case unix.NFTA_TRACE_IIF:
			e.In, err = number(v)
		case unix.NFTA_TRACE_OIF:
			e.Out, err = number(v)
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = v
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = v
		case unix.NFTA_TRACE_VERDICT:
			err = e.parseVerdict(v)
		case unix.NFTA_TRACE_POLICY:
			var code uint32
			code, err = number(v)
			e.Verdict = verdicts[int32(code)] //nolint:gosec // it is an int in the kernel
		}
		if err != nil {
			return e, err
		}
	}
	e.parseHeaders(network, transport)
	return e, nil
}

// parseHeaders reads an IP header (RFC 791, RFC 8200) and the ports behind it, if they are there.
func (e *Event) parseHeaders(network, transport []byte) {
	if len(network) < 20 || len(transport) < 4 {
		return
	}
	src, dst := binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
	switch {
	case network[0]>>4 == 4:
		e.Protocol = network[9]
		e.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(network[12:16])), src)
		e.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(network[16:20])), dst)
	case len(network) >= 40:
		e.Protocol = network[6]
		e.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(network[8:24])), src)
		e.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(network[24:40])), dst)
	}
}

// number reads a number of 32 bits.
func number(v []byte) (uint32, error) {
	if len(v) != 4 { // bytes of it
		return 0, errShort
	}
	return binary.BigEndian.Uint32(v), nil
}

// parseVerdict reads the attributes of a verdict.
func (e *Event) parseVerdict(data []byte) error {
	attributes, err := netlink.Decode(data)
	if err != nil {
		return fmt.Errorf("the verdict of a trace message: %w", err)
	}
	for _, a := range attributes {
		switch a.Type {
		case unix.NFTA_VERDICT_CODE:
			code, err := number(a.Value)
			if err != nil {
				return err
			}
			if e.Verdict = verdicts[int32(code)]; e.Verdict == "" { //nolint:gosec // it is an int in the kernel
				e.Verdict = fmt.Sprintf("verdict %d", int32(code)) //nolint:gosec // as above
			}
		case unix.NFTA_VERDICT_CHAIN:
			e.To = unix.ByteSliceToString(a.Value)
		}
	}
	return nil
}
