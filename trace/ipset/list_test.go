// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

const listed = `root@node1:~# ipset list
Name: KUBE-CLUSTER-IP
Type: hash:ip,port
Revision: 6
Header: family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x4a3f
Size in memory: 448
References: 2
Number of entries: 2
Members:
10.96.0.1,tcp:443
10.96.0.10,17:53

Name: KUBE-NODE-PORT-TCP
Type: bitmap:port
Revision: 3
Header: range 0-65535
Size in memory: 8268
References: 1
Number of entries: 0
Members:
`

// has says whether a set has a destination: "yes", "no", or why that is not known.
func has(s *Sets, set, dst string, proto uint8) string {
	at := netip.MustParseAddrPort(dst)
	c := &netfilter.Context{Packet: &netfilter.Packet{
		Family: netfilter.IPv4, Proto: proto, Dst: at.Addr(), DstPort: at.Port(),
	}}
	in, known, why := s.Match(c, set, []string{"dst", "dst"})
	switch {
	case !known:
		return why
	case in:
		return "yes"
	}
	return "no"
}

// ipset list is read as ipset save is; of what is missing nothing is claimed.
func TestList(t *testing.T) {
	for name, tt := range map[string]struct{ text, has, hasNot string }{
		"as it is": {listed, "yes", "no"},
		"pasted":   {strings.ReplaceAll(listed, "\n", "\r\n  "), "yes", "no"},
		"saved, and pasted": {
			"# ipset save\r\n create KUBE-CLUSTER-IP hash:ip,port family inet\r\n" +
				" add KUBE-CLUSTER-IP 10.96.0.1,tcp:443\r\n", "yes", "no",
		},
		"a member is missing": {
			strings.Replace(listed, "10.96.0.10,17:53\n", "", 1), "has 2 members, of which 1", "has 2 members, of which 1",
		},
		"members left out": {
			strings.Replace(listed, "10.96.0.10,17:53\n", "...\n", 1), "not understood: ...", "not understood",
		},
		"a member is masked":   {strings.Replace(listed, "10.96.0.10", "x.x.x.x", 1), "x.x.x.x", "x.x.x.x"},
		"an old one, no count": {strings.Replace(listed, "Number of entries: 2\n", "", 1), "yes", "no"},
		"headers alone":        {strings.SplitN(listed, "Members:", 2)[0], "were not collected", "were not collected"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := has(s, "KUBE-CLUSTER-IP", "10.96.0.1:443", netfilter.TCP); !strings.Contains(got, tt.has) {
				t.Errorf("10.96.0.1:443: %q, want %q", got, tt.has)
			}
			if got := has(s, "KUBE-CLUSTER-IP", "10.96.0.9:443", netfilter.TCP); !strings.Contains(got, tt.hasNot) {
				t.Errorf("10.96.0.9:443: %q, want %q", got, tt.hasNot)
			}
		})
	}
	if s, err := Parse([]byte(listed)); err != nil || has(s, "KUBE-CLUSTER-IP", "10.96.0.10:53", netfilter.UDP) != "yes" {
		t.Errorf("a protocol as a number: %v", err)
	}
}
