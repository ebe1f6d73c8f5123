// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

var at = netip.MustParseAddrPort

// The same table in both forms; only ipvsadm -Ln has connections.
const (
	saved = `-A -t 10.96.0.1:443 -s rr
-a -t 10.96.0.1:443 -r 10.0.2.15:6443 -m -w 1
-A -t 10.96.0.2:80 -s sh -p 10800 -M 255.255.0.0 -b sh-fallback,sh-port
-a -t 10.96.0.2:80 -r 10.244.1.2:8080 -m -w 1
-a -t 10.96.0.2:80 -r 10.244.1.3:8080 -g -w 0
-A -u [fd00::a]:53 -s wlc -o
-a -u [fd00::a]:53 -r [fd00:1::2]:5353 -i -w 3
-A --sctp-service 10.96.0.3:132 -s rr
-A -f 5 -s rr -p 60
`
	listed = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 rr
  -> 10.0.2.15:6443               Masq    1      4          0
TCP  10.96.0.2:80 sh persistent 10800 mask 255.255.0.0 (sh-fallback,sh-port)
  -> 10.244.1.2:8080              Masq    1      0          7
  -> 10.244.1.3:8080              Route   0      0          0
UDP  [fd00::a]:53 wlc ops
  -> [fd00:1::2]:5353             Tunnel  3      0          0
SCTP 10.96.0.3:132 rr
FWM  5 rr persistent 60
`
)

func TestParse(t *testing.T) {
	want := func(counts ...int) []VirtualServer {
		reals := []RealServer{
			{Address: at("10.0.2.15:6443"), Method: "Masq", Weight: 1},
			{Address: at("10.244.1.2:8080"), Method: "Masq", Weight: 1},
			{Address: at("10.244.1.3:8080"), Method: "Route"},
			{Address: at("[fd00:1::2]:5353"), Method: "Tunnel", Weight: 3},
		}
		for i := range reals {
			reals[i].Active, reals[i].Inactive = counts[2*i], counts[2*i+1]
		}
		return []VirtualServer{
			{Protocol: "TCP", Address: at("10.96.0.1:443"), Scheduler: "rr", Reals: reals[:1:1]},
			{
				Protocol: "TCP", Address: at("10.96.0.2:80"), Scheduler: "sh", Persistent: 10800, Mask: "255.255.0.0",
				Flags: []string{"sh-fallback", "sh-port"}, Reals: reals[1:3:3],
			},
			{Protocol: "UDP", Address: at("[fd00::a]:53"), Scheduler: "wlc", Flags: []string{"ops"}, Reals: reals[3:]},
			{Protocol: "SCTP", Address: at("10.96.0.3:132"), Scheduler: "rr"},
			{Protocol: "FWM", Mark: 5, Scheduler: "rr", Persistent: 60},
		}
	}
	for _, tt := range []struct {
		text string
		want []VirtualServer
	}{
		{saved, want(-1, -1, -1, -1, -1, -1, -1, -1)},
		{listed, want(4, 0, 0, 7, 0, 0, 0, 0)},
		{"", nil},
		{"IP Virtual Server version 1.2.1 (size=4096)\n", nil},
	} {
		got, err := Parse([]byte(tt.text))
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s\ngot  %+v %v\nwant %+v", tt.text, got, err, tt.want)
		}
	}
	for _, bad := range []string{
		"-a -t 10.96.0.1:443 -r 10.0.2.15:6443 -m -w 1", "-A -t web:80 -s rr", "-A -t", "-A -x 1", "-A -t 10.96.0.1:443 -s",
		"-A -t 10.96.0.1:443 -z 1", "-A -f x",
		"-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.2.15:6443 -w 1",
		"-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.2.15:6443 -m -w -1",
		"-> 10.0.2.15:6443 Masq 1 0 0", "TCP 10.96.0.1:443 rr\n-> 10.0.2.15:6443 Masq 1",
		"TCP 10.96.0.1:443 rr\n-> 10.0.2.15:6443 Drop 1 0 0",
		"TCP 10.96.0.1:443 rr\n-> 10.0.2.15:6443 Masq one 0 0", "TCP 10.96.0.1:443", "TCP kubernetes:https rr",
		"TCP 10.96.0.1:443 rr persistent soon", "command not found",
	} {
		if got, err := Parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), "line ") || got != nil {
			t.Errorf("%q: %+v %v", bad, got, err)
		}
	}
}

// What copying adds changes nothing; where lines were left out, what is missing cannot be told.
func TestPastedServers(t *testing.T) {
	want, err := Parse([]byte(listed))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a prompt":   "[root@node1 ~]# ipvsadm -ln\n" + listed + "[root@node1 ~]#\n",
		"a comment":  "# ipvsadm -Ln\n" + listed,
		"a fence":    "```\n" + listed + "```\n",
		"Windows":    strings.ReplaceAll(listed, "\n", "\r\n"),
		"no-break":   strings.ReplaceAll(listed, " ", "\u00a0"),
		"piped":      "$ ipvsadm -Ln | less\n" + listed,
		"indented":   strings.ReplaceAll(listed, "\n", "\n    "),
		"blank line": strings.ReplaceAll(listed, "\n", "\n\n"),
	} {
		if got, err := Parse([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, text := range map[string]string{
		"a filter":       "$ ipvsadm -Ln | grep -A3 10.96\n" + listed,
		"left out":       listed + "...\n",
		"no header":      "TCP" + strings.SplitN(listed, "TCP", 2)[1],
		"another format": "Prot LocalAddress:Port  Conns InPkts\nTCP  10.96.0.1:443  1 2 3 4 5\n",
	} {
		if got, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What a real kube-proxy made is read whole.
func TestCaptured(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "snapshots", "ipvs", "nodes", "node1", "ipvsadm.txt"))
	if err != nil {
		t.Fatal(err)
	}
	servers, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	reals, persistent := 0, 0
	for _, v := range servers {
		reals += len(v.Reals)
		if v.Persistent > 0 {
			persistent++
		}
	}
	text := string(data)
	if len(servers) != strings.Count(text, "-A ") || reals != strings.Count(text, "-a ") ||
		persistent != strings.Count(text, " -p ") || persistent == 0 {
		t.Errorf("%d virtual servers, %d persistent, %d real servers", len(servers), persistent, reals)
	}
}

func FuzzParse(f *testing.F) {
	for _, data := range testutil.Files(f, "../../testdata/snapshots/*/nodes/*/ipvsadm.txt") {
		f.Add(data)
	}
	f.Add([]byte(saved))
	f.Add([]byte(listed))
	f.Add([]byte("$ ipvsadm -ln\r\n" + listed + "$"))
	testutil.AddHostile(f, "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:443 -m -w 1\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			list, err := Parse(data)
			if err != nil && list != nil {
				t.Errorf("an error, and %d virtual servers", len(list))
			}
		})
	})
}
