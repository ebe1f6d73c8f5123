// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

func TestTextsOfSockets(t *testing.T) {
	v4 := netip.MustParseAddr("10.0.0.1")
	for want, s := range map[string]host.Socket{
		"10.0.0.1:80":                    {Protocol: "tcp", Address: v4, Port: 80},
		"[::ffff:10.0.0.1]:80":           {Protocol: "tcp", Address: v4, Port: 80, Mapped: true},
		"[::]:80":                        {Protocol: "tcp", Address: netip.IPv6Unspecified(), Port: 80},
		"*:80 its backlog is full":       {Protocol: "tcp", Port: 80, Diagnosed: true, Queue: 1},
		"10.0.0.1:53 its buffer is full": {Protocol: "udp", Address: v4, Port: 53, Held: 9, Buffer: 10},
		"[::ffff:10.0.0.1]:53 on eth0":   {Protocol: "udp", Address: v4, Port: 53, Mapped: true, Device: "eth0"},
	} {
		if got := listenerText(&s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
