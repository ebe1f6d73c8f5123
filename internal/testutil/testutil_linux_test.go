// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A server in another namespace says who it is and whom it sees; what the namespaces hold is listed, and nothing of
// it is elsewhere.
func TestNamespaces(t *testing.T) {
	if !Isolate(t, unix.CLONE_NEWNET, "ip", "nsenter", "nft", "iptables-nft-save", "iptables-legacy-save") {
		return
	}
	before := Listing(t, Rules...)
	other := NewNamespace(t)
	Run(t, "", "ip", "link", "add", "veth0", "type", "veth", "peer", "name", "eth0", "netns", other.PID)
	Run(t, "", "ip", "link", "set", "veth0", "up")
	Run(t, "", "ip", "addr", "add", "10.244.1.1/24", "dev", "veth0")
	Run(t, "", "ip", "addr", "add", "10.244.1.2/24", "dev", "veth0")
	other.Run(t, "ip", "link", "set", "eth0", "up")
	other.Run(t, "ip", "addr", "add", "10.244.1.5/24", "dev", "eth0")
	there := NewThread(t, other.Path)
	for _, network := range []string{"tcp", "udp"} {
		Echo(t, there, network, "10.244.1.5:8080")
		for _, from := range []string{"10.244.1.1", "10.244.1.2"} {
			who, err := Ask(nil, network, netip.MustParseAddr(from), "10.244.1.5:8080", 5*time.Second)
			want := (Echoed{netip.MustParseAddrPort("10.244.1.5:8080"), netip.MustParseAddr(from)})
			if err != nil || who != want {
				t.Errorf("%s from %s: %+v %v", network, from, who, err)
			}
		}
		if _, err := Ask(nil, network, netip.Addr{}, "10.244.1.5:8081", 5*time.Second); err == nil {
			t.Errorf("%s: someone answers where nothing listens", network)
		}
	}
	other.Run(t, "nft", "add table ip theirs")
	if after := Listing(t, Rules...); after != before {
		t.Errorf("a table of another namespace is listed here:\n%s", after)
	}
	Run(t, "table ip ours { chain c { counter; }; }", "nft", "-f", "-")
	after := Listing(t, Rules...)
	if !strings.Contains(after, "nft list ruleset: table ip ours {\n") || strings.Contains(after, "theirs") {
		t.Errorf("a table is not listed:\n%s", after)
	}
}

func TestAnswersOfOthers(t *testing.T) {
	for _, line := range []string{
		"", "hello\n", "10.0.0.1:80 10.0.0.2 other\n", "x 10.0.0.2 hello\n", "10.0.0.1:80 x hello\n",
	} {
		if who, err := parseEchoed(line, asked); err == nil {
			t.Errorf("%q is taken for an answer: %+v", line, who)
		}
	}
}
