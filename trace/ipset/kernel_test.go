// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ipset

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// TestKernel loads random sets into the kernel of this machine, saves them, sends packets past a rule for each, and
// compares whether the rule matched with what Match makes of the saved text. It runs in a network namespace of its own.
func TestKernel(t *testing.T) {
	testutil.NeedRoot(t, "ip", "ipset", "iptables", "iptables-save")
	if out, err := testutil.Unshared(t, "sh", "-ec",
		"ipset create x hash:ip; iptables -A OUTPUT -m set --match-set x dst").CombinedOutput(); err != nil {
		t.Skipf("the kernel or the rights do not suffice for ipset: %v: %s", err, out)
	}
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			if testutil.Isolate(t, unix.CLONE_NEWNET) {
				againstKernel(t, seed)
			}
		})
	}
}

var (
	someIPs  = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1", "10.1.0.1", "10.1.0.2"}
	someNets = []string{
		"10.0.0.1", "10.0.0.2", "10.0.0.0/31", "10.0.0.2/31", "10.0.0.0/30", "10.0.0.0/24",
		"10.0.0.0/16", "10.1.0.0/16", "10.0.0.0/8",
	}
	somePorts  = []string{"tcp:1", "tcp:2-3", "udp:1", "udp:2", "sctp:1", "sctp:3", "gre:0", "icmp:echo-request", "1-2"}
	someProtos = []uint8{netfilter.TCP, netfilter.UDP, netfilter.SCTP, 47, netfilter.ICMP, netfilter.TCP, netfilter.UDP}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// randomSets writes sets of every type that the kernel may have.
func randomSets(r *rand.Rand, has func(typ string) bool) (text string, names []string) {
	b := strings.Builder{}
	var lists []string
	for i, create := range []string{
		"hash:ip", "hash:ip netmask 24", "hash:ip bitmask 255.0.255.0", "hash:net", "hash:ip,port", "hash:ip,port,ip",
		"hash:ip,port,net",
		"hash:net,port", "hash:net,port,net", "hash:net,net", "hash:net,iface", "bitmap:ip range 10.0.0.0/24",
		"bitmap:ip range 10.0.0.0/16 netmask 30",
		"bitmap:port range 0-10", "hash:net", "hash:ip,port,net", "hash:net,iface",
	} {
		if !has(create) {
			continue
		}
		typ, _, _ := strings.Cut(create, " ")
		name := fmt.Sprintf("s%d", i)
		names = append(names, name)
		fmt.Fprintf(&b, "create %s %s\n", name, create)
		for range r.IntN(7) {
			var parts []string
			withNet := false
			for _, d := range types[typ] {
				switch d {
				case dimIP:
					parts = append(parts, pick(r, someIPs))
					if typ == "bitmap:ip" {
						parts = []string{"10.0.0." + fmt.Sprint(r.IntN(6))}
					}
				case dimNet:
					withNet = true
					parts = append(parts, pick(r, someNets))
				case dimPort:
					parts = append(parts, pick(r, somePorts))
					if typ == "bitmap:port" {
						parts = []string{fmt.Sprint(r.IntN(4))}
					}
				case dimIface:
					parts = append(parts, pick(r, []string{"br0", "br1", "physdev:br0", "br"}))
				case dimMark, dimMAC, dimSet:
				}
			}
			e := strings.Join(parts, ",")
			if strings.HasSuffix(e, ",br") {
				e += " wildcard"
			}
			if withNet && r.IntN(3) == 0 {
				e += " nomatch"
			}
			fmt.Fprintf(&b, "add %s %s -exist\n", name, e)
		}
		lists = append(lists, name)
	}
	fmt.Fprintf(&b, "create list list:set\nadd list %s -exist\nadd list %s -exist\n", pick(r, lists), pick(r, lists))
	return b.String(), append(names, "list")
}

// send sends one packet with a raw socket, through OUTPUT.
func send(t *testing.T, p *netfilter.Packet) {
	t.Helper()
	conn, err := net.ListenPacket(fmt.Sprintf("ip4:%d", p.Proto), p.Src.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := make([]byte, 20)
	switch p.Proto {
	case netfilter.ICMP:
		body[0] = 8 // echo request
	default:
		binary.BigEndian.PutUint16(body, p.SrcPort)
		binary.BigEndian.PutUint16(body[2:], p.DstPort)
		body[12] = 5 << 4
	}
	if _, err := conn.WriteTo(body, &net.IPAddr{IP: p.Dst.AsSlice()}); err != nil {
		t.Fatal(err)
	}
}

func againstKernel(t *testing.T, seed uint64) {
	t.Helper()
	// What the kernel sends by itself counts, too: IGMP reports within a second (a bridge that snoops joins a group of its
	// own), and ICMP errors when a neighbour does not answer.
	testutil.Run(t, "", "sh", "-ec", "ip link set lo up; ip link add br0 type bridge mcast_snooping 0; ip link set br0 "+
		"arp off multicast off; ip link set br0 up; ip addr add 10.0.0.1/8 dev br0; ip addr add 10.1.0.1/8 dev br0")
	has := func(typ string) bool {
		ok := exec.Command("sh", "-c", "ipset create probe "+typ).Run() == nil
		if ok {
			testutil.Run(t, "", "ipset", "destroy", "probe")
		}
		return ok
	}
	compared, unknown, matched := 0, 0, 0
	r := rand.New(rand.NewPCG(seed, 7))
	text, names := randomSets(r, has)
	testutil.Run(t, text, "ipset", "restore")
	saved := testutil.Run(t, "", "ipset", "save")
	sets, err := Parse([]byte(saved))
	if err != nil {
		t.Fatalf("%v in\n%s", err, saved)
	}
	rules := strings.Builder{}
	rules.WriteString("*filter\n")
	var flags [][]string
	for _, name := range names {
		var f []string
		for range 1 + r.IntN(3) {
			f = append(f, pick(r, []string{"src", "dst", "dst"}))
		}
		// Most of the time the flags of the set's own dimensions, so that something matches.
		if x := sets.byName[name]; r.IntN(5) > 0 {
			for len(f) < len(x.dims) {
				f = append(f, "dst")
			}
		}
		flags = append(flags, f)
		fmt.Fprintf(&rules, "-A OUTPUT -m set --match-set %s %s\n", name, strings.Join(f, ","))
	}
	rules.WriteString("COMMIT\n")
	testutil.Run(t, rules.String(), "iptables-restore")
	before := counts(t)
	for range 60 {
		p := &netfilter.Packet{
			Family: netfilter.IPv4, Proto: someProtos[r.IntN(len(someProtos))], Out: "br0",
			Src: netip.MustParseAddr(pick(r, []string{"10.0.0.1", "10.1.0.1"})),
			Dst: netip.MustParseAddr(pick(r, []string{"10.0.0.2", "10.0.0.3", "10.0.1.1", "10.1.0.2", "10.7.7.7", "10.0.0.4"})),
		}
		if p.Proto != netfilter.ICMP && p.Proto != 47 {
			p.SrcPort, p.DstPort = uint16(1+r.IntN(4)), uint16(1+r.IntN(4))
		}
		send(t, p)
		after := counts(t)
		for i, name := range names {
			in, known, _ := sets.Match(&netfilter.Context{Packet: p, Hook: netfilter.Output}, name, flags[i])
			really := after[i] != before[i]
			compared++
			switch {
			case !known:
				unknown++
			case in != really:
				t.Errorf("seed %d: Match(%+v, %s, %v) = %v, the kernel says %v\n%s", seed, *p, name, flags[i], in, really, saved)
			case in:
				matched++
			}
		}
		before = after
		if t.Failed() {
			return
		}
	}
	t.Logf("compared %d answers with the kernel's: %d matches, %d not known", compared, matched, unknown)
	if matched == 0 || unknown > compared/4 {
		t.Error("too little was compared")
	}
}

// counts returns the packet counters of the rules of OUTPUT.
func counts(t *testing.T) (out []string) {
	t.Helper()
	for line := range strings.Lines(testutil.Run(t, "", "iptables-save", "-c", "-t", "filter")) {
		if i := strings.Index(line, "] -A OUTPUT"); i > 0 {
			out = append(out, line[:i])
		}
	}
	return slices.Clip(out)
}
