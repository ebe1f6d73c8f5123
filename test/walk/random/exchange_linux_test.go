// SPDX-License-Identifier: Apache-2.0

package random

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// exchanger is a node whose packets are answered: the far ends of its wires are the clients and the endpoints, and so
// are sockets of the node.
type exchanger struct {
	*kernelNode

	listening []int         // sockets of the node that listen, for TCP
	filled    bool          // rules fill sets
	patience  time.Duration // how long is waited for each packet
}

// late is how long is waited for each packet where a connection differed: about one in 100,000 on loopback comes later
// than the system call that sends it ends, without any rule. What delays it was not found.
const late = 50 * time.Millisecond

// neighbours are the hosts beyond the wires, and the gateway.
var neighbours = map[string][]string{
	"eth0": {"10.77.0.1", "10.77.0.21", "fd00:77::1", "fd00:77::21"},
	"pod0": {
		"10.244.1.14", "10.244.1.15", "10.244.1.16", "10.244.1.17", "fd00:244:1::14", "fd00:244:1::15", "fd00:244:1::16",
		"fd00:244:1::17",
	},
}

func newExchanger(t *testing.T) *exchanger {
	t.Helper()
	w, err := newKernelNode(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	w.watchers = ""
	x := &exchanger{kernelNode: w}
	for dev, addrs := range neighbours {
		for _, a := range addrs {
			testutil.Run(t, "", "ip", "neigh", "replace", a, "lladdr", "02:00:00:00:00:77", "dev", dev, "nud", "permanent")
		}
		at, err := unix.Getsockname(w.wires[dev].fd)
		if err != nil {
			t.Fatal(err)
		}
		link := at.(*unix.SockaddrLinklayer)
		all := &unix.SockaddrLinklayer{Ifindex: link.Ifindex, Protocol: unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8}
		if err := unix.Bind(w.wires[dev].fd, all); err != nil {
			t.Fatal(err)
		}
	}
	for _, port := range destinations {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(fd, &unix.SockaddrInet6{Port: port}), unix.Listen(fd, 4096))
		if err != nil {
			t.Fatal(err)
		}
		x.listening = append(x.listening, fd)
	}
	// Nobody is to send anything but what a case makes it send.
	for name, value := range map[string]string{
		"tcp_synack_retries": "0", "tcp_syncookies": "0", "tcp_max_syn_backlog": "65536", "tcp_abort_on_overflow": "0",
		"tcp_timestamps": "0",
	} {
		_ = os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o600)
	}
	return x
}

// seen returns what has left the node since the last time.
func (x *exchanger) seen() (out []segment) {
	time.Sleep(x.patience)
	buf := make([]byte, 2048)
	for name, wire := range x.wires {
		for {
			n, from, err := unix.Recvfrom(wire.fd, buf, unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if s, ok := parseSegment(buf[:n]); ok {
				s.wire = name
				out = append(out, s)
			}
		}
	}
	return out
}

const (
	flagFIN = 1
	flagSYN = 2
	flagPSH = 8
	flagACK = 16
)

// inject sends a packet from the far end of a wire.
func (x *exchanger) inject(
	wire string, src, dst netip.AddrPort, proto, flags uint8, seq, ack uint32, data int,
) error {
	return x.put(packet{proto: proto, src: src, dst: dst, in: wire, flags: flags, seq: seq, ack: ack, data: data})
}

// onwardOf says what the walk says of a packet behind the first: whether it may be right, and whether it may not be.
func onwardOf(r *netfilter.Result, right func(o *netfilter.Outcome) bool) (good, bad bool) {
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		switch {
		case o.End == netfilter.Lost || o.End == netfilter.Taken:
			good, bad = true, true
		case right(o):
			good = true
		default:
			bad = true
		}
	}
	return good, bad
}

// exchanges are the figures of a run.
type exchanges struct{ cases, answered, lost, followed, cut, unknown, quick, skipped, late int }

// check compares a connection with the walk. It returns what differs.
func (x *exchanger) check(p packet, f *exchanges) (string, error) {
	if err := x.forget(); err != nil {
		return "", err
	}
	k, err := x.talk(p)
	if err != nil {
		return "", err
	}
	s := p.start()
	res := x.walk.Walk(s, netfilter.Options{})
	outcomes := slices.Clone(res.Outcomes)
	var at []netfilter.Outcome
	for _, o := range outcomes {
		switch {
		case o.End == netfilter.Lost || o.End == netfilter.Taken:
			f.skipped++
			return "", nil
		case k.request == nil && o.End == netfilter.Delivered && len(outcomes) == 1 && p.proto == netfilter.TCP:
			at = append(at, o)
		case k.request != nil && o.End == netfilter.Sent && o.Packet.Out == k.request.wire &&
			o.Packet.Dst == k.request.dst.Addr() && o.Packet.DstPort == k.request.dst.Port() &&
			(o.Packet.Src == k.request.src.Addr() || !o.Packet.Src.IsValid()):
			at = append(at, o)
		}
	}
	if len(at) == 0 || at[0].End == netfilter.Delivered && !slices.Contains(destinations, int(at[0].Packet.DstPort)) {
		f.skipped++
		return "", nil
	}
	f.cases++
	w := &walked{exchanger: x, s: s, talk: &k, at: at, answers: true, rest: true}
	for i := range at {
		in := ""
		if k.request != nil {
			in = k.request.wire
		}
		passed := x.walk.Passes(s, &at[i], in, "")
		w.answers, w.rest = w.answers && passed.Answer, w.rest && passed.Rest
		w.left = append(w.left, []netfilter.Left{x.walk.Left(&at[i])})
	}
	for i, one := range k.packets {
		good, bad, followed := w.step(one.turn, one.ending)
		switch {
		case i == 0 && one.came:
			f.answered++
		case i == 0:
			f.lost++
		case one.came:
			f.followed++
		default:
			f.cut++
		}
		switch {
		case good && bad:
			f.unknown++
			if !followed { // what it leaves is not known, either
				return "", nil
			}
		case good != one.came:
			return fmt.Sprintf("%v; the walk: %v came %v", &k, one.turn, good), nil
		}
		// Passes is about clients of ports that are not privileged.
		if s.Packet.SrcPort >= firstClientPort && (i == 0 && w.answers || i > 0 && w.rest) {
			f.quick++
			if !one.came {
				return fmt.Sprintf("%v; Passes says that packet %d passes", &k, i), nil
			}
		}
		if one.echoed {
			w.mayFollow()
		}
	}
	return "", nil
}

// walked are the walks of a connection's packets, one behind the other.
type walked struct {
	*exchanger

	s             netfilter.Start
	talk          *talk
	at            []netfilter.Outcome
	left          [][]netfilter.Left // of each of at, what the packets so far may have left
	answers, rest bool               // what Passes says of all of at
}

// step walks the next packet. It says whether it may come, whether it may not, and whether all walks come to an end.
func (w *walked) step(turn netfilter.Turn, ending netfilter.Ending) (good, bad, followed bool) {
	followed = true
	for i := range w.at {
		var next []netfilter.Left
		for _, left := range w.left[i] {
			g, b, after := w.one(&w.at[i], left, turn, ending)
			good, bad, followed = good || g, bad || b, followed && !(g && len(after) == 0)
			next = together(next, after)
		}
		w.left[i] = next
	}
	return good, bad, followed
}

// mayFollow says that the client may have sent a packet that nobody waited for.
func (w *walked) mayFollow() {
	for i := range w.at {
		for _, left := range slices.Clone(w.left[i]) {
			_, _, after := w.one(&w.at[i], left, netfilter.Later, netfilter.GoesOn)
			w.left[i] = together(w.left[i], after)
		}
	}
}

func together(a, b []netfilter.Left) []netfilter.Left {
	for _, l := range b {
		if !slices.Contains(a, l) {
			a = append(a, l)
		}
	}
	return a
}

// one walks a packet, and returns what it may have left where it comes.
func (w *walked) one(
	o *netfilter.Outcome, left netfilter.Left, turn netfilter.Turn, ending netfilter.Ending,
) (good, bad bool, after []netfilter.Left) {
	opt := netfilter.Options{Left: &left, Further: turn == netfilter.Further, Ending: ending}
	var r netfilter.Result
	right := func(a *netfilter.Outcome) bool {
		return netfilter.Answered(w.s, a) && (w.s.Packet.In == "" || a.Packet.Out == w.s.Packet.In)
	}
	if turn == netfilter.Later {
		r = w.walk.Follow(w.s, o, opt)
		right = func(a *netfilter.Outcome) bool {
			to := w.talk.request
			return a.End == netfilter.Sent && a.Packet.Dst == to.dst.Addr() && a.Packet.Out == to.wire &&
				(a.Packet.Src == to.src.Addr() || !a.Packet.Src.IsValid())
		}
	} else {
		in := ""
		if w.talk.request != nil {
			in = w.talk.request.wire
		}
		r = w.walk.Answer(w.s, o, in, opt)
	}
	good, bad = onwardOf(&r, right)
	for i := range r.Outcomes {
		if e := r.Outcomes[i].End; e == netfilter.Lost || e == netfilter.Taken {
			return good, bad, nil
		}
	}
	for i := range r.Outcomes {
		if a := &r.Outcomes[i]; a.End == netfilter.Sent || a.End == netfilter.Delivered {
			after = together(after, []netfilter.Left{w.walk.Left(a)})
		}
	}
	return good, bad, after
}

// serviceRules are Services as kube-proxy makes them, so that many packets are translated.
const serviceRules = `
table inet services {
	chain pre { type nat hook prerouting priority -99; jump every; }
	chain out { type nat hook output priority -99; jump every; }
	chain every {
		ip daddr 10.96.0.10 meta mark set meta mark | 0x4000
		ip6 daddr fd00:96::10 meta mark set meta mark | 0x4000
		ip daddr { 10.96.0.10, 10.96.0.11 } tcp dport { 80, 8080 } dnat ip to 10.244.1.15:8080
		ip daddr { 10.96.0.10, 10.96.0.11 } meta l4proto { tcp, udp } th dport { 53, 443 } dnat ip to 10.244.2.9:53
		ip daddr { 10.96.0.10, 10.96.0.11 } tcp dport 30080 dnat ip to 10.77.0.11:443
		ip6 daddr { fd00:96::10, fd00:96::11 } tcp dport { 80, 8080 } dnat ip6 to [fd00:244:1::15]:8080
		ip6 daddr { fd00:96::10, fd00:96::11 } meta l4proto { tcp, udp } th dport { 53, 443 } dnat ip6 to [fd00:244:2::9]:53
		ip6 daddr { fd00:96::10, fd00:96::11 } tcp dport 30080 dnat ip6 to [fd00:77::11]:443
	}
	chain post { type nat hook postrouting priority 99; meta mark & 0x4000 == 0x4000 masquerade; }
}

`

// firstClientPort is the first port that is not privileged.
const firstClientPort = 1024

// defaultAnswers is how many connections are compared, unless the environment says otherwise.
const answersVariable, defaultAnswers = "SVCPROXY_ANSWER_CASES", 1_500

func TestRandomConnectionsAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, tools...) {
		return
	}
	x := newExchanger(t)
	words := vocabularyOf(t, x.kernelNode)
	seed, cases := uint64(testutil.Count(t, seedVariable, defaultSeed)), testutil.Count(t, answersVariable, defaultAnswers)
	var f exchanges
	differences, untaken := 0, 0
	for ; f.cases < cases; seed++ {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), vocabulary: words}
		rs := g.ruleSet()
		for _, t := range rs.tables { // most packets are to come through
			if g.IntN(3) > 0 && t.name == "nat" {
				for _, c := range t.chains {
					c.rules = nil
				}
			}
		}
		if x.watchers = ""; g.IntN(4) > 0 {
			x.watchers = serviceRules
		}
		if g.IntN(3) > 0 { // with little else, so that packets get as far as these
			if g.IntN(3) > 0 {
				rs = &ruleSet{}
			}
			g.onward(rs)
		}
		x.filled = rs.fills()
		if err := x.load(rs); err != nil {
			untaken++
			if untaken > 100 {
				t.Fatal(err)
			}
			continue
		}
		for range packetsEach {
			p := g.packet()
			what, err := x.check(p, &f)
			if err != nil {
				t.Fatalf("%v: %v\n%s", p, err, rs)
			}
			if what == "" {
				continue
			}
			x.patience = late
			if what, err = x.check(p, &f); err != nil {
				t.Fatalf("%v: %v\n%s", p, err, rs)
			}
			if what != "" {
				rs = x.smallest(rs, p)
			}
			x.patience = 0
			if what == "" {
				f.late++
				continue
			}
			t.Errorf("%s=%d: %v: %s\n%s%s", seedVariable, seed, p, what, rs, strings.Repeat("(with Services)\n",
				min(len(x.watchers), 1)))
			differences++
			if differences == maxDifference {
				t.FailNow()
			}
			break
		}
	}
	t.Logf("%d connections, seeds up to %d: %d answered, %d not; %d followed, %d cut; %d unknown, %d by class, %d not "+
		"compared, %d late", f.cases, seed-1, f.answered, f.lost, f.followed, f.cut, f.unknown, f.quick, f.skipped, f.late)
	if f.cases >= enough && (f.unknown*5 > f.cases || f.answered*5 < f.cases || f.lost*20 < f.cases) {
		t.Error("too little is known of the answers, or too few come, or are lost")
	}
}

// smallest takes rules out of a rule set as long as the connection still differs.
func (x *exchanger) smallest(rs *ruleSet, p packet) *ruleSet {
	for again := true; again; {
		again = false
		for less := range rs.smaller {
			if x.filled = less.fills(); x.load(less) != nil {
				continue
			}
			p.src = netip.AddrPortFrom(p.src.Addr(), p.src.Port()+1) // sockets remember connections that were lost
			if what, err := x.check(p, &exchanges{}); err == nil && what != "" {
				rs, again = less, true
				break
			}
		}
	}
	x.filled = rs.fills()
	_ = x.load(rs)
	return rs
}
