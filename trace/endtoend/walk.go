// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// rulesUnread says why the rules of a network namespace are not all known for a family; "" where they are. A file that
// is missing is not a rule only where the collector says that it has tried to read all.
func rulesUnread(s *nodestate.State, f netfilter.Family) string {
	if x := s.NotAll[f]; x != nil {
		return x.String()
	}
	files := []string{snapshot.NFTFile, snapshot.IPVSFile}
	for _, save := range nodestate.SaveFiles[f] {
		files = append(files, save.Name)
	}
	for _, file := range files {
		if why := s.Unread(file); why != "" {
			return file + " could not be read: " + why
		}
	}
	if !s.ListsUnread() && len(s.Have[f]) == 0 && !s.Has(snapshot.NFTFile) {
		return "its rules were not collected"
	}
	return ""
}

// trouble is why a walk does not end as it should.
type trouble struct {
	unknown  bool // nothing is proved
	noRoute  bool
	refused  bool   // the packet is rejected: its sender is told
	packet   string // which one it is about; "" for the answer
	message  string
	owner    string
	command  string // that tells what was not read; "" where another one does
	evidence []report.Evidence
}

// passes looks at the outcomes of a walk: nil where all of them are certain and good; else what stands against it. The
// outcome returned is one of the good ones, the zero Outcome where there is none.
func (c *Connection) passes(
	s *nodestate.State, f netfilter.Family, res *netfilter.Result, good func(*netfilter.Outcome) bool,
) (netfilter.Outcome, *trouble) {
	var kept netfilter.Outcome
	found := false
	var bad *trouble
	part := slices.ContainsFunc(res.Outcomes, func(o netfilter.Outcome) bool { return good(&o) || goesElsewhere(&o) })
	for i := range res.Outcomes {
		o := &res.Outcomes[i]
		if good(o) {
			if !found {
				kept, found = *o, true
			}
			continue
		}
		t := c.troubleOf(o)
		switch {
		case !o.Certain:
			t.doubt(o, res)
		case part && !t.unknown:
			t.ofShare(o)
		}
		if bad == nil || bad.unknown && !t.unknown {
			bad = t
		}
	}
	rules := rulesUnread(s, f)
	routes, noRoutes := c.unread(s, f, byRoutes)
	switch {
	case bad == nil && !found:
		bad = &trouble{unknown: true, message: "the walk has come to no end"}
	case bad == nil && rules != "":
		bad = &trouble{unknown: true, message: rules}
	case bad == nil && routes != nil:
		bad = &trouble{unknown: true, message: noRoutes, command: routes.command}
	case bad == nil:
		if packets, why := c.unread(s, f, byPackets, devicesOf(res)...); packets != nil {
			bad = &trouble{unknown: true, message: why, command: packets.command}
		} else if res.Ended != "" {
			bad = &trouble{unknown: true, message: res.Ended}
		}
	case bad.noRoute && rules != "":
		bad.unknown = true // a rule that was not read may translate the packet before
	case bad.noRoute && routes != nil:
		bad.unknown, bad.command = true, routes.command
		bad.message += "; " + noRoutes
	}
	if bad != nil && bad.unknown {
		for i := range res.Uncertain {
			u := &res.Uncertain[i]
			e := report.Evidence{Text: strings.TrimSpace(strings.Clone(u.What) + " (" + strings.Clone(u.Why) + ")")}
			if u.Where.Chain != nil {
				e.Where = c.Cite(u.Where).Where
			}
			if slices.ContainsFunc(bad.evidence, func(has report.Evidence) bool { // which quotes the rule
				return e.Where.Chain != "" && has.Where == e.Where && bad.doubts(u)
			}) {
				continue
			}
			if len(bad.evidence) < maxEvidence && !slices.Contains(bad.evidence, e) {
				bad.evidence = append(bad.evidence, e)
			}
		}
	}
	return kept, bad
}

// goesElsewhere tells whether a packet is not known to be lost.
func goesElsewhere(o *netfilter.Outcome) bool {
	switch o.End {
	case netfilter.Sent, netfilter.Delivered, netfilter.Taken, netfilter.Lost:
		return true
	case netfilter.Dropped, netfilter.Rejected, netfilter.Filtered, netfilter.NoRoute:
	}
	return false
}

// ofShare says that a share of the packets alone comes to an end, as by the match statistic: a SYN is sent again, and
// the connection may be made all the same.
func (t *trouble) ofShare(o *netfilter.Outcome) {
	const percent = 100
	of := "new connections"
	if turn := o.Packet.Turn; turn == netfilter.Later || turn == netfilter.Further {
		of = "the packets"
	}
	t.unknown = true
	t.message += fmt.Sprintf(", for about %.3g%% of %s", percent*o.P, of)
}

// doubt says that an outcome is not certain, and why, if its own rule is what is not known.
func (t *trouble) doubt(o *netfilter.Outcome, res *netfilter.Result) {
	t.unknown = true
	switch o.End {
	case netfilter.Dropped, netfilter.Rejected, netfilter.Filtered:
		t.message = "may be " + t.message
	case netfilter.NoRoute, netfilter.Taken, netfilter.Lost, netfilter.Sent, netfilter.Delivered:
		return
	}
	for i := range res.Uncertain {
		if u := &res.Uncertain[i]; u.Where.Chain != nil && u.Where == o.Where && u.Why != "" {
			t.message += ": " + strings.Clone(u.Why)
			return
		}
	}
}

// doubts tells whether the message says already why something is uncertain.
func (t *trouble) doubts(u *netfilter.Uncertain) bool {
	return u.Why != "" && strings.HasSuffix(t.message, ": "+u.Why)
}

// devicesOf are the interfaces that the packets of a walk have come in by and leave by.
func devicesOf(res *netfilter.Result) (devs []string) {
	for i := range res.Outcomes {
		p := &res.Outcomes[i].Packet
		devs = append(devs, p.In, p.Out)
	}
	return devs
}

// maxEvidence is how much is quoted in one segment.
const maxEvidence = 8

// troubleOf says what became of a packet that has not come to a good end.
func (c *Connection) troubleOf(o *netfilter.Outcome) *trouble {
	t := &trouble{}
	if o.Where.Chain != nil {
		t.evidence = []report.Evidence{c.Cite(o.Where)}
		t.owner = OwnerOf(o.Where)
	}
	at := ""
	if o.Where.Chain != nil {
		at = " by " + c.Cite(o.Where).Where.String()
	}
	switch o.End {
	case netfilter.Dropped:
		t.message = "dropped" + at
		if o.Why != "" && o.Where.Chain == nil {
			t.message += ": " + o.Why
		}
	case netfilter.Rejected:
		t.refused, t.message = true, "rejected"+at
	case netfilter.NoRoute:
		t.noRoute = true
		t.message = "there is no usable route to " + o.Packet.Dst.String()
		if by := o.By.String(); by != "" {
			t.evidence = append(t.evidence, report.Evidence{Text: by})
		}
	case netfilter.Filtered:
		t.message = "dropped for its source by the reverse path filter: " + o.Route
		t.owner = "a setting of the kernel"
		t.evidence = append(t.evidence, report.Evidence{Text: strings.Clone(o.Why)})
	case netfilter.Taken, netfilter.Lost:
		t.unknown, t.message = true, "what happens to the packet"+at+" is not known"
		if o.Why != "" {
			t.message += ": " + strings.Clone(o.Why)
		}
	case netfilter.Sent:
		t.unknown = true
		t.message = fmt.Sprintf("sent on to %s by %s", destination(&o.Packet), o.Packet.Out)
		c.translates(t, &o.Packet)
	case netfilter.Delivered:
		t.unknown = true
		t.message = "given to a socket at " + destination(&o.Packet)
		c.translates(t, &o.Packet)
	}
	return t
}

// destination is where a packet goes; without the port where that is any.
func destination(p *netfilter.Packet) string {
	if p.DstPort == 0 {
		return p.Dst.String()
	}
	return netip.AddrPortFrom(p.Dst, p.DstPort).String()
}

// translates names the rule that gave a packet its destination.
func (c *Connection) translates(t *trouble, p *netfilter.Packet) {
	if !p.DNAT || p.DNATBy.Chain == nil {
		return
	}
	e := c.Cite(p.DNATBy)
	t.message += ", as " + e.Where.String() + " translates the destination"
	t.evidence, t.owner = append(t.evidence, e), OwnerOf(p.DNATBy)
}

// kept says that a namespace gives packets to its own sockets which are for another one, as it has their destination
// itself; nil where that is not certain of all outcomes.
func (c *Connection) kept(
	s *nodestate.State, res *netfilter.Result, to netip.Addr, who, what string,
) *trouble {
	for i := range res.Outcomes {
		if o := &res.Outcomes[i]; !o.Certain || o.End != netfilter.Delivered || o.Packet.Dst != to {
			return nil
		}
	}
	f := netfilter.FamilyOf(to)
	unread, _ := c.unread(s, f, byRoutes)
	if len(res.Outcomes) == 0 || res.Ended != "" || rulesUnread(s, f) != "" || unread != nil {
		return nil
	}
	if dev := s.Host.DevOf(to); dev != "" {
		return &trouble{
			owner:    "the network configuration",
			message:  fmt.Sprintf("%s itself has the address %s: it gives %s to its own sockets", who, to, what),
			evidence: []report.Evidence{{Text: fmt.Sprintf("ip addr: %s dev %s", to, dev)}},
		}
	}
	l := s.Host.Lookup(host.Query{Dst: to, AnyMark: true, AnyUID: true})
	if !l.Known || l.Type != host.RouteLocal {
		return nil
	}
	return &trouble{
		owner:    "the network configuration",
		message:  fmt.Sprintf("%s has a local route to %s: it gives %s to its own sockets", who, to, what),
		evidence: []report.Evidence{{Text: cmp.Or(l.By.String(), "ip route show table local: "+to.String())}},
	}
}

// segment writes up a trouble as a segment.
func (t *trouble) segment(code, segment, place, node, command string) report.Segment {
	if t.unknown {
		if t.command != "" && strings.HasPrefix(place, podPlace("")) {
			command = enter(t.command)
		} else {
			command = cmp.Or(t.command, command)
		}
		s := unknown(segment, place, node, command, "%s", t.message)
		s.Evidence = t.evidence
		return s
	}
	s := wrong(code, segment, place, t.owner, "%s", t.message)
	s.Evidence, s.Refused = t.evidence, t.refused
	return s
}

// forwardingOff cites the setting by which packets that come in by an interface are not forwarded; "" where they are,
// and where it was not collected (ip_route_input_slow in net/ipv4/route.c, ip6_forward in net/ipv6/ip6_output.c).
func forwardingOff(s *nodestate.State, in string, v4 bool) string {
	keys := []string{"net/ipv6/conf/all/forwarding"}
	if v4 {
		keys = []string{"net/ipv4/conf/" + in + "/forwarding", "net/ipv4/ip_forward"}
	} else if v, ok := s.Host.Sysctl("net/ipv6/conf/" + in + "/force_forwarding"); ok && v != "0" {
		return ""
	}
	for _, key := range keys {
		if v, ok := s.Host.Sysctl(key); ok {
			if v == "0" {
				return key + "=0"
			}
			return ""
		}
		if s.Reading(snapshot.SysctlFile).State == nodestate.Partial {
			return ""
		}
	}
	return ""
}
