// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func tuple(src, dst string) Tuple {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	return Tuple{s.Addr(), d.Addr(), s.Port(), d.Port()}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		line string
		want Entry
	}{
		{
			"ipv4     2 tcp      6 431999 ESTABLISHED src=10.244.1.5 dst=10.96.0.10 sport=33748 dport=80 src=10.244.2.9 " +
				"dst=10.77.0.11 sport=8080 dport=51234 [ASSURED] mark=0 use=1",
			Entry{
				Proto: netfilter.TCP, State: "ESTABLISHED", Timeout: 431999, Original: tuple("10.244.1.5:33748", "10.96.0.10:80"),
				Reply: tuple("10.244.2.9:8080", "10.77.0.11:51234"), Assured: true,
			},
		},
		{
			"udp      17 29 src=10.244.1.5 dst=10.96.0.10 sport=40000 dport=53 [UNREPLIED] src=10.244.2.9 dst=10.244.1.5 " +
				"sport=53 dport=40000 mark=0 secctx=system_u:object_r:unlabeled_t:s0 use=1",
			Entry{
				Proto: netfilter.UDP, Timeout: 29, Original: tuple("10.244.1.5:40000", "10.96.0.10:53"),
				Reply: tuple("10.244.2.9:53", "10.244.1.5:40000"), Unreplied: true,
			},
		},
		{
			"ipv6     10 sctp     132 10 CLOSED src=fd00::1 dst=fd00::2 sport=1 dport=2 packets=1 bytes=60 [UNREPLIED] " +
				"src=fd00::2 dst=fd00::1 sport=2 dport=1 packets=0 bytes=0 mark=4 zone=7 use=2",
			Entry{
				Proto: netfilter.SCTP, State: "CLOSED", Timeout: 10, Original: tuple("[fd00::1]:1", "[fd00::2]:2"),
				Reply: tuple("[fd00::2]:2", "[fd00::1]:1"), Unreplied: true, Zone: 7,
			},
		},
		{
			"icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=5 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=5 mark=0 " +
				"use=1",
			Entry{Proto: 1, Timeout: 29, Original: tuple("10.0.0.1:0", "10.0.0.2:0"), Reply: tuple("10.0.0.2:0", "10.0.0.1:0")},
		},
		{
			"ipv4     2 tcp      6 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2 src=2.2.2.2 dst=1.1.1.1 sport=2 dport=1 [OFFLOAD] " +
				"mark=0 use=2",
			Entry{Proto: netfilter.TCP, Original: tuple("1.1.1.1:1", "2.2.2.2:2"), Reply: tuple("2.2.2.2:2", "1.1.1.1:1")},
		},
	} {
		got, err := Parse([]byte(tt.line + "\n\n"))
		if err != nil || len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s:\ngot  %+v %v\nwant %+v", tt.line, got, err, tt.want)
		}
	}
	for _, bad := range []string{
		"404 page not found", "<html>", "tcp 6 10 src=10.0.0.1", "ipv4 2 tcp",
		"tcp 6 10 src=a dst=b sport=1 dport=2",
		"tcp 6 10 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=70000 src=2.2.2.2 dst=1.1.1.1",
		"tcp 6 99999999999 src=1.1.1.1 dst=2.2.2.2 src=2.2.2.2 dst=1.1.1.1",
	} {
		if got, err := Parse([]byte("\n" + bad + "\n")); err == nil || !strings.Contains(err.Error(), "line 2") ||
			len(got) > 0 {
			t.Errorf("%q: %+v %v", bad, got, err)
		}
	}
}

// TestHalfATable: the entries of whole lines are read, the end of a line may be missing, and that something is missing
// is said.
func TestHalfATable(t *testing.T) {
	const whole = "tcp 6 10 src=10.0.0.1 dst=10.96.0.1 sport=1 dport=80 src=10.1.0.1 dst=10.0.0.1 sport=8080 dport=1\n"
	for text, want := range map[string]struct {
		entries int
		why     string
	}{
		whole + whole:                        {2, ""},
		whole + "conntrack v1.4.7: 1 flow\n": {1, ""},
		whole + whole[:len(whole)-1]:         {1, "cut off in line 2"},
		whole + "\x00\xff\n" + whole:         {2, "line 2"},
		"connection refused":                 {0, "cut off in line 1"},
	} {
		got, err := Parse([]byte(text))
		if len(got) != want.entries || (err != nil) != (want.why != "") ||
			err != nil && !strings.Contains(err.Error(), want.why) {
			t.Errorf("%q: %d entries, %v", text, len(got), err)
		}
	}
}

// What real nodes printed is read, every line of it.
func TestCaptured(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "snapshots", "*", "nodes", "*", "conntrack.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no captured tables", err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		list, err := Parse(data)
		if err != nil || len(list) != strings.Count(string(data), "\n") {
			t.Errorf("%s: %d entries, %v", f, len(list), err)
		}
	}
}

func TestTable(t *testing.T) {
	list,
		err := Parse([]byte("udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40000 dport=53 src=10.244.2.9 dst=10.244.1.5 " +
		"sport=53 dport=40000\n" +
		"udp 17 29 src=10.244.1.6 dst=10.96.0.10 sport=40000 dport=53 src=10.244.2.9 dst=10.244.1.6 sport=53 dport=40000\n" +
		"tcp 6 29 SYN_SENT src=10.244.1.6 dst=10.96.0.10 sport=40000 dport=53 src=10.96.0.10 dst=10.244.1.6 sport=53 " +
		"dport=40000\n"))
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(list)
	count := func(p uint8, to string) (n, translated int) {
		table.To(p, netip.MustParseAddrPort(to), func(e *Entry) {
			n++
			if e.Translated() {
				translated++
			}
		})
		return n, translated
	}
	if n, nat := count(netfilter.UDP, "10.96.0.10:53"); n != 2 || nat != 2 {
		t.Errorf("UDP: %d, %d translated", n, nat)
	}
	if n, nat := count(netfilter.TCP, "10.96.0.10:53"); n != 1 || nat != 0 {
		t.Errorf("TCP: %d, %d translated", n, nat)
	}
	if n, _ := count(netfilter.UDP, "10.96.0.10:54"); n != 0 || table.Len() != 3 {
		t.Errorf("%d to another port", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, data := range testutil.Files(f, "../../testdata/snapshots/*/nodes/*/conntrack.txt") {
		f.Add(data)
	}
	f.Add([]byte("ipv4     2 tcp      6 117 TIME_WAIT src=127.0.0.1 dst=127.0.0.1 sport=33748 dport=10249 " +
		"src=127.0.0.1 dst=127.0.0.1 sport=10249 dport=33748 [ASSURED] mark=0 use=1\n"))
	f.Add([]byte("udp 17 29 src=::1 dst=::2 sport=40000 dport=53 [UNREPLIED] src=::2 dst=::1 sport=53 dport=40000\n"))
	testutil.AddHostile(f, "tcp 6 10 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2 src=2.2.2.2 dst=1.1.1.1 sport=1 dport=2\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			list, err := Parse(data)
			if err != nil && len(list) > bytes.Count(data, []byte("\n")) {
				t.Errorf("an error, and %d entries", len(list))
			}
			for i := range list {
				if e := &list[i]; !e.Original.Src.IsValid() || !e.Original.Dst.IsValid() || !e.Reply.Src.IsValid() ||
					!e.Reply.Dst.IsValid() {
					t.Errorf("an entry without an address: %+v", e)
				}
			}
		})
	})
}
