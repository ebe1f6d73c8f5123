// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What is on a packet's path and is not a rule: filters of tc, programs of BPF, policies of IPsec. Each is a table of
// one chain, whose rules the walk cannot follow: both is possible, that the packet passes and that it does not.
//
// Their place among the hooks is that of the kernel: XDP, tcx and tc's filters before netfilter's ingress, and behind
// its egress (__netif_receive_skb_core and __dev_queue_xmit in net/core/dev.c); programs of a control group at connect
// and sendmsg before the first packet is made.
const (
	beforeAll = math.MinInt32
	behindAll = math.MaxInt32
)

// anyFrame are the families of all that passes a device.
const anyFrame = netfilter.Inet | netfilter.ARP

// maxProgramText is how much of the text of filters is kept, in bytes.
const maxProgramText = 200

// obstacle is an op that nobody can follow, for the packets that it may concern.
type obstacle struct {
	applies func(p *netfilter.Packet) op.Truth
	why     string
}

// Run implements [netfilter.Op].
func (o *obstacle) Run(c *netfilter.Context) netfilter.Effect {
	if o.applies(c.Packet) == op.No {
		return netfilter.Effect{Kind: netfilter.Break}
	}
	return netfilter.Effect{Kind: netfilter.Opaque, Why: o.why}
}

// programTable makes a table of one chain with obstacles in it.
func programTable(name, chain string, base netfilter.Base, rules ...*netfilter.Rule) *netfilter.Table {
	for i, r := range rules {
		r.Num = i + 1
	}
	return &netfilter.Table{
		Backend: netfilter.BackendProgram, Name: name,
		Chains: []*netfilter.Chain{{Name: chain, Base: &base, Rules: rules}},
	}
}

// programs reads programs.txt, the XDP programs and macvlans of ip-link.json, xfrm-policy.txt, and in what order the
// kernel runs all of what is at a hook.
func (l *loader) programs() error {
	var tables []*netfilter.Table
	for _, dev := range l.Host.Devs() {
		if text := l.Host.XDP(dev); text != "" {
			tables = append(tables, programTable("xdp", dev,
				netfilter.Base{Hook: netfilter.Ingress, Priority: beforeAll, Policy: netfilter.Accept, Devices: []string{dev}},
				anyPacket(anyFrame, "XDP "+text, "an XDP program of "+dev+" decides before any rule")))
		}
	}
	// The interface on top has the frame behind all else at ingress (rx_handler in __netif_receive_skb_core).
	for _, x := range l.Host.Takers() {
		tables = append(tables, programTable("macvlan", x.Dev+" on "+x.From,
			netfilter.Base{
				Hook: netfilter.Ingress, Priority: behindAll, Policy: netfilter.Accept, Devices: []string{x.From},
			},
			anyPacket(anyFrame, x.Text, x.Dev+" takes "+x.Frames+" that come in by "+x.From+", which does not get them")))
	}
	for _, x := range []struct {
		file  string
		parse func([]byte) ([]*netfilter.Table, error)
	}{
		{snapshot.ProgramsFile, parsePrograms}, {snapshot.XfrmFile, l.policies}, {snapshot.EbtablesFile, parseEbtables},
	} {
		parse := func(data []byte) ([]*netfilter.Table, error) {
			out, err := x.parse(data)
			if x.file == snapshot.ProgramsFile {
				l.GroupPrograms = groupPrograms(data)
			}
			if err == nil && host.Unterminated(data) {
				err = errCut
			}
			return out, err
		}
		found, ok, err := read(l, x.file, true, parse, func(t []*netfilter.Table, _ error) bool {
			return len(t) > 0 || len(l.GroupPrograms) > 0
		})
		if err != nil {
			return err
		}
		if ok {
			tables = append(tables, found...)
		}
	}
	l.Rules.Add(tables...)
	order, ok, err := read(l, snapshot.NFTHooksFile, true, parseHooks, nil)
	if ok {
		l.Rules.Rank = order.rank
	}
	return err
}

// policies reads xfrm-policy.txt.
func (l *loader) policies(data []byte) ([]*netfilter.Table, error) {
	return parsePolicies(data, func(key string) bool {
		v, ok := l.Host.Sysctl(key)
		return ok && v != "0"
	})
}

// errCut is for a text whose end is missing.
var errCut = errors.New("it is cut off in its last line")

func anyPacket(families netfilter.Family, text, why string) *netfilter.Rule {
	return &netfilter.Rule{Text: text, Ops: []netfilter.Op{&obstacle{
		applies: func(p *netfilter.Packet) op.Truth { return op.Is(p.Family&families != 0) }, why: why,
	}}}
}

// place is where the lines of programs.txt that belong together are attached.
type place struct {
	kind, at, dir string
	priority      int
}

// errPrograms says what is expected.
var errPrograms = errors.New("lines of tc, tcx, cgroup, netfilter or arptables were expected (docs/snapshots.md)")

// parsePrograms reads programs.txt. Each line has a kind, a place and a text:
//
//	tc eth0 ingress filter protocol all pref 1 bpf chain 0 handle 0x1 …
//	tc eth0 egress qdisc netem limit 1000 loss 100% delay 0us
//	tc eth0 egress class htb 1:10 rate 1bps ceil 1bps
//	tcx eth0 egress program 12
//	cgroup connect4 program 13
//	cgroup egress /kubepods.slice/kubepods-pod1234.slice program 15
//	netfilter ip prerouting -128 program 14
//	arptables filter INPUT -i eth0 --opcode 2 -j DROP
func parsePrograms(data []byte) ([]*netfilter.Table, error) {
	order, found, bad := byPlace(data, errPrograms, placeOf)
	var out []*netfilter.Table
	for _, at := range order {
		if at.kind == "qdisc" { // those that lose nothing are left out
			found[at] = slices.DeleteFunc(found[at], func(words []string) bool { return familiesOf(at, words) == 0 })
		}
		var families netfilter.Family
		for _, words := range found[at] {
			families |= familiesOf(at, words)
		}
		if at.kind == "arptables" {
			out = append(out, arptables(at.at, found[at]))
		} else if families != 0 && (at.kind != "cgroup" || at.dir == "") {
			out = append(out, at.table(families, onOneLine(found[at])))
		}
	}
	return out, bad
}

// onOneLine is the text of the lines of a place.
func onOneLine(lines [][]string) string {
	text := make([]string, len(lines))
	for i, words := range lines {
		text[i] = strings.Join(words, " ")
	}
	return short(strings.Join(text, "; "))
}

// notReadLine is in a comment by which the helper says what it could not read: the rest of the file does not have it.
const notReadLine = " were not read: "

// byPlace reads lines of words, those that begin with # aside, and groups them by the place that they are about.
// placeOf returns the place, and the words behind it; ok is false for another line than expected says, the first of
// which is the error.
func byPlace[P comparable](
	data []byte, expected error, placeOf func(words []string) (at P, rest []string, ok bool),
) (order []P, found map[P][][]string, bad error) {
	found = map[P][][]string{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			if what, why, found := strings.Cut(strings.TrimSpace(line), notReadLine); found && bad == nil && printable(line) {
				bad = errors.New(short(strings.TrimPrefix(what, "# ") + notReadLine + why))
			}
			continue
		}
		at, rest, ok := placeOf(words)
		if !ok || !printable(line) {
			bad = cmp.Or(bad, fmt.Errorf("it has the line %q: %w", short(strings.TrimSpace(line)), expected))
			continue
		}
		if found[at] == nil {
			order = append(order, at)
		}
		found[at] = append(found[at], rest)
	}
	return order, found, bad
}

// printable tells whether a line is text: what nobody can read is not taken for a filter.
func printable(line string) bool {
	return utf8.ValidString(line) && !strings.ContainsFunc(strings.TrimRight(line, "\r\n"), func(r rune) bool {
		return unicode.IsControl(r) && r != '\t'
	})
}

func short(s string) string { return s[:min(len(s), maxProgramText)] }

// netfilterHooks are those that a program of BPF may be attached to (BPF_LINK_TYPE_NETFILTER).
var netfilterHooks = map[string]netfilter.Hook{
	"prerouting": netfilter.Prerouting, "input": netfilter.Input, "forward": netfilter.Forward,
	"output": netfilter.Output, "postrouting": netfilter.Postrouting,
}

// programFamilies are the IP families that the name of a netfilter program's family, or of a cgroup hook, stands for.
var programFamilies = map[string]netfilter.Family{
	"ip": netfilter.IPv4, "ip6": netfilter.IPv6, "inet": netfilter.Inet,
	"connect4": netfilter.IPv4, "sendmsg4": netfilter.IPv4, "connect6": netfilter.Inet, "sendmsg6": netfilter.Inet,
	"egress": netfilter.Inet, "ingress": netfilter.Inet,
	"recvmsg4": netfilter.IPv4, "recvmsg6": netfilter.Inet,
}

// placeOf reads the words of a line up to its text.
func placeOf(words []string) (at place, rest []string, ok bool) {
	at.kind = words[0]
	switch {
	case (at.kind == "tc" || at.kind == "tcx") && len(words) > 3 && (words[2] == "ingress" || words[2] == "egress"):
		at.at, at.dir = words[1], words[2]
		switch text := words[3:]; {
		case text[0] == "qdisc" || text[0] == "class":
			at.kind = "qdisc"
		case len(text) > 2 && text[1] == "parent" && text[2] != "ffff:": // of a queue, or of one of its classes
			major, _, _ := strings.Cut(text[2], ":")
			at.dir += " parent " + major + ":"
		}
		return at, words[3:], true
	case at.kind == "arptables" && len(words) > 3:
		at.at = words[1] + " " + words[2]
		_, ok = arptablesHooks[at.at]
		return at, words[3:], ok
	case at.kind == "cgroup" && len(words) > 2 && programFamilies[words[1]] != 0:
		at.at = words[1]
		if strings.HasPrefix(words[2], "/") {
			at.dir = strings.TrimSuffix(words[2], "/")
			return at, words[3:], len(words) > 3
		}
		return at, words[2:], true
	case at.kind == "netfilter" && len(words) > 4 && programFamilies[words[1]] != 0:
		if _, known := netfilterHooks[words[2]]; !known {
			return at, nil, false
		}
		n, err := strconv.ParseInt(words[3], 10, 32)
		at.at, at.dir, at.priority = words[1], words[2], int(n)
		return at, words[4:], err == nil
	}
	return at, nil, false
}

// familiesOf are the families whose packets a line is about: of a filter of tc that of its protocol. The lines that
// tc prints behind the first of a filter say nothing of it.
func familiesOf(at place, text []string) netfilter.Family {
	switch {
	case at.kind == "cgroup", at.kind == "netfilter":
		return programFamilies[at.at]
	case at.kind == "tcx":
		return anyFrame
	case at.kind == "qdisc":
		loses := losesPackets
		if text[0] == "class" {
			loses = classHolds
		}
		if loses(text[1:]) {
			return anyFrame
		}
		return 0
	case len(text) < 3 || text[0] != "filter":
		return 0
	}
	i := slices.Index(text, "protocol")
	if i < 0 || i+1 == len(text) {
		return anyFrame
	}
	f, known := map[string]netfilter.Family{
		"ip": netfilter.IPv4, "ipv6": netfilter.IPv6, "arp": netfilter.ARP, "802.1Q": 0, "802.1ad": 0,
	}[text[i+1]]
	if !known {
		return anyFrame
	}
	return f
}

// table makes the table of a place.
func (at place) table(families netfilter.Family, text string) *netfilter.Table {
	base := netfilter.Base{Priority: beforeAll + 1, Policy: netfilter.Accept}
	switch at.kind {
	case "cgroup":
		base.Hook = netfilter.Output
		return programTable("cgroup", at.at, base, &netfilter.Rule{Text: text, Ops: []netfilter.Op{&obstacle{
			applies: func(p *netfilter.Packet) op.Truth { return op.Is(p.Family&families != 0 && !p.Resolves()) },
			why:     "a program of the control group decides at " + at.at + ", before the packet is made",
		}}})
	case "netfilter":
		base.Hook, base.Priority = netfilterHooks[at.dir], at.priority
		return programTable("bpf", at.at+" "+at.dir, base,
			anyPacket(families, text, "it is a program of BPF among the rules"))
	}
	if at.kind == "qdisc" {
		base.Hook, base.Devices, base.Priority = netfilter.Egress, []string{at.at}, behindAll
		return programTable("qdisc", at.at+" egress", base, anyPacket(families, text,
			"a queue of tc may discard packets, or delay them"))
	}
	base.Hook, base.Devices = netfilter.Ingress, []string{at.at}
	if strings.HasPrefix(at.dir, "egress") {
		base.Hook, base.Priority = netfilter.Egress, behindAll
	}
	why := map[string]string{"tc": "filters of tc", "tcx": "programs of BPF (tcx)"}[at.kind]
	return programTable(at.kind, at.at+" "+at.dir, base, anyPacket(families, text, why+" decide, which are not rules"))
}
