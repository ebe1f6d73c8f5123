// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// Where devices and bridges have their hooks, in the kernel's order:
//
//	port: INGRESS ─► BRIDGE PREROUTING ─► BRIDGE INPUT ─► bridge: INGRESS ─► PREROUTING …
//	… POSTROUTING ─► bridge: EGRESS ─► BRIDGE OUTPUT ─► BRIDGE POSTROUTING ─► port: EGRESS
//
// (__netif_receive_skb_core and __dev_queue_xmit in net/core/dev.c; br_handle_frame and br_pass_frame_up in
// net/bridge/br_input.c; __br_forward in net/bridge/br_forward.c.) With br_netfilter the chains of PREROUTING run in
// the middle of BRIDGE PREROUTING, and not again behind it (ip_sabotage_in in net/bridge/br_netfilter_hooks.c). What
// they translate to a destination beyond the same bridge stays in the bridge (br_nf_pre_routing_finish): BRIDGE FORWARD
// with FORWARD in its middle, BRIDGE POSTROUTING with POSTROUTING at its end, and the egress of a port.

// The priorities at which br_netfilter runs the chains of the IP family (enum nf_br_hook_priorities).
const (
	brPrerouting  = 0
	brForward     = -1
	brPostrouting = math.MaxInt32
)

// attachment says which of the devices that a packet may be at a chain is attached to.
type attachment struct {
	devs string // those devices, each followed by a space; "" where what it is attached to is not known
	one  string // the only one of devs; "" where there are others
	what string
	why  string
}

// bridgeKey and attachedKey stand for what is not known of devices.
type (
	bridgeKey   struct{ dev string }
	callsKey    struct{ dev string }
	bridgedKey  struct{ dev string }
	attachedKey struct{ devs, what string }
)

// comeIn takes a packet of a neighbour through the hooks before the routing decision. It takes the slice over.
func (w *Walker) comeIn(alive []branch, neighbour netip.Addr) []branch {
	in := alive[0].pkt
	if !w.linked[in.Family] || in.In == "" {
		return w.hook(Prerouting, alive, false)
	}
	layers := w.below(in.In, neighbour)
	var bridged []branch
	for _, l := range slices.Backward(layers) {
		alive = w.atDevice(Ingress, &l, alive)
		if l.Bridge != "" && len(alive) > 0 {
			alive, bridged = w.intoBridge(&l, alive, l.Bridge == in.In)
		}
	}
	alive = w.atDevice(Ingress, &host.Layer{Devs: []string{in.In}}, alive)
	return setIfaces(append(w.unmet(setIfaces(alive, in.In, "")), bridged...), in.In, "")
}

// below are the layers below an interface, for packets of a neighbour. Where the interfaces were not collected it may
// be a bridge, or on top of any other.
func (w *Walker) below(dev string, neighbour netip.Addr) []host.Layer {
	layers, known := w.host.Below(dev)
	if !known || dev == UnknownIface {
		return []host.Layer{{Devs: []string{UnknownIface}, Bridge: dev, Maybe: true}}
	}
	if len(layers) > 0 && layers[0].Bridge == dev && w.port != nil {
		if port := w.port(dev, neighbour); slices.Contains(layers[0].Devs, port) {
			layers = slices.Clone(layers)
			layers[0].Devs, layers[0].Maybe = []string{port}, false
		}
	}
	return layers
}

// WithPorts gives a function that tells behind which port of a bridge an address is; "" where that is not known.
func WithPorts(port func(bridge string, a netip.Addr) string) WalkerOption {
	return func(w *Walker) { w.port = port }
}

// unmet runs PREROUTING for the branches that have not met it in a bridge.
func (w *Walker) unmet(bs []branch) (out []branch) {
	var rest []branch
	for _, b := range bs {
		if b.pkt.Bridge == "" {
			rest = append(rest, b)
			continue
		}
		b.pkt.Bridge = ""
		out = append(out, b)
	}
	return append(out, w.hook(Prerouting, rest, false)...)
}

// ifBridge sorts packets by whether a layer is a bridge; to both where that is not known.
func (w *Walker) ifBridge(l *host.Layer, bs []branch) (through, past []branch) {
	if !l.Maybe {
		return slices.Clone(bs), nil
	}
	for _, b := range bs {
		yes, no := w.fork(b, bridgeKey{l.Bridge}, Uncertain{
			What: "whether " + l.Bridge + " is a bridge",
			Why:  "the kinds of interfaces were not collected (ip-link.json, by ip -j -d link)",
		})
		through, past = append(through, yes), append(past, no)
	}
	return through, past
}

// intoBridge takes packets from a port to the bridge itself, or as bridged to where it forwards them. calls: the bridge
// is the interface by which the packet comes in for IP, so that br_netfilter may run PREROUTING.
func (w *Walker) intoBridge(l *host.Layer, alive []branch, calls bool) (up, bridged []branch) {
	through, past := w.ifBridge(l, alive)
	port := w.nameOf(l.Devs)
	through = setIfaces(through, port, "")
	slots := w.slots[through[0].pkt.Family]
	var with, without []branch
	for _, b := range through {
		on, known := false, true
		if calls && b.pkt.Family != ARP {
			on, known = w.host.BridgeCalls(l.Bridge, b.pkt.Family == IPv4)
		}
		switch {
		case !known:
			yes, no := w.fork(b, callsKey{l.Bridge}, Uncertain{
				What: "whether " + l.Bridge + " runs iptables on what it forwards",
				Why:  "net.bridge.bridge-nf-call-iptables and -ip6tables were not collected (sysctl.txt)",
			})
			with, without = append(with, yes), append(without, no)
		case on:
			with = append(with, b)
		default:
			without = append(without, b)
		}
	}
	without = slices.Clone(w.through(BridgePrerouting, slots[BridgePrerouting], without, false))
	if len(with) > 0 {
		called := w.calling(slots[BridgePrerouting], BridgePrerouting, l, port)
		with = slices.Clone(w.through(BridgePrerouting, called, with, false))
	}
	with = slices.DeleteFunc(with, func(b branch) bool {
		if b.pkt.Bridge == l.Bridge {
			bridged = append(bridged, b)
		}
		return b.pkt.Bridge == l.Bridge
	})
	up = slices.Clone(w.through(BridgeInput, slots[BridgeInput], append(without, with...), false))
	return append(up, past...), bridged
}

// calling are the chains of a bridge's hook with what br_netfilter runs among them.
func (w *Walker) calling(slots []slot, h Hook, l *host.Layer, port string) []slot {
	inner := map[Hook]Hook{BridgePrerouting: Prerouting, BridgeForward: Forward, BridgePostrouting: Postrouting}[h]
	priority := map[Hook]int{
		BridgePrerouting: brPrerouting, BridgeForward: brForward, BridgePostrouting: brPostrouting,
	}[h]
	call := &Chain{
		Table: &Table{Name: "br_netfilter", Backend: BackendNative}, Name: inner.String(),
		calls: func(b *branch) []branch {
			out := []branch{*b}
			switch inner {
			case Prerouting:
				out = setIfaces(out, l.Bridge, "")
				out = w.stayIn(l.Bridge, w.nested(Prerouting, out))
				out = setIfaces(out, port, "")
			case Forward:
				from := b.pkt.In
				out = setIfaces(w.nested(Forward, setIfaces(out, l.Bridge, l.Bridge)), from, port)
			default:
				out = setIfaces(w.nested(Postrouting, setIfaces(out, "", l.Bridge)), "", port)
			}
			return out
		},
	}
	out := slices.Clone(slots)
	at, found := slices.BinarySearchFunc(out, priority, func(s slot, p int) int {
		return cmp.Compare(s.priority, p)
	})
	if found {
		out[at].chains = append(slices.Clip(out[at].chains), call)
		return out
	}
	return slices.Insert(out, at, slot{priority: priority, chains: []*Chain{call}})
}

// nested runs a hook in the middle of another one.
func (w *Walker) nested(h Hook, bs []branch) []branch {
	outer, calls := w.ctx.Hook, w.calls
	out := w.hook(h, bs, false)
	w.ctx.Hook, w.calls = outer, calls
	return out
}

// stayIn marks the branches that the bridge forwards itself, as their destination was translated to one that the node
// reaches by the same bridge, and those that have met PREROUTING.
func (w *Walker) stayIn(bridge string, bs []branch) []branch {
	var out []branch
	for _, b := range bs {
		b.pkt.Bridge = metPrerouting
		if b.pkt.Dst == b.pkt.OrigDst {
			out = append(out, b)
			continue
		}
		switch r := w.route(&b.pkt); {
		case !r.Known:
			yes, no := w.fork(b, bridgedKey{bridge}, Uncertain{
				What: "whether " + bridge + " forwards the packet itself",
				Why:  "the route of its destination is not known",
			})
			yes.pkt.Bridge = bridge
			out = append(out, yes, no)
			continue
		case r.Type == host.RouteUnicast && r.Dev == bridge:
			b.pkt.Bridge = bridge
		}
		out = append(out, b)
	}
	return out
}

// bridgeOn takes the branches that a bridge forwards itself to their end, and returns the others. All of them have the
// interface to leave by. It takes the slice over.
func (w *Walker) bridgeOn(bs []branch) []branch {
	var bridged []branch
	bs = slices.DeleteFunc(bs, func(b branch) bool {
		if b.pkt.Bridge != "" {
			bridged = append(bridged, b)
		}
		return b.pkt.Bridge != ""
	})
	for len(bridged) > 0 {
		dst := bridged[0].pkt.Dst
		var these []branch
		bridged = slices.DeleteFunc(bridged, func(b branch) bool {
			if b.pkt.Dst == dst {
				these = append(these, b)
			}
			return b.pkt.Dst == dst
		})
		w.withinBridge(these)
	}
	return bs
}

// withinBridge takes branches of one destination through the bridge to their end.
func (w *Walker) withinBridge(bridged []branch) {
	name := bridged[0].pkt.Bridge // of all: they came in by it
	from := w.below(name, w.start.Src)
	layers := w.below(name, bridged[0].pkt.Dst)
	if len(layers) == 0 || len(from) == 0 {
		w.finish(bridged, Sent) // a bridge without ports forwards nothing to it in the first place
		return
	}
	l, slots := layers[0], w.slots[bridged[0].pkt.Family]
	port := w.nameOf(l.Devs)
	bridged = setIfaces(bridged, w.nameOf(from[0].Devs), port)
	for _, h := range []Hook{BridgeForward, BridgePostrouting} {
		bridged = slices.Clone(w.through(h, w.calling(slots[h], h, &l, port), bridged, false))
		bridged = setIfaces(bridged, "", port)
	}
	for i := range layers {
		bridged = w.atDevice(Egress, &layers[i], bridged)
	}
	w.finish(setIfaces(bridged, name, name), Sent)
}

// goOut takes packets behind POSTROUTING through the hooks of the devices that they leave by. It takes the slice over.
func (w *Walker) goOut(bs []branch) []branch {
	if len(bs) == 0 || !w.linked[bs[0].pkt.Family] {
		return bs
	}
	var done []branch
	for bs = slices.Clone(bs); len(bs) > 0; {
		first := bs[0].pkt
		var these []branch
		bs = slices.DeleteFunc(bs, func(b branch) bool {
			same := b.pkt.Out == first.Out && b.pkt.In == first.In && b.pkt.Dst == first.Dst
			if same {
				these = append(these, b)
			}
			return same
		})
		these = w.outBy(these, first.Out, first.Dst)
		done = append(done, setIfaces(these, first.In, first.Out)...)
	}
	return done
}

// outBy takes packets out by an interface.
func (w *Walker) outBy(bs []branch, dev string, to netip.Addr) []branch {
	layers := w.below(dev, to)
	bs = setIfaces(bs, "", dev)
	bs = w.atDevice(Egress, &host.Layer{Devs: []string{dev}}, bs)
	for i := range layers {
		l := &layers[i]
		if l.Bridge != "" && len(bs) > 0 {
			bs = w.outOfBridge(l, bs)
		}
		bs = w.atDevice(Egress, l, bs)
	}
	return bs
}

// outOfBridge takes the node's packets to a port of a bridge.
func (w *Walker) outOfBridge(l *host.Layer, bs []branch) []branch {
	through, past := w.ifBridge(l, bs)
	through = setIfaces(through, "", w.nameOf(l.Devs))
	for _, h := range []Hook{BridgeOutput, BridgePostrouting} {
		if len(through) > 0 {
			through = slices.Clone(w.through(h, w.slots[through[0].pkt.Family][h], through, false))
		}
	}
	return append(through, past...)
}

// byLo takes packets out by lo, and in again.
func (w *Walker) byLo(bs []branch) []branch {
	if len(bs) > 0 && w.linked[bs[0].pkt.Family] {
		lo := &host.Layer{Devs: []string{"lo"}}
		bs = w.atDevice(Egress, lo, setIfaces(bs, "", "lo"))
		bs = w.atDevice(Ingress, lo, setIfaces(bs, "lo", ""))
	}
	return setIfaces(bs, "lo", "")
}

// setIfaces gives branches other interfaces, in place.
func setIfaces(bs []branch, in, out string) []branch {
	for i := range bs {
		bs[i].pkt.In, bs[i].pkt.Out = in, out
	}
	return bs
}

// nameOf is the name of the only one of some devices, and one that stands for all of several.
func (w *Walker) nameOf(devs []string) string {
	if len(devs) == 1 {
		return devs[0]
	}
	all := strings.Join(devs, " ")
	name, ok := w.groups[all]
	if !ok {
		name = UnknownIface + " " + strconv.Itoa(len(w.groups))
		w.groups[all] = name
		w.ctx.OneOf[name] = devs
	}
	return name
}

// atDevice runs the chains of a hook of a device, for packets that pass one of those of a layer. It takes the slice
// over, and gives the packets the interface.
func (w *Walker) atDevice(h Hook, l *host.Layer, bs []branch) []branch {
	if len(bs) == 0 {
		return nil
	}
	name := w.nameOf(l.Devs)
	if h == Ingress {
		bs = setIfaces(bs, name, "")
	} else {
		bs = setIfaces(bs, "", name)
	}
	var slots []slot
	for _, s := range w.slots[bs[0].pkt.Family][h] {
		only := slot{priority: s.priority, part: map[*Chain]attachment{}}
		for _, c := range s.chains {
			a, applies := attach(h, c, l)
			if !applies {
				continue
			}
			only.chains = append(only.chains, c)
			if a.what != "" {
				only.part[c] = a
			}
		}
		if len(only.chains) > 0 {
			slots = append(slots, only)
		}
	}
	if len(slots) == 0 {
		return bs
	}
	return slices.Clone(w.through(h, slots, bs, false))
}

// attach tells whether a chain is, or may be, attached to a device that a packet passes.
func attach(h Hook, c *Chain, l *host.Layer) (a attachment, applies bool) {
	verb := map[Hook]string{Ingress: "comes in by ", Egress: "leaves by "}[h]
	if c.Base.Devices == nil {
		return attachment{
			what: "whether chain " + c.Name + " of " + c.Table.Name + " is attached to an interface that the packet " +
				strings.TrimSpace(verb),
			why: "its devices are not in the listing (nft-ruleset.json of an older nft lacks them)",
		}, true
	}
	var on []string
	unknown := len(l.Devs) == 1 && l.Devs[0] == UnknownIface
	for _, dev := range l.Devs {
		if c.Base.attachedTo(dev) {
			on = append(on, dev)
		}
	}
	switch {
	case unknown:
		on = c.Base.Devices
	case len(on) == len(l.Devs) && !l.Maybe:
		return a, true
	}
	if len(on) == 0 {
		return a, false
	}
	a.devs = strings.Join(on, " ") + " "
	if a.one = ""; len(on) == 1 && !strings.HasSuffix(on[0], "*") {
		a.one = on[0]
	}
	a.what = "whether the packet " + verb + strings.Join(on, " or ")
	a.why = "by which interface it goes is not known (ip-link.json)"
	if l.Bridge != "" {
		a.why = "by which port of " + l.Bridge + " it goes is not known"
	}
	return a, true
}

// attachedTo tells whether a chain is attached to an interface.
func (b *Base) attachedTo(dev string) bool {
	return slices.ContainsFunc(b.Devices, func(d string) bool {
		if rest, literal := strings.CutSuffix(d, `\*`); literal {
			return dev == rest+"*"
		}
		prefix, wild := strings.CutSuffix(d, "*")
		return d == dev || wild && strings.HasPrefix(dev, prefix)
	})
}

// attached runs a chain of a slot for a branch, where the packet passes what it is attached to.
func (w *Walker) attached(h Hook, s *slot, c *Chain, b *branch, alive []branch) []branch {
	if c.calls != nil {
		return append(alive, c.calls(b)...)
	}
	a, part := s.part[c]
	if !part {
		return w.base(h, c, b, alive)
	}
	yes, no := w.fork(*b, attachedKey{a.devs, a.what}, Uncertain{Where: Ref{Hook: h, Chain: c}, What: a.what, Why: a.why})
	in, out := yes.pkt.In, yes.pkt.Out
	if a.one != "" {
		if h == Ingress {
			yes.pkt.In = a.one
		} else {
			yes.pkt.Out = a.one
		}
	}
	from := len(alive)
	alive = w.base(h, c, &yes, alive)
	for i := from; i < len(alive); i++ {
		alive[i].pkt.In, alive[i].pkt.Out = in, out
	}
	return append(alive, no)
}
