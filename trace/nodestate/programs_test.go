// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// met names the chains of tables whose rules may concern a packet.
func met(tables []*netfilter.Table, p netfilter.Packet) string {
	var out []string
	for _, t := range tables {
		for _, r := range t.Chains[0].Rules {
			if r.Ops[0].Run(&netfilter.Context{Packet: &p}).Kind == netfilter.Opaque {
				c := t.Chains[0]
				out = append(out, fmt.Sprintf("%s %s at %s %v", t.Name, c.Name, c.Base.Hook, c.Base.Devices))
			}
		}
	}
	return strings.Join(out, "; ")
}

func TestPrograms(t *testing.T) {
	const text = `tc cni0 ingress filter protocol all pref 49152 bpf chain 0
tc cni0 ingress filter protocol all pref 49152 bpf chain 0 handle 0x1 a.o:[tc] direct-action id 5
tc eth0 egress filter protocol ipv6 pref 1 u32 chain 0
tc eth0 egress   match 00000000/00000000 at 0
tc eth1 ingress filter protocol arp pref 1 u32 chain 0
tc veth1 egress qdisc netem limit 1000 loss 100.0% delay 0us
tc veth2 egress qdisc tbf rate 12500000bps burst 32000b limit 250000b
tc veth3 egress qdisc tbf 8002: root refcnt 2 rate 8bit burst 10b lat 0us
tc veth4 egress qdisc fq_codel 0: root refcnt 2 limit 10240p
tc veth5 egress qdisc tbf rate 12500000bps burst 32Kb limit 10b
tc veth6 egress filter parent 1: protocol ip pref 3 u32 handle 0x80000800
tcx eth0 ingress program 12
cgroup connect4 program 13
netfilter ip prerouting -128 program 14

# a comment
`
	tables, err := parsePrograms([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	const queues = "qdisc veth1 egress at EGRESS [veth1]; qdisc veth3 egress at EGRESS [veth3]; " +
		"qdisc veth5 egress at EGRESS [veth5]"
	four := netfilter.Packet{Family: netfilter.IPv4}
	if got, want := met(tables, four), "tc cni0 ingress at INGRESS [cni0]; "+queues+
		"; tc veth6 egress parent 1: at EGRESS [veth6]; tcx eth0 ingress at INGRESS [eth0]; cgroup connect4 at OUTPUT []; "+
		"bpf ip prerouting at PREROUTING []"; got != want {
		t.Errorf("IPv4:\n got %s\nwant %s", got, want)
	}
	if got, want := met(tables, netfilter.Packet{Family: netfilter.IPv6}), "tc cni0 ingress at INGRESS [cni0]; "+
		"tc eth0 egress at EGRESS [eth0]; "+queues+"; tcx eth0 ingress at INGRESS [eth0]"; got != want {
		t.Errorf("IPv6:\n got %s\nwant %s", got, want)
	}
	for _, bad := range []string{
		"filter protocol all pref 1 bpf\n", "tc eth0 sideways filter\n", "cgroup nowhere program 1\n",
		"netfilter ip prerouting x program 1\n",
		"# filters of tc were not read: operation not permitted\n",
	} {
		if _, err := parsePrograms([]byte(bad)); err == nil {
			t.Errorf("%q is read without an error", bad)
		}
	}
}

// TestProgramsThatWereNotRead: the lines by which the helper says that it could not read something were comments, and
// what they are about was taken for absent.
func TestProgramsThatWereNotRead(t *testing.T) {
	const said = "programs of netfilter were not read: operation not permitted"
	for text, state := range map[string]ReadState{
		"# " + said + "\n": Unreadable,
		"tcx eth0 ingress program 12\n# " + said + "\n": Partial,
		"# nothing is attached\n":                       Whole,
	} {
		s, err := Load(snapshot.NewNode("node1", map[string][]byte{snapshot.ProgramsFile: []byte(text)}))
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Reading(snapshot.ProgramsFile); r.State != state || state != Whole && !strings.Contains(r.Reason, said) {
			t.Errorf("%q: %v %q", text, r.State, r.Reason)
		}
	}
}

func TestPolicies(t *testing.T) {
	const text = `src 10.244.0.0/16 dst 10.245.0.0/16 proto tcp 
	dir out priority 375423 ptype main 
	tmpl src 10.77.0.11 dst 10.77.0.12
		proto esp reqid 1 mode tunnel
src 10.245.0.0/16 dst 10.244.0.0/16 
	dir fwd priority 375423 ptype main 
	mark 0xd00/0xf00 
	tmpl src 10.77.0.12 dst 10.77.0.11
		proto esp reqid 1 mode tunnel
src 10.246.0.0/16 dst 10.244.0.0/16 
	dir fwd priority 1 ptype main 
src 10.247.0.0/16 dst 10.244.0.0/16 
	dir fwd action block priority 1 ptype main 
src 0.0.0.0/0 dst 0.0.0.0/0 
	socket in priority 0 ptype main 
src 0.0.0.0/0 dst 0.0.0.0/0 
	dir out priority 1 ptype main 
	if_id 0x1
`
	off := func(string) bool { return false }
	tables, err := parsePolicies([]byte(text), off)
	if err != nil {
		t.Fatal(err)
	}
	packet := func(src, dst string, proto uint8, mark uint32) netfilter.Packet {
		return netfilter.Packet{
			Family: netfilter.IPv4, Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: proto, Mark: mark,
		}
	}
	for want, p := range map[string]netfilter.Packet{
		"xfrm out at POSTROUTING []": packet("10.244.1.5", "10.245.0.1", netfilter.TCP, 0),
		"":                           packet("10.244.1.5", "10.245.0.1", netfilter.UDP, 0),
		"xfrm fwd at FORWARD []":     packet("10.245.1.5", "10.244.0.1", netfilter.TCP, 0xd00),
	} {
		if got := met(tables, p); got != want {
			t.Errorf("%v: got %q, want %q", p.Dst, got, want)
		}
	}
	// The first of two allows.
	for src, want := range map[string]string{"10.246.0.1": "", "10.247.0.1": "xfrm fwd at FORWARD []"} {
		if got := met(tables, packet(src, "10.244.0.1", netfilter.TCP, 0)); got != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
	}
	// They are asked with the addresses that packets came with, and with those that they leave with.
	asked := func(p netfilter.Packet, src, dst string) netfilter.Packet {
		p.OrigSrc, p.OrigDst = netip.MustParseAddr(src), netip.MustParseAddr(dst)
		return p
	}
	toPod := packet("10.245.1.5", "10.111.0.1", netfilter.TCP, 0xd00)
	if got := met(tables, asked(toPod, "10.245.1.5", "10.244.0.1")); got != "xfrm fwd at FORWARD []" {
		t.Errorf("by the frontend's address: %q", got)
	}
	toPod.Dst = netip.MustParseAddr("10.244.0.1")
	if got := met(tables, asked(toPod, "10.245.1.5", "10.111.0.1")); got != "" {
		t.Errorf("by the endpoint's address, where the frontend's counts: %q", got)
	}
	masqueraded := packet("192.0.2.1", "10.245.0.1", netfilter.TCP, 0)
	if got := met(tables, asked(masqueraded, "10.244.1.5", "10.111.0.1")); got != "xfrm out at POSTROUTING []" {
		t.Errorf("before it is masqueraded: %q", got)
	}
	if got := met(tables, packet("10.245.1.5", "10.244.0.1", netfilter.TCP, 0)); got != "" {
		t.Errorf("without the mark: %q", got)
	}
	for _, bad := range []string{"\tdir out\n", "Command not found\n", "src x dst y\n\tdir out\n"} {
		if _, err := parsePolicies([]byte(bad), off); err == nil {
			t.Errorf("%q is read without an error", bad)
		}
	}
}

func FuzzPrograms(f *testing.F) {
	f.Add([]byte("tc cni0 ingress filter protocol all pref 1 bpf\ncgroup connect4 program 1\n"))
	f.Add([]byte("src 10.0.0.0/8 dst 10.0.0.0/8\n\tdir out\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parsePrograms(data)
		_, _ = parsePolicies(data, func(string) bool { return true })
	})
}
