// SPDX-License-Identifier: Apache-2.0

package links

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// The number of cases, and the seed of the first rule set, unless the environment says otherwise.
const (
	casesVariable, defaultCases = "SVCPROXY_LINKS_CASES", 1000
	seedVariable, defaultSeed   = "SVCPROXY_LINKS_SEED", 1

	packetsEach   = 40
	maxDifference = 5
)

// far are the other ends of the node's interfaces: eth0, and the ports of cni0, with the pods behind them.
var far = map[string][]netip.Addr{
	"eth0": {netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd00:77::1")},
	"v1":   {netip.MustParseAddr("10.244.1.15"), netip.MustParseAddr("fd00:244:1::15")},
	"v2":   {netip.MustParseAddr("10.244.1.16"), netip.MustParseAddr("fd00:244:1::16")},
}

var devices = []string{"eth0", "cni0", "v1", "v2", "lo"}

// packet is a datagram, and where it starts: in is the port or interface that it comes in by, "" for the node's own.
type packet struct {
	src, dst netip.AddrPort
	in       string
}

func (p packet) String() string { return fmt.Sprintf("%s > %s in %q", p.src, p.dst, p.in) }

// answer is where the packet came to, "" for nowhere: the far end, or "delivered".
type answer struct {
	at       string
	src, dst netip.AddrPort // of one delivered by IPv6, only the ports
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start is where the walk begins.
func (p packet) start() netfilter.Start {
	s := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
		Family: netfilter.FamilyOf(p.dst.Addr()), Proto: netfilter.UDP, Src: p.src.Addr(), Dst: p.dst.Addr(),
		SrcPort: p.src.Port(), DstPort: p.dst.Port(), In: "cni0",
	}}
	switch p.in {
	case "":
		s.Hook, s.Packet.In = netfilter.Output, ""
	case "eth0":
		s.Packet.In = p.in
	}
	return s
}

// bytes returns the datagram from its IP header on.
func (p packet) bytes() []byte {
	l4 := make([]byte, 12)
	binary.BigEndian.PutUint16(l4, p.src.Port())
	binary.BigEndian.PutUint16(l4[2:], p.dst.Port())
	binary.BigEndian.PutUint16(l4[4:], 12)
	src, dst := p.src.Addr().AsSlice(), p.dst.Addr().AsSlice()
	sum := checksum(append(append(append([]byte{0, 17, 0, 12}, src...), dst...), l4...))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(l4[6:], sum)
	if !p.dst.Addr().Is4() {
		h := []byte{0x60, 0, 0, 0, 0, 12, 17, 64}
		return append(append(append(h, src...), dst...), l4...)
	}
	h := []byte{0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0}
	h = append(append(h, src...), dst...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, l4...)
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// flushType is that of frames which say that those before them are through: no rule but the first of its chain meets
// them.
const flushType = 0x88b5

func (a *answer) note(at string, src, dst netip.Addr, l4 []byte) {
	if binary.BigEndian.Uint16(l4[4:]) != 12 {
		return
	}
	a.at = at
	a.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(l4))
	a.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(l4[2:]))
}

// fits tells whether the kernel's answer is what the walk says of an outcome.
// Where it is not known which addresses are the node's own, the walk does not tell the two arrivals apart.
func fits(o *netfilter.Outcome, a *answer, addresses bool) bool {
	switch o.End {
	case netfilter.Lost, netfilter.Taken:
		return true
	case netfilter.Dropped, netfilter.Rejected, netfilter.NoRoute, netfilter.Filtered:
		return a.at == ""
	case netfilter.Delivered, netfilter.Sent:
	}
	if a.at == "" || addresses && (a.at == "delivered") != (o.End == netfilter.Delivered) {
		return false
	}
	if addresses && a.at != "delivered" && o.Packet.Out != netfilter.UnknownIface &&
		(o.Packet.Out == "eth0") != (a.at == "eth0") {
		return false
	}
	return o.Packet.DstPort == a.dst.Port() &&
		(a.dst.Addr().IsUnspecified() || o.Packet.Dst == a.dst.Addr())
}

// TestHooksOfDevicesAndBridgesAgainstTheKernel sends packets through random rule sets.
func TestHooksOfDevicesAndBridgesAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "nft", "bridge") {
		return
	}
	n := newNode(t)
	if err := n.load("table netdev t { chain c { type filter hook ingress device eth0 priority 0;\n}\n}\n" +
		"table bridge t { chain c { type filter hook prerouting priority 0;\n}\n}\n"); err != nil {
		t.Skipf("the kernel has no such tables: %v", err)
	}
	seed, cases := uint64(testutil.Count(t, seedVariable, defaultSeed)), testutil.Count(t, casesVariable, defaultCases)
	done, sets, untaken, unknown, differences := 0, 0, 0, 0, 0
	ends := map[string]int{}
	for ; done < cases && differences < maxDifference; seed++ {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
		calls := g.IntN(2) == 0
		if !n.calls(calls) {
			calls = false
		}
		rules := g.rules()
		if err := n.load(rules); err != nil {
			untaken++
			if untaken < 5 {
				t.Logf("not taken: %v\n%s", err, rules)
			}
			continue
		}
		sets++
		for range packetsEach {
			p := g.packet()
			a := n.send(p)
			done++
			ends[a.at]++
			what, certain := n.compare(p, &a)
			if !certain {
				unknown++
			}
			if what != "" {
				differences++
				t.Errorf("%s=%d: %v, br_netfilter %v: %s\nkernel: %+v\n%s", seedVariable, seed, p, calls, what, a, rules)
				break
			}
		}
	}
	t.Logf(
		"%d cases, %d rule sets (%d not taken), %d unknown with all known, ends %v, seeds up to %d",
		done,
		sets,
		untaken,
		unknown,
		ends,
		seed-1,
	)
	if untaken*10 > sets || unknown*4 > done {
		t.Error("too little is known of the packets' paths, or too few rule sets are taken")
	}
}

// TestRuleSetsThatDiffered has those of which the walk once said something else than the kernel.
func TestRuleSetsThatDiffered(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "nft", "bridge") {
		return
	}
	n := newNode(t)
	for _, c := range []struct {
		name, rules string
		packet      packet
	}{
		{
			"the type of a frame at a port, where it is not known what is a port",
			"table netdev t {\nchain c {\ntype filter hook ingress device v1 priority 1;\n" +
				"meta pkttype host accept\nmeta l4proto udp drop\n}\n}\n",
			packet{
				src: netip.MustParseAddrPort("10.244.1.15:33006"), dst: netip.MustParseAddrPort("192.0.2.7:53"), in: "v1",
			},
		},
	} {
		n.calls(true)
		if err := n.load(c.rules); err != nil {
			t.Skipf("%s: the kernel has no such tables: %v", c.name, err)
		}
		a := n.send(c.packet)
		if what, _ := n.compare(c.packet, &a); what != "" {
			t.Errorf("%s: %s\nkernel: %+v", c.name, what, a)
		}
	}
}

// compare says what differs; certain: with all known, the walk knows the packet's end.
func (n *node) compare(p packet, a *answer) (what string, certain bool) {
	for name, w := range n.walks {
		r := w.Walk(p.start(), netfilter.Options{Steps: true})
		fit := false
		for i := range r.Outcomes {
			fit = fit || fits(&r.Outcomes[i], a, name != "nothing is known")
			if name == "all known" && r.Outcomes[i].Certain {
				certain = true
			}
		}
		if fit {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s:\n", name)
		for i := range r.Outcomes {
			o := &r.Outcomes[i]
			fmt.Fprintf(&b, "  walk: %v %v certain %v, %s %s %+v\n", o.P, o.End, o.Certain, o.Where, o.Why, o.Packet)
		}
		for i := range r.Steps {
			s := &r.Steps[i]
			text := ""
			if s.Ref.Rule != nil {
				text = s.Ref.Rule.Text
			}
			fmt.Fprintf(&b, "    %v %s: %s -> %s\n", s.Ref.Hook, s.Ref, text, s)
		}
		for _, u := range r.Uncertain {
			fmt.Fprintf(&b, "  not known: %s: %s\n", u.What, u.Why)
		}
		return b.String(), certain
	}
	return "", certain
}
