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

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// exchanger is a node whose packets are answered: the far ends of its wires are the clients and the endpoints, and so
// are sockets of the node.
type exchanger struct {
	*kernelNode

	listening []int // sockets of the node that listen, for TCP
}

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
	flagSYN = 2
	flagACK = 16
)

// inject sends a packet from the far end of a wire.
func (x *exchanger) inject(wire string, src, dst netip.AddrPort, proto, flags uint8, seq, ack uint32) error {
	return x.put(packet{proto: proto, src: src, dst: dst, in: wire, flags: flags, seq: seq, ack: ack})
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
type exchanges struct{ cases, answered, lost, followed, cut, unknown, quick, skipped int }

// check compares a connection with the walk. It returns what differs.
func (x *exchanger) check(p packet, f *exchanges) (string, error) {
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
	good, bad, quick := false, false, true
	in := ""
	if k.request != nil {
		in = k.request.wire
	}
	for i := range at {
		quick = x.walk.AnswerPasses(s, &at[i], in, "") && quick
		r := x.walk.Answer(s, &at[i], in, netfilter.Options{})
		g, b := onwardOf(&r, func(o *netfilter.Outcome) bool {
			return netfilter.Answered(s, o) && (p.in == "" || o.Packet.Out == p.in)
		})
		good, bad = good || g, bad || b
	}
	if k.answered {
		f.answered++
	} else {
		f.lost++
	}
	switch {
	case good && bad:
		f.unknown++
	case good != k.answered:
		return fmt.Sprintf("%v; the walk: answered %v", &k, good), nil
	}
	if quick {
		f.quick++
		if !k.answered {
			return fmt.Sprintf("%v; AnswerPasses", &k), nil
		}
	}
	if !k.further {
		return "", nil
	}
	good, bad, quick = false, false, true
	for i := range at {
		quick = x.walk.FollowPasses(s, &at[i]) && quick
		r := x.walk.Follow(s, &at[i], netfilter.Options{})
		g, b := onwardOf(&r, func(o *netfilter.Outcome) bool {
			return o.End == netfilter.Sent && o.Packet.Dst == k.request.dst.Addr() && o.Packet.Out == k.request.wire &&
				(o.Packet.Src == k.request.src.Addr() || !o.Packet.Src.IsValid())
		})
		good, bad = good || g, bad || b
	}
	if k.followed {
		f.followed++
	} else {
		f.cut++
	}
	switch {
	case good && bad:
		f.unknown++
	case good != k.followed:
		return fmt.Sprintf("%v; the walk: followed %v", &k, good), nil
	case quick && !k.followed:
		return fmt.Sprintf("%v; FollowPasses", &k), nil
	}
	return "", nil
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

// Terms of rules that treat answers and later packets otherwise than first packets.
var (
	onwardMatches = map[bool][]string{ // of nftables: true
		true: {
			"ct state established", "ct state established", "ct state new", "ct state invalid", "ct state untracked",
			"ct state != new", "ct direction reply", "ct direction reply", "ct direction original", "ct status seen-reply",
			"ct status assured", "ct status confirmed", "ct status dnat", "ct status snat", "ct mark 0x5",
			"tcp flags & (syn|ack) == syn|ack", "tcp flags & (syn|ack) == ack", "tcp flags & (syn|ack|psh) == ack",
			"{ip} saddr {dst}", "{ip} saddr {net}", "{ip} daddr {net}", "ct original {ip} daddr {net}",
			"ct original {ip} saddr {net}", "ct reply {ip} saddr {dst}", "ct reply {ip} daddr {own}",
			"meta l4proto {proto} ct original proto-dst {port}", "meta l4proto {proto} ct reply proto-src {port}",
			"{proto} sport {port}", "{proto} dport {sport}-65535", "{proto} sport {port} ct state established",
			"ct direction reply {ip} saddr {dst}", "ct state established ct direction original", "meta mark & 0x5 == 0x5",
		},
		false: {
			"-m conntrack --ctstate ESTABLISHED", "-m conntrack --ctstate ESTABLISHED", "-m conntrack ! --ctstate NEW",
			"-m state --state INVALID", "-m conntrack --ctdir REPLY", "-m conntrack --ctstate ESTABLISHED --ctdir REPLY",
			"-m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL", "-m conntrack --ctstatus SEEN_REPLY",
			"-m conntrack --ctstatus ASSURED", "-m conntrack ! --ctstatus SEEN_REPLY", "-m conntrack --ctstate DNAT",
			"-m conntrack --ctstate SNAT", "-p tcp -m tcp --tcp-flags SYN,ACK ACK,SYN", "-p tcp -m tcp --tcp-flags SYN,ACK ACK",
			"-p tcp -m tcp --tcp-flags SYN,ACK,PSH ACK", "-p tcp -m tcp ! --syn", "-m connmark --mark 0x5", "-s {dst}",
			"-s {net}", "-d {net}", "-m conntrack --ctorigdst {net}", "-m conntrack --ctreplsrc {dst}",
			"-m conntrack --ctrepldst {own}", "-m conntrack --ctorigsrc {net}", "-p {proto#1} -m {proto#1} --sport {port}",
			"-p {proto#1} -m {proto#1} --dport 32768:", "-m conntrack --ctproto {proto} --ctorigdstport {port}",
			"-m conntrack --ctproto {proto} --ctreplsrcport {port}", "-m mark --mark 0x5/0x5",
		},
	}
	onwardTargets = map[bool][]term{
		true: {
			{text: "drop", weight: 5},
			{text: "accept"},
			{text: "meta mark set ct mark"},
			{text: "meta mark set 0x5"},
			{text: "ct mark set 0x5", weight: 2},
			{text: "notrack", hooks: "po", weight: 2},
			{text: "ct zone set 5", hooks: "po", weight: 2},
			{text: "ct original zone set 5", hooks: "po"},
			{text: "ct reply zone set 5", hooks: "po"},
			{text: "ct zone set meta mark", hooks: "po"},
		},
		false: {
			{text: "-j DROP", weight: 5},
			{text: "-j ACCEPT"},
			{text: "-j CONNMARK --restore-mark", tables: "|mangle|filter|"},
			{text: "-j CONNMARK --set-mark 0x5", tables: "|mangle|filter|", weight: 2},
			{text: "-j MARK --set-mark 0x5"},
			{text: "-p tcp -j REJECT --reject-with tcp-reset", tables: "|filter|", hooks: "ifo"},
			{text: "-j CT --notrack", tables: "|raw|", weight: 2},
			{text: "-j CT --zone 5", tables: "|raw|", weight: 2},
			{text: "-j CT --zone-orig 5", tables: "|raw|", weight: 2},
			{text: "-j CT --zone-reply 5", tables: "|raw|", weight: 2},
			{text: "-j CT --zone mark", tables: "|raw|"},
		},
	}
)

// onward adds rules of these terms to a rule set.
func (g *generator) onward(rs *ruleSet) {
	native := g.IntN(2) == 0
	for range 1 + g.IntN(4) {
		hook := "pifot"[g.IntN(5)]
		priority := pick(g.Rand, priorities)
		name := pick(g.Rand, []string{"raw", "mangle", "filter", "filter"})
		if !strings.ContainsRune(builtinHooks[name], rune(hook)) {
			continue
		}
		v4 := g.IntN(2) == 0
		ch := &chain{hooks: string(hook), depth: 0}
		family := map[bool]string{true: "ip", false: "ip6"}[v4]
		target := g.choose(onwardTargets[native], func(x *term) bool {
			return x.fits(ch, name, family) && (!native || x.hooks != "po" || priority < -200)
		})
		c := &chooser{Rand: g.Rand, v4: v4}
		match := c.fill(pick(g.Rand, onwardMatches[native]))
		if strings.HasPrefix(target.text, "-p") && strings.HasPrefix(match, "-p") {
			match = ""
		}
		rule := strings.Fields(match + " " + c.fill(target.text))
		if native {
			ch.name = fmt.Sprintf("onward%d", len(rs.tables))
			ch.base = fmt.Sprintf("type filter hook %s priority %d; policy accept;", hookNames[hook], priority)
			ch.rules = []string{strings.Join(rule, " ")}
			rs.tables = append(rs.tables, &table{
				backend: netfilter.BackendNative, family: "inet", name: fmt.Sprintf("o%d", len(rs.tables)), chains: []*chain{ch},
			})
			continue
		}
		line := protocolFirst([]string{strings.Join(rule, " ")})
		at := slices.IndexFunc(rs.tables, func(t *table) bool {
			return t.name == name && t.family == family && t.backend != netfilter.BackendNative
		})
		if at < 0 {
			at = len(rs.tables)
			t := &table{backend: netfilter.BackendNFT, family: family, name: name}
			for _, h := range []byte(builtinHooks[name]) {
				t.chains = append(t.chains, &chain{name: hookChains[h], policy: "ACCEPT", hooks: string(h)})
			}
			rs.tables = append(rs.tables, t)
		}
		for _, ch := range rs.tables[at].chains {
			if ch.name == hookChains[hook] {
				ch.rules = append([]string{line}, ch.rules...)
			}
		}
	}
}

// defaultAnswers is how many connections are compared, unless the environment says otherwise.
const answersVariable, defaultAnswers = "SVCPROXY_ANSWER_CASES", 1_500

func TestRandomConnectionsAgainstTheKernel(t *testing.T) {
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
			rs = x.smallest(rs, p)
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
		"compared", f.cases, seed-1, f.answered, f.lost, f.followed, f.cut, f.unknown, f.quick, f.skipped)
	if f.cases >= enough && (f.unknown*5 > f.cases || f.answered*5 < f.cases || f.lost*20 < f.cases) {
		t.Error("too little is known of the answers, or too few come, or are lost")
	}
}

// smallest takes rules out of a rule set as long as the connection still differs.
func (x *exchanger) smallest(rs *ruleSet, p packet) *ruleSet {
	for again := true; again; {
		again = false
		for less := range rs.smaller {
			if x.load(less) != nil {
				continue
			}
			if what, err := x.check(p, &exchanges{}); err == nil && what != "" {
				rs, again = less, true
				break
			}
		}
	}
	_ = x.load(rs)
	return rs
}
