// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// maxQueues bounds how many queues, and how many classes, of an interface are listed.
const maxQueues = 4096

// harmless are the queues that lose nothing where there are few packets, whatever their parameters.
var harmless = []string{"noqueue", "mq", "mqprio", "multiq", "prio", "ets", "pfifo_fast", "clsact", "ingress"}

// queue is a queue of tc (struct tcmsg with the attributes TCA_KIND and TCA_OPTIONS).
type queue struct {
	index   int
	handle  uint32
	kind    string
	options []byte
	sizes   []byte // how it counts the sizes of packets (struct tc_sizespec of TCA_STAB)
}

// readQueues returns the queues of all interfaces, also those that classes and queues have by themselves.
func readQueues() ([]queue, error) {
	const dumpInvisible, sizeTable, base = 10, 8, 1 // TCA_DUMP_INVISIBLE, TCA_STAB, TCA_STAB_BASE
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL})
	req.AddData(nl.NewRtAttr(dumpInvisible, nil))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil {
		return nil, fmt.Errorf("RTM_GETQDISC: %w", err)
	}
	var out []queue
	for _, a := range answers {
		m := nl.DeserializeTcMsg(a)
		attributes, err := nl.ParseRouteAttr(a[m.Len():])
		if err != nil {
			return nil, err
		}
		q := queue{index: int(m.Ifindex), handle: m.Handle}
		for _, x := range attributes {
			switch x.Attr.Type {
			case nl.TCA_KIND:
				q.kind = word(x.Value)
			case nl.TCA_OPTIONS:
				q.options = x.Value
			case sizeTable:
				q.sizes = attribute(x.Value, base)
			}
		}
		out = append(out, q)
	}
	return out, nil
}

// ingressOnly tells whether an interface has the queue for filters of what comes in, and not the one for both.
func ingressOnly(link netlink.Link, all []queue) bool {
	return slices.ContainsFunc(all, func(q queue) bool { return q.index == link.Attrs().Index && q.kind == "ingress" })
}

// word is the text of an attribute, without what would accept it apart.
func word(b []byte) string { return strings.Join(strings.Fields(unix.ByteSliceToString(b)), "_") }

// queues lists the queues of an interface but those that lose nothing, with what they may lose packets by, as tc prints
// it.
func queues(out *bytes.Buffer, link netlink.Link, all []queue) error {
	name, count := link.Attrs().Name, 0
	for i := range all {
		q := &all[i]
		if q.index != link.Attrs().Index || slices.Contains(harmless, q.kind) {
			continue
		}
		count++
		if count > maxQueues {
			return fmt.Errorf("%s has more than %d", name, maxQueues)
		}
		fmt.Fprintf(out, "tc %s egress qdisc %s%s%s\n", name, q.kind, q.parameters(), q.counted())
	}
	return nil
}

// counted is by how much larger a queue takes packets to be, and how large at least.
func (q *queue) counted() string {
	overhead, _ := number32(q.sizes, 4)
	least, ok := number32(q.sizes, 12)
	if !ok {
		return ""
	}
	return fmt.Sprintf(" overhead %d mpu %d", int32(overhead), least) //nolint:gosec // it is signed
}

// attribute returns one of several attributes; nil where it is not there.
func attribute(list []byte, kind uint16) []byte {
	attributes, err := nl.ParseRouteAttr(list)
	if err != nil {
		return nil
	}
	for _, a := range attributes {
		if a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return a.Value
		}
	}
	return nil
}

// number32 returns 32 bits of the queue's options, at an offset.
func number32(b []byte, at int) (n uint32, ok bool) {
	if len(b) < at+4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(b[at:]), true
}

// The attributes of options that are read, by kind of queue (include/uapi/linux/pkt_sched.h), with the offset in each.
var attributesOf = map[string][]struct {
	attribute uint16
	at        int
	format    string
}{
	"red":      {{1, 0, " limit %db"}},
	"choke":    {{1, 0, " limit %dp"}},
	"sfb":      {{1, 24, " limit %dp"}},
	"codel":    {{2, 0, " limit %dp"}},
	"fq_codel": {{2, 0, " limit %dp"}},
	"pie":      {{2, 0, " limit %dp"}},
	"fq_pie":   {{1, 0, " limit %dp"}},
	"hhf":      {{1, 0, " limit %dp"}},
	"dualpi2":  {{1, 0, " limit %dp"}},
	"htb":      {{5, 0, " direct_qlen %dp"}},
	"fq":       {{1, 0, " limit %dp"}, {2, 0, " flow_limit %dp"}, {7, 0, " maxrate %dbps"}},
}

// plainOf are the options that are no attributes: struct tc_fifo_qopt, tc_sfq_qopt and tc_skbprio_qopt.
var plainOf = map[string]struct {
	at     int
	format string
}{
	"pfifo": {0, " limit %dp"}, "pfifo_head_drop": {0, " limit %dp"}, "bfifo": {0, " limit %db"},
	"sfq": {8, " limit %dp"}, "skbprio": {0, " limit %dp"},
}

// parameters are those by which a queue may lose packets.
func (q *queue) parameters() string {
	if p, ok := plainOf[q.kind]; ok {
		if n, ok := number32(q.options, p.at); ok {
			return fmt.Sprintf(p.format, n)
		}
		return ""
	}
	if q.kind == "netem" { // struct tc_netem_qopt: latency, limit, loss
		limit, _ := number32(q.options, 4)
		loss, ok := number32(q.options, 8)
		latency, _ := number32(q.options, 0)
		if !ok {
			return ""
		}
		return fmt.Sprintf(" limit %d loss %g%% delay %.0fus", limit, float64(loss)/math.MaxUint32*100,
			float64(latency)/netlink.TickInUsec())
	}
	of := func(kind uint16) []byte { return attribute(q.options, kind) }
	if q.kind == "tbf" {
		return tbfParameters(of)
	}
	if q.kind == "cake" { // TCA_CAKE_BASE_RATE64
		if b := of(2); len(b) >= 8 && binary.NativeEndian.Uint64(b) > 0 {
			return fmt.Sprintf(" bandwidth %dbps", binary.NativeEndian.Uint64(b))
		}
		return ""
	}
	var text strings.Builder
	for _, a := range attributesOf[q.kind] {
		if n, ok := number32(of(a.attribute), a.at); ok {
			fmt.Fprintf(&text, a.format, n)
		}
	}
	return text.String()
}

// tbfParameters are those of struct tc_tbf_qopt. The kernel keeps a burst as the time that it takes, in ticks.
func tbfParameters(of func(kind uint16) []byte) string {
	parameters := of(nl.TCA_TBF_PARMS)
	if len(parameters) < nl.SizeofTcTbfQopt {
		return ""
	}
	opt := nl.DeserializeTcTbfQopt(parameters)
	rate, peak := uint64(opt.Rate.Rate), uint64(opt.Peakrate.Rate)
	if b := of(nl.TCA_TBF_RATE64); len(b) >= 8 {
		rate = binary.NativeEndian.Uint64(b)
	}
	if b := of(nl.TCA_TBF_PRATE64); len(b) >= 8 {
		peak = binary.NativeEndian.Uint64(b)
	}
	burst := func(rate uint64, ticks uint32) float64 {
		return math.Round(float64(rate) * float64(ticks) / netlink.TickInUsec() / 1e6)
	}
	text := fmt.Sprintf(" rate %dbps burst %.0fb limit %db", rate, burst(rate, opt.Buffer), opt.Limit)
	if peak > 0 {
		text += fmt.Sprintf(" peakrate %dbps minburst %.0fb", peak, burst(peak, opt.Mtu))
	}
	if opt.Rate.Overhead > 0 || opt.Rate.Mpu > 0 {
		text += fmt.Sprintf(" overhead %d mpu %d", opt.Rate.Overhead, opt.Rate.Mpu)
	}
	return text
}

// classes lists the classes of an interface's queues with what they limit, and the filters of queues and classes that
// do more than choose a class.
func classes(out *bytes.Buffer, link netlink.Link, all []queue) error {
	name, index := link.Attrs().Name, link.Attrs().Index
	var parents []uint32
	for i := range all {
		q := &all[i]
		if q.index == index && q.handle != 0 && q.kind != "clsact" && q.kind != "ingress" && q.kind != "mq" {
			parents = append(parents, q.handle)
		}
	}
	if parents == nil {
		return nil
	}
	list, err := netlink.ClassList(link, 0)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.Attrs().Handle&0xffff == 0 || c.Type() == "mq" {
			continue
		}
		parents = append(parents, c.Attrs().Handle)
		if h, ok := c.(*netlink.HtbClass); ok {
			fmt.Fprintf(out, "tc %s egress class htb %s rate %dbps ceil %dbps\n", name, netlink.HandleStr(h.Handle), h.Rate,
				h.Ceil)
		}
	}
	if len(parents) > maxQueues {
		return fmt.Errorf("%s has more than %d classes", name, maxQueues)
	}
	for _, parent := range parents {
		if err := filtersBelow(out, link, parent); err != nil {
			return err
		}
	}
	return nil
}

// filtersBelow lists the filters of a queue, or of a class.
func filtersBelow(out *bytes.Buffer, link netlink.Link, parent uint32) error {
	name, index := link.Attrs().Name, link.Attrs().Index
	req := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent}) //nolint:gosec // an index
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
		return nil // there can be none
	case err != nil:
		return fmt.Errorf("RTM_GETTFILTER: %w", err)
	}
	for _, a := range answers {
		m := nl.DeserializeTcMsg(a)
		attributes, err := nl.ParseRouteAttr(a[m.Len():])
		if err != nil {
			return err
		}
		kind, options := "", []byte(nil)
		for _, x := range attributes {
			switch x.Attr.Type {
			case nl.TCA_KIND:
				kind = word(x.Value)
			case nl.TCA_OPTIONS:
				options = x.Value
			}
		}
		if !classifies(kind, options) {
			priority, protocol := netlink.MajorMinor(m.Info)
			fmt.Fprintf(out, "tc %s egress filter parent %s protocol %s pref %d %s handle 0x%x\n", name,
				netlink.HandleStr(parent), protocolOf(nl.Swap16(protocol)), priority, kind, m.Handle)
		}
	}
	return nil
}

// actionsOf are the attributes of a filter's options that say what else it does than to choose a class: its actions,
// and what limits a rate (include/uapi/linux/pkt_cls.h).
var actionsOf = map[string][]uint16{
	"u32": {6, 7}, "fw": {2, 4}, "matchall": {2}, "flower": {3}, "basic": {3, 4}, "bpf": {1, 2},
}

// classifies tells whether a filter does nothing but choose a class. What lists no options is the head of others.
func classifies(kind string, options []byte) bool {
	const bpfFlags, direct = 8, 1 // TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT
	actions, known := actionsOf[kind]
	attributes, err := nl.ParseRouteAttr(options)
	if err != nil {
		return false
	}
	for _, a := range attributes {
		n, _ := number32(a.Value, 0)
		if slices.Contains(actions, a.Attr.Type) || kind == "bpf" && a.Attr.Type == bpfFlags && n&direct != 0 {
			return false
		}
	}
	return known || len(options) == 0
}
