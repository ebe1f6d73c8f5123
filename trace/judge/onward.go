// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// onward is what becomes of the packets behind the first of connections to an endpoint.
type onward struct {
	end  *netfilter.Outcome
	code string // of what is wrong; "" for nothing
	at   netfilter.Outcome
	why  string
	// unsure has what it depends on, where it is not known whether it is right.
	unsure []netfilter.Uncertain
	// left is what the packet may have left for those behind it. same: for another packet of its direction it would be the
	// same (Result.ByTurn).
	left []netfilter.Left
	same bool
	// tracked are the rules that decide how the packet is tracked, where it is lost by that.
	tracked []netfilter.Ref
}

// bad tells whether something is wrong, or may be.
func (x *onward) bad() bool { return x.code != "" || len(x.unsure) > 0 }

// eitherWay is what becomes of packets that go by one of two ways.
func eitherWay(x, y onward) onward {
	if x.code == "" && y.code != "" {
		x, y = y, x
	}
	if x.code != "" && y.code == "" {
		x = x.doubted("")
	}
	if y.code == "" {
		x.unsure = append(slices.Clip(x.unsure), y.unsure...)
	}
	return x
}

// of makes what is wrong unsure where the first packet does not certainly come to the endpoint.
func (x onward) of(end *netfilter.Outcome) onward {
	if x.end = end; x.code != "" && !end.Certain {
		return x.doubted("")
	}
	return x
}

// apart tells whether connection tracking does not have a packet in the connection of the first one.
func apart(pkt *netfilter.Packet, first *netfilter.Outcome) bool {
	return pkt.Tracking == netfilter.NotOurs || pkt.Tracking == netfilter.Invalid ||
		pkt.Untracked && !first.Packet.Untracked
}

// citeTracking finds the rules by which a packet that ended so is apart from its connection, where it is lost by that,
// or is not known to arrive. again walks it with its steps.
func (x *onward) citeTracking(first *netfilter.Outcome, ends []netfilter.Outcome, again func() netfilter.Result) {
	unsure := x.code == "" && len(x.unsure) > 0 && !slices.ContainsFunc(ends, func(o netfilter.Outcome) bool {
		return !apart(&o.Packet, first)
	})
	if !unsure && (x.code == "" || !apart(&x.at.Packet, first)) {
		return
	}
	x.unsure = slices.Clone(x.unsure)
	steps := again().Steps
	for i := range steps {
		if s := &steps[i]; (s.Kind == netfilter.StepNotrack || s.Kind == netfilter.StepTemplate) &&
			s.Ref.Rule != nil && !slices.Contains(x.tracked, s.Ref) && len(x.tracked) < maxEvidence {
			x.tracked = append(x.tracked, s.Ref)
		}
	}
	if unsure && len(x.tracked) > 0 {
		by := x.tracked[0]
		x.unsure = []netfilter.Uncertain{{
			Where: by, What: by.Rule.Text,
			Why: "by it connection tracking does not find the packet's connection, and takes it for a new one; what " +
				"happens to that depends on " + x.unsure[0].Where.String() + ": " + x.unsure[0].Why,
		}}
	}
}

// judgeOnward judges the ends of a walk, of which right says whether one that was not dropped is what it should be, and
// why not. What is certain to happen to some packets is wrong; what may is unsure.
func (p *pathCase) judgeOnward(
	res *netfilter.Result, dropped, lost string, right func(o *netfilter.Outcome) (why string, ok bool),
) onward {
	x := onward{same: !res.ByTurn}
	unsure := false
	for i := range res.Outcomes {
		o := &res.Outcomes[i]
		code, why := "", o.Why
		switch o.End {
		case netfilter.Dropped, netfilter.Rejected:
			code = dropped
		case netfilter.NoRoute, netfilter.Filtered:
			code = lost
		case netfilter.Taken, netfilter.Lost:
			unsure = true
			if o.Certain && len(res.Uncertain) == 0 {
				x.unsure = []netfilter.Uncertain{{Where: o.Where, What: o.Where.String(), Why: o.Why}}
			}
			continue
		case netfilter.Sent, netfilter.Delivered:
			if reason, ok := right(o); !ok {
				code, why = lost, reason
			}
			if l := p.walker.Left(o); !slices.Contains(x.left, l) {
				x.left = append(x.left, l)
			}
		}
		switch {
		case code == "" || x.code != "":
		case o.Certain:
			x.code, x.at, x.why = code, *o, why
		default:
			unsure = true
		}
	}
	if x.code == "" && unsure {
		x.unsure = append(x.unsure, res.Uncertain...)
	}
	return x
}

// what names the packet.
func (x *onward) what() string {
	switch x.at.Packet.Turn {
	case netfilter.Later:
		return "a later packet"
	case netfilter.Further:
		return "a later packet of the endpoint"
	case netfilter.First, netfilter.Reply:
	}
	return "the endpoint's answer"
}

func (x *onward) message() string {
	switch x.at.End {
	case netfilter.Dropped:
		why := ""
		if x.at.Packet.Tracking == netfilter.Invalid {
			why = ", which connection tracking does not find its connection for (another zone, or not tracked)"
		}
		return x.at.Where.String() + " drops " + x.what() + why + ": the connection hangs"
	case netfilter.Rejected:
		return x.at.Where.String() + " refuses " + x.what() + ": the connection breaks off"
	}
	if by := x.at.By.String(); by != "" {
		return "the node's routing refuses " + x.what() + ": " + by
	}
	return x.what() + " is lost: " + x.why
}

// actual says in a few words what happens.
func (x *onward) actual() string {
	if x.code == ConnectionCut {
		return "cut off once established"
	}
	return "the answer does not come back"
}

// packet describes the packet where it ended. The client's port may be any.
func (x *onward) packet() string {
	p := &x.at.Packet
	name := "answer"
	switch p.Turn {
	case netfilter.Later:
		name = "later packet"
	case netfilter.Further:
		name = "later answer"
	case netfilter.First, netfilter.Reply:
	}
	from := p.Src.String()
	if p.SrcPort != 0 {
		from = netip.AddrPortFrom(p.Src, p.SrcPort).String()
	}
	to := p.Dst.String()
	if !p.Dst.IsValid() {
		to = "an address that is not known"
	}
	return name + " from " + from + " to " + to
}
