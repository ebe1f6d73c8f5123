// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The attributes of a routing rule behind unix.FRA_DPORT_RANGE, which is the last one that iproute2 6.1 prints
// (include/uapi/linux/fib_rules.h). Of a later one it says nothing: "from all dscp EF blackhole" is "from all
// blackhole" there.
const (
	fraSourcePortMask      = 28
	fraDestinationPortMask = 29
	fraDSCPMask            = 30
)

// wholeMasks are the masks that compare all of a field, as rules without a mask have them: they say nothing more
// (fib_nl_fill_rule in net/core/fib_rules.c, fib4_rule_fill in net/ipv4/fib_rules.c).
var wholeMasks = map[uint16][]byte{
	fraSourcePortMask: {0xff, 0xff}, fraDestinationPortMask: {0xff, 0xff}, fraDSCPMask: {0x3f},
}

// unprinted names the attributes of the rules of a priority that ip may not print.
type unprinted struct {
	Priority   uint32   `json:"priority"`
	Attributes []uint16 `json:"unprinted"`
}

// readPolicies reads the routing rules of a family, and behind them, if there are any, what ip may not print of them:
// a rule of which a condition is missing would apply to more packets than it does.
func readPolicies(family uint8, args ...string) func(context.Context, *reader) ([]byte, error) {
	return func(ctx context.Context, r *reader) ([]byte, error) {
		rules, err := command("ip", append([]string{"-j"}, args...)...)(ctx, r)
		if err != nil {
			return nil, err
		}
		more, err := unprintedOf(family)
		if err != nil || len(more) == 0 {
			return rules, err
		}
		text, err := json.Marshal(more)
		if err != nil {
			return nil, err
		}
		return append(append(rules, text...), '\n'), nil
	}
}

// unprintedOf asks the kernel for the rules of a family.
func unprintedOf(family uint8) ([]unprinted, error) {
	const tries = 3
	for n := 1; ; n++ {
		req := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
		req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}}) // of the size of struct fib_rule_hdr
		answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
		if errors.Is(err, netlink.ErrDumpInterrupted) && n < tries {
			continue // the rules were changed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("RTM_GETRULE: %w", err)
		}
		var out []unprinted
		for _, a := range answers {
			u, err := unprintedIn(a)
			if err != nil {
				return nil, err
			}
			if len(u.Attributes) > 0 {
				out = append(out, u)
			}
		}
		return out, nil
	}
}

// unprintedIn reads a rule: struct fib_rule_hdr, and attributes.
func unprintedIn(rule []byte) (u unprinted, err error) {
	if len(rule) < unix.SizeofRtMsg {
		return u, fmt.Errorf("a rule of %d bytes", len(rule))
	}
	attributes, err := nl.ParseRouteAttr(rule[unix.SizeofRtMsg:])
	if err != nil {
		return u, err
	}
	for _, x := range attributes {
		switch kind := x.Attr.Type &^ unix.NLA_F_NESTED; {
		case kind == unix.FRA_PRIORITY && len(x.Value) >= 4:
			u.Priority = binary.NativeEndian.Uint32(x.Value)
		case kind > unix.FRA_DPORT_RANGE && !bytes.Equal(x.Value, wholeMasks[kind]):
			u.Attributes = append(u.Attributes, kind)
		}
	}
	return u, nil
}
