// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

func TestParseListen(t *testing.T) {
	got, err := ParseListen([]byte(`tcp LISTEN 0 4096 127.0.0.1:10249 0.0.0.0:* users:(("kube-proxy",pid=29133,fd=11))
tcp   LISTEN 0      4096            *:10256       *:* users:(("kube-proxy",pid=29133,fd=9))
udp   UNCONN 0      0      127.0.0.53%lo:53       0.0.0.0:*
tcp   LISTEN 0      128          [::]:22          [::]:*    users:(("sshd",pid=1,fd=3),("systemd",pid=2,fd=4))
udp   UNCONN 0      0      [fe80::1]%eth0:546         [::]:*
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Socket{
		{
			Protocol: "tcp", Address: netip.MustParseAddr("127.0.0.1"), Port: 10249, Process: "kube-proxy", PID: 29133,
			Backlog: 4096, Diagnosed: true,
		},
		{Protocol: "tcp", Port: 10256, Process: "kube-proxy", PID: 29133, Backlog: 4096, Diagnosed: true},
		{Protocol: "udp", Address: netip.MustParseAddr("127.0.0.53"), Device: "lo", Port: 53},
		{
			Protocol: "tcp", Address: netip.IPv6Unspecified(), Port: 22, Process: "sshd", PID: 1, Others: []int{2},
			Backlog: 128, Diagnosed: true,
		},
		{Protocol: "udp", Address: netip.MustParseAddr("fe80::1"), Device: "eth0", Port: 546},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, tt := range []struct {
		socket   int
		protocol string
		to       string
		takes    bool
	}{
		{0, "tcp", "127.0.0.1:10249", true},
		{0, "udp", "127.0.0.1:10249", false},
		{0, "tcp", "127.0.0.2:10249", false},
		{0, "tcp", "127.0.0.1:10250", false},
		{1, "tcp", "192.168.0.1:10256", true},
		{1, "tcp", "[::1]:10256", true},
		{3, "tcp", "[::1]:22", true},
		{3, "tcp", "127.0.0.1:22", false},
	} {
		if got := want[tt.socket].Accepts(tt.protocol, netip.MustParseAddrPort(tt.to)); got != tt.takes {
			t.Errorf("%+v takes %s %s: %v", want[tt.socket], tt.protocol, tt.to, got)
		}
	}
	for _, bad := range []string{
		"tcp LISTEN 0 128\n", "tcp LISTEN 0 128 *:ssh *:*\n", "tcp LISTEN 0 128 nowhere *:*\n",
		"tcp LISTEN 0 128 x:22 *:*\n",
	} {
		if _, err := ParseListen([]byte(bad)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What ss -e and -m add shows that a listing is of sock_diag, whose limits of 0 are some.
func TestDiagnosedSockets(t *testing.T) {
	for text, want := range map[string]Socket{
		"tcp LISTEN 1 0 0.0.0.0:80 0.0.0.0:*":                               {Queue: 1},
		"tcp LISTEN 1 0 0.0.0.0:80 0.0.0.0:* skmem:(r0,rb131072)":           {Queue: 1, Buffer: 131072, Diagnosed: true},
		"tcp LISTEN 1 0 [::]:80 [::]:* v6only:1 <->":                        {Queue: 1, Diagnosed: true},
		"tcp LISTEN 1 5 0.0.0.0:80 0.0.0.0:*":                               {Queue: 1, Backlog: 5, Diagnosed: true},
		"udp UNCONN 0 0 [::]:80 [::]:*":                                     {},
		"udp UNCONN 0 0 0.0.0.0:80 0.0.0.0:* skmem:(r9,rb10,t0)":            {Held: 9, Buffer: 10, Diagnosed: true},
		"tcp LISTEN 0 5 [::ffff:10.0.0.1]:80 *:*":                           {Backlog: 5, Diagnosed: true, Mapped: true},
		`udp UNCONN 0 0 0.0.0.0:80 *:* users:(("a v6only:1 b",pid=1,fd=2))`: {Process: "a v6only:1 b", PID: 1},
	} {
		list, err := ParseListen([]byte(text + "\n"))
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v %v", text, list, err)
		}
		got := list[0]
		got.Protocol, got.Address, got.Port = "", netip.Addr{}, 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func FuzzParseListen(f *testing.F) {
	for _, data := range testutil.Files(f, "../../testdata/snapshots/*/nodes/*/listen.txt") {
		f.Add(data)
	}
	f.Add([]byte("tcp LISTEN 0 4096 127.0.0.1:10249 0.0.0.0:* users:((\"kube-proxy\",pid=29133,fd=11))\n"))
	f.Add([]byte("udp   UNCONN 0      0      [fe80::1]%eth0:546         [::]:*\n"))
	testutil.AddHostile(f, "tcp LISTEN 0 4096 127.0.0.1:80 0.0.0.0:* users:((\"a\",pid=1,fd=3))\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			list, err := ParseListen(data)
			if err != nil && list != nil {
				t.Errorf("an error, and %d sockets", len(list))
			}
		})
	})
}

// TestMarkStoppedInPart: that groups were not read does not undo what is known of processes.
func TestMarkStoppedInPart(t *testing.T) {
	list := []Socket{{PID: 7}, {PID: 8}}
	const said = "control groups of processes that listen were not read: permission denied"
	if err := MarkStopped(list, []byte("7 T\n# "+said+"\n")); err == nil || err.Error() != said {
		t.Errorf("%v, want %s", err, said)
	}
	if !list[0].Stopped || list[1].Stopped {
		t.Errorf("%+v", list)
	}
}

// A socket is stopped where all of its processes are; a list that holds others, too, says no more.
func TestMarkStopped(t *testing.T) {
	list := []Socket{
		{PID: 7}, {PID: 8, Others: []int{7}}, {PID: 7, Others: []int{9}}, {}, {PID: 6}, {PID: 7, Others: []int{6}},
	}
	if err := MarkStopped(list, []byte("    7 T    echo server\n    8 Ss   x\n    9 t+   gdb\n6 F\n")); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]bool{{true, false}, {}, {true, false}, {}, {true, true}, {true, true}} {
		if list[i].Stopped != want[0] || list[i].Frozen != want[1] {
			t.Errorf("%+v, want stopped, frozen: %v", list[i], want)
		}
	}
	for _, bad := range []string{"x T\n", "7\n", "7 T", "7 T \xff\n"} {
		if err := MarkStopped(list, []byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A process that chose a name which looks like another one's entry is not that other one: whose the socket is, is not
// known.
func TestAForgedNameIsNoProcess(t *testing.T) {
	for name, want := range map[string]string{
		"kube-proxy": "kube-proxy", `k",pid=29133`: "", `",pid=812,fd=3)`: "", `k\",pid=29133`: "",
	} {
		list, err := ParseListen([]byte(`tcp LISTEN 0 4096 *:31000 *:* users:(("` + name + "\",pid=999,fd=5))\n"))
		pid := 0
		if want != "" {
			pid = 999
		}
		if err != nil || len(list) != 1 || list[0].Process != want || list[0].PID != pid {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}
