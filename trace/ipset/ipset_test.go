// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func mustParse(t testing.TB, text string) *Sets {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// packet reads "tcp 10.0.0.1:80>10.0.0.2:90"; port 0 of a source is one that is not known.
func packet(t testing.TB, text string) *netfilter.Context {
	t.Helper()
	proto, rest, _ := strings.Cut(text, " ")
	from, to, _ := strings.Cut(rest, ">")
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	n, ok := protocols[proto]
	if !ok {
		t.Fatalf("protocol %q", proto)
	}
	return &netfilter.Context{Packet: &netfilter.Packet{
		Family: netfilter.FamilyOf(src.Addr()), Proto: n, Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(),
		DstPort: dst.Port(),
		In:      "eth0", Out: "eth1", Mark: 0x4063,
	}}
}

const samples = "create h hash:ip family inet hashsize 1024 maxelem 65536 timeout 0 counters comment skbinfo " +
	`bucketsize 12 initval 0x063e4dc5
add h 10.0.0.2 timeout 7 packets 0 bytes 0 comment "x nomatch y" skbmark 0x1/0xff skbprio 1:10 skbqueue 3
add h 10.0.0.10-10.0.0.19
create h24 hash:ip family inet hashsize 1024 maxelem 65536 netmask 24 bucketsize 12 initval 0xa7c5b97a
add h24 10.1.2.0
create hmask hash:ip family inet hashsize 1024 maxelem 65536 bitmask 255.0.255.0/51 bucketsize 12 initval 0x2edb4733
add hmask 10.0.3.0
create h6 hash:ip family inet6 hashsize 1024 maxelem 65536 bucketsize 12 initval 0x0
add h6 fd00::2
create ipp hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0xa71c4db4
add ipp 10.0.0.2,dccp:0
add ipp 10.0.0.2,gre:0
add ipp 10.0.0.2,200:0
add ipp 10.0.0.2,icmp:77/3
add ipp 10.0.0.2,icmp:echo-request
add ipp 10.0.0.2,tcp:80
add ipp 10.0.0.2,udp:80-90
add ipp 10.0.0.2,17:53
add ipp 10.0.0.2,8080
create ippi hash:ip,port,ip family inet hashsize 1024 maxelem 65536
add ippi 10.0.0.2,tcp:80,10.0.0.1
create ippn hash:ip,port,net family inet hashsize 1024 maxelem 65536
add ippn 10.0.0.2,tcp:80,10.0.0.0/8
add ippn 10.0.0.2,tcp:80,10.0.0.0/30 nomatch
add ippn 10.0.0.2,tcp:80,10.0.0.3
create n hash:net family inet hashsize 1024 maxelem 65536
add n 10.1.0.0/16 nomatch
add n 10.0.0.0/8
add n 10.1.1.1
create np hash:net,port family inet hashsize 1024 maxelem 65536
add np 10.0.0.0/8,tcp:80
add np 10.0.0.0/8,tcp:443-444
add np 10.9.0.0/16,tcp:80 nomatch
create npn hash:net,port,net family inet hashsize 1024 maxelem 65536
add npn 10.0.0.0/8,tcp:80,10.0.0.0/8
add npn 10.5.0.0/16,tcp:80,10.0.0.0/24 nomatch
create nn hash:net,net family inet hashsize 1024 maxelem 65536
add nn 10.5.0.0/16,10.0.0.0/8
add nn 10.0.0.0/8,10.0.0.0/24 nomatch
create ni hash:net,iface family inet hashsize 1024 maxelem 65536
add ni 10.1.0.0/16,eth0
add ni 10.0.0.0/8,eth1
add ni 10.2.0.0/16,et wildcard
add ni 10.3.0.0/16,physdev:veth1
add ni 0.0.0.0/0,eth0
create m hash:ip,mark family inet markmask 0x000000ff hashsize 1024 maxelem 65536
add m 10.0.0.2,0x00000063
create mac hash:mac hashsize 1024 maxelem 65536
add mac 00:11:22:33:44:55
create nomac hash:mac hashsize 1024 maxelem 65536
create im hash:ip,mac family inet hashsize 1024 maxelem 65536
add im 10.0.0.2,00:11:22:33:44:55
create bi bitmap:ip range 10.0.0.0-10.0.0.255 netmask 28
add bi 10.0.0.16
create bim bitmap:ip,mac range 10.0.0.0-10.0.0.9
add bim 10.0.0.1
add bim 10.0.0.2,00:11:22:33:44:55
create bp bitmap:port range 0-65535
add bp 80-82
add bp 443
create l list:set size 8
add l bp
add l n
create lmac list:set size 8
add lmac mac
add lmac h
create lbad list:set size 8
add lbad gone
create ll list:set size 8
add ll l
create future hash:ip,dscp family inet
add future whatever,1
create opt hash:ip family inet colour blue
add opt 10.0.0.2
`

// The answers for what this machine's kernel has types for were compared with it, see kernel_test.go.
func TestMatch(t *testing.T) {
	s := mustParse(t, samples)
	const web = "tcp 10.0.0.1:0>10.0.0.2:80"
	for _, c := range []struct{ set, flags, packet, want string }{
		{"h", "dst", web, "in"},
		{"h", "dst,dst", web, "in"}, // more flags than dimensions do no harm
		{"h", "", web, "out"},
		{"h", "src", web, "out"},
		{"h", "dst", "tcp 10.0.0.1:0>10.0.0.19:80", "in"},
		{"h", "dst", "tcp 10.0.0.1:0>10.0.0.20:80", "out"},
		{"h", "dst", "tcp [fd00::1]:0>[fd00::2]:80", "out"},
		{"h", "sideways", web, "? neither src nor dst"},
		{"h6", "dst", "tcp [fd00::1]:0>[fd00::2]:80", "in"},
		{"h6", "dst", web, "out"},
		{"h24", "dst", "tcp 10.0.0.1:0>10.1.2.77:80", "in"},
		{"h24", "dst", "tcp 10.0.0.1:0>10.1.3.77:80", "out"},
		{"hmask", "dst", "tcp 10.0.0.1:0>10.77.3.77:80", "in"},
		{"ipp", "dst,dst", web, "in"},
		{"ipp", "dst", web, "out"}, // too few flags
		{"ipp", "dst,src", web, "? source port"},
		{"ipp", "src,src", web, "out"}, // no port would make it match
		{"ipp", "dst,src", "tcp 10.0.0.1:80>10.0.0.2:9", "in"},
		{"ipp", "dst,dst", "sctp 10.0.0.1:0>10.0.0.2:80", "out"},
		{"ipp", "dst,dst", "udp 10.0.0.1:0>10.0.0.2:85", "in"},
		{"ipp", "dst,dst", "udp 10.0.0.1:0>10.0.0.2:91", "out"},
		{"ipp", "dst,dst", "udp 10.0.0.1:0>10.0.0.2:53", "in"},
		{"ipp", "dst,dst", "tcp 10.0.0.1:0>10.0.0.2:8080", "in"},
		{"ipp", "dst,dst", "gre 10.0.0.1:0>10.0.0.2:0", "in"},
		{"ipp", "dst,dst", "esp 10.0.0.1:0>10.0.0.2:0", "out"},
		{"ipp", "dst,dst", "icmp 10.0.0.1:0>10.0.0.2:0", "? ICMP"},
		{"ipp", "src,dst", "icmp 10.0.0.1:0>10.0.0.2:0", "out"},
		{"ippi", "dst,dst,src", web, "in"},
		{"ippi", "dst,dst,dst", web, "out"},
		{"ippi", "dst,dst", web, "out"},
		{"ippn", "dst,dst,src", web, "out"}, // nomatch of the /30
		{"ippn", "dst,dst,src", "tcp 10.0.0.3:0>10.0.0.2:80", "in"},
		{"ippn", "dst,dst,src", "tcp 10.0.0.4:0>10.0.0.2:80", "in"},
		{"n", "dst", "tcp 10.0.0.1:0>10.1.1.1:80", "in"},
		{"n", "dst", "tcp 10.0.0.1:0>10.1.1.2:80", "out"},
		{"n", "dst", "tcp 10.0.0.1:0>10.2.1.2:80", "in"},
		{"n", "dst", "tcp 10.0.0.1:0>11.2.1.2:80", "out"},
		{"np", "dst,dst", "tcp 10.0.0.1:0>10.9.1.1:80", "out"},
		{"np", "dst,dst", "tcp 10.0.0.1:0>10.9.1.1:444", "in"},
		{"npn", "dst,dst,src", "tcp 10.0.0.1:0>10.5.1.1:80", "out"},
		{"npn", "dst,dst,src", "tcp 10.0.9.1:0>10.5.1.1:80", "in"},
		{"npn", "dst,dst,src", "udp 10.0.9.1:0>10.5.1.1:80", "out"},
		{"nn", "dst,src", "tcp 10.0.0.1:0>10.5.1.1:80", "in"}, // the first dimension's longer prefix comes first
		{"nn", "dst,src", "tcp 10.0.0.1:0>10.6.1.1:80", "out"},
		{"ni", "dst,dst", "tcp 10.0.0.1:0>10.7.1.1:80", "in"},
		{"ni", "dst,src", "tcp 10.0.0.1:0>10.7.1.1:80", "out"}, // 10/8 is in the set for eth1: 0/0 is not looked up
		{"ni", "dst,src", "tcp 10.0.0.1:0>11.7.1.1:80", "in"},
		{"ni", "dst,src", "tcp 10.0.0.1:0>10.1.1.1:80", "in"},
		{"ni", "dst,src", "tcp 10.0.0.1:0>10.2.1.1:80", "in"},
		{"ni", "dst,src", "tcp 10.0.0.1:0>10.3.1.1:80", "? physdev"},
		{"m", "dst,dst", web, "in"},
		{"m", "src,dst", web, "out"},
		{"mac", "src", web, "? MAC"},
		{"nomac", "src", web, "out"},
		{"im", "dst,src", web, "? MAC"},
		{"im", "src,src", web, "out"},
		{"bi", "dst", "tcp 10.0.0.1:0>10.0.0.30:80", "in"},
		{"bi", "dst", "tcp 10.0.0.1:0>10.0.0.32:80", "out"},
		{"bim", "dst,src", web, "? MAC"},
		{"bim", "dst,src", "tcp 10.0.0.1:0>10.0.0.3:80", "out"},
		{"bp", "dst", "tcp 10.0.0.1:0>10.0.0.3:82", "in"},
		{"bp", "dst", "udp [fd00::1]:0>[fd00::3]:443", "in"},
		{"bp", "dst", "sctp 10.0.0.1:0>10.0.0.3:443", "out"},
		{"bp", "dst", "tcp 10.0.0.1:0>10.0.0.3:83", "out"},
		{"bp", "src", "tcp 10.0.0.1:0>10.0.0.3:83", "? source port"},
		{"l", "dst", "tcp 10.0.0.1:0>11.0.0.3:80", "in"},
		{"l", "dst", "tcp 10.0.0.1:0>10.7.0.3:1", "in"},
		{"l", "dst", "tcp 10.0.0.1:0>11.7.0.3:1", "out"},
		{"lmac", "dst", web, "in"},
		{"lmac", "src", web, "? MAC"},
		{"lbad", "src", web, "? gone"},
		{"ll", "src", web, "? list in the list"},
		{"future", "src", web, "? hash:ip,dscp"},
		{"opt", "src", web, "? colour"},
		{"absent", "src", web, "? absent"},
	} {
		var flags []string
		if c.flags != "" {
			flags = strings.Split(c.flags, ",")
		}
		in, known, why := s.Match(packet(t, c.packet), c.set, flags)
		got := map[bool]string{true: "in", false: "out"}[in]
		if !known {
			got = "? " + why
		}
		if want, ok := strings.CutPrefix(c.want, "? "); ok && (known || in || !strings.Contains(why, want)) ||
			!ok && (got != c.want || why != "") {
			t.Errorf("Match(%s, %s, %s) = %s; want %s", c.packet, c.set, c.flags, got, c.want)
		}
	}
	nowhere := packet(t, web)
	nowhere.Packet.Src, nowhere.Packet.Out = netip.Addr{}, ""
	if _, known, why := s.Match(nowhere, "h", []string{"src"}); known || !strings.Contains(why, "src address") {
		t.Errorf("a source that is not known gives %v, %q", known, why)
	}
	other := packet(t, "esp 10.0.0.1:0>10.0.0.2:0") // a protocol of no element, as that of neighbour discovery mostly is
	other.Packet.Src = netip.Addr{}
	if in, known, why := s.Match(other, "ipp", []string{"src", "dst"}); in || !known {
		t.Errorf("a protocol of no element, from a source that is not known, gives %v, %v, %q", in, known, why)
	}
	if in, known, _ := s.Match(nowhere, "ni", []string{"dst", "dst"}); in || !known {
		t.Error("a packet without an outgoing interface is in a set of interfaces")
	}
	nowhere.Packet.Out = netfilter.UnknownIface
	if _, known, why := s.Match(nowhere, "ni", []string{"dst", "dst"}); known || !strings.Contains(why, "interfaces") {
		t.Errorf("an interface that is not known gives %v, %q", known, why)
	}
	if _, known, why := (*Sets)(nil).Match(nowhere, "h", []string{"dst"}); known ||
		!strings.Contains(why, "ipset-save.txt") {
		t.Errorf("no sets give %v, %q", known, why)
	}
}

func TestRealIPVSNode(t *testing.T) {
	data, err := os.ReadFile("testdata/ipvs.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := mustParse(t, string(data))
	if typ, n, ok := s.Describe("KUBE-CLUSTER-IP"); typ != "hash:ip,port" || n == 0 || !ok {
		t.Errorf("Describe = %s, %d, %v", typ, n, ok)
	}
	if len(s.Names()) != strings.Count(string(data), "create ") {
		t.Errorf("%d sets", len(s.Names()))
	}
	for _, c := range []struct {
		set, flags, packet string
		in                 bool
	}{
		{"KUBE-CLUSTER-IP", "dst,dst", "tcp 10.77.0.11:0>10.96.178.245:80", true},
		{"KUBE-CLUSTER-IP", "dst,dst", "udp 10.77.0.11:0>10.96.178.245:80", false},
		{"KUBE-6-CLUSTER-IP", "dst,dst", "tcp [fd00::1]:0>[fd00:10:96::4472]:80", true},
		{"KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "tcp 198.51.100.7:0>203.0.113.18:80", true},
		{"KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "tcp 198.51.101.7:0>203.0.113.18:80", false},
		{"KUBE-6-LOAD-BALANCER-SOURCE-CID", "dst,dst,src", "tcp [2001:db8:1::9]:0>[2001:db8:3::18]:80", true},
		{"KUBE-LOOP-BACK", "dst,dst,src", "tcp 10.244.1.73:0>10.244.1.73:8080", true},
		{"KUBE-NODE-PORT-TCP", "dst", "tcp 10.0.0.1:0>10.77.0.11:30080", true},
		{"KUBE-NODE-PORT-UDP", "dst", "tcp 10.0.0.1:0>10.77.0.11:30080", false},
		{"KUBE-IPVS-IPS", "dst", "tcp 10.0.0.1:0>10.96.111.24:1", true},
	} {
		if in, known, why := s.Match(packet(t, c.packet), c.set, strings.Split(c.flags, ",")); in != c.in || !known {
			t.Errorf("Match(%s, %s) = %v, %v, %q; want %v", c.packet, c.set, in, known, why, c.in)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"garbage":        {"Name: foo\n", `line 1: "Name: foo" is neither create nor add`},
		"cut off":        {"create a hash:ip\nadd a 10.0.0.1", "line 2 has no end"},
		"cut off early":  {"create a hash:ip family\n", "line 1: option family lacks"},
		"short add":      {"create a hash:ip\nadd a\n", "line 2"},
		"no such set":    {"add a 10.0.0.1\n", "line 1: there is no set a"},
		"twice":          {"create a hash:ip\ncreate a hash:ip\n", "line 2: set a is declared twice"},
		"bad address":    {"create a hash:ip\nadd a 10.0.0\n", `line 2: "10.0.0" is not an IPv4`},
		"wrong family":   {"create a hash:ip family inet6\nadd a 10.0.0.1\n", `"10.0.0.1" is not an IPv6`},
		"bad family":     {"create a hash:ip family ipx\n", "ipx"},
		"dimensions":     {"create a hash:ip,port\nadd a 10.0.0.1\n", "not an element of a hash:ip,port"},
		"bad port":       {"create a hash:ip,port\nadd a 10.0.0.1,tcp:http\n", `"tcp:http" is not a port`},
		"backward range": {"create a bitmap:port range 0-9\nadd a 9-8\n", `"9-8" is not a port`},
		"bad protocol":   {"create a hash:ip,port\nadd a 10.0.0.1,foo:1\n", `"foo" is not a protocol`},
		"backward ips":   {"create a hash:ip\nadd a 10.0.0.2-10.0.0.1\n", "is not an IPv4"},
		"bad net":        {"create a hash:net\nadd a 10.0.0.0/33\n", "is not an IPv4"},
		"bad mark":       {"create a hash:ip,mark\nadd a 10.0.0.1,x\n", `"x" is not a mark`},
		"bad MAC":        {"create a hash:mac\nadd a 00:11\n", "is not a MAC"},
		"bad iface":      {"create a hash:net,iface\nadd a 10.0.0.0/8,physdev:\n", "is not an interface"},
		"bad netmask":    {"create a hash:ip netmask 40\n", "netmask"},
		"bad bitmask":    {"create a hash:ip bitmask fe::\n", "bitmask"},
		"bad markmask":   {"create a hash:ip,mark markmask z\n", "markmask"},
		"no type":        {"create a b\n", "is not a set type"},
		"open quote":     {"create a hash:ip\nadd a 10.0.0.1 comment \"x\n", "line 2: a quote"},
		"old output":     {"# x\n\niptables v1.8\n", "line 3"},
	} {
		s, err := Parse([]byte(c.text))
		if err == nil || s != nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "ipset-save.txt: line ") {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
	for _, text := range []string{
		"", "\n", "# nothing\n",
		"create a hash:ip\r\nadd a 10.0.0.1 comment \"\"\r\nCOMMIT\r\n",
	} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(listed))
	f.Add([]byte("> " + strings.ReplaceAll(listed, "\n", "\r\n> ")))
	data, err := os.ReadFile("testdata/ipvs.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(samples))
	f.Add([]byte("create a hash:ip,port,net family inet6\nadd a ::-ffff::,sctp:0-65535,::/0 nomatch\n"))
	testutil.AddHostile(f, "create A hash:ip family inet\nadd A 10.0.0.1\n", "add A 0.0.0.0-255.255.255.255,tcp:0-65535\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			s, err := Parse(data)
			if err != nil {
				return
			}
			for _, p := range []string{
				"tcp 10.0.0.1:0>10.0.0.2:80", "udp [fd00::1]:5>[fd00::2]:80", "icmp 10.0.0.1:0>10.0.0.2:0",
				"gre 10.0.0.1:0>10.0.0.2:0",
			} {
				for _, name := range append(s.Names(), "x") {
					if in, known, why := s.Match(packet(t, p), name, []string{"dst", "src", "dst"}); known != (why == "") ||
						in && !known {
						t.Errorf("Match(%s) = %v, %v, %q", name, in, known, why)
					}
				}
			}
		})
	})
}

func large(n int) string {
	b := strings.Builder{}
	b.WriteString("create a hash:ip,port family inet hashsize 1024 maxelem 1000000\ncreate b hash:net family inet\n")
	for i := range n {
		fmt.Fprintf(&b, "add a 10.%d.%d.%d,tcp:%d\nadd b 11.%d.%d.0/24\n", i>>16, i>>8&255, i&255, 1+i%9, i>>8, i&255)
	}
	return b.String()
}

func BenchmarkParse100k(b *testing.B) {
	data := []byte(large(50000))
	for b.Loop() {
		if _, err := Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	s := mustParse(b, large(50000))
	c, flags := packet(b, "tcp 10.0.0.1:0>10.0.5.7:80"), []string{"dst", "dst"}
	b.ReportAllocs()
	for b.Loop() {
		s.Match(c, "a", flags)
		s.Match(c, "b", flags)
	}
}
