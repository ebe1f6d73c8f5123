// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseReference(t *testing.T) {
	addr := netip.MustParseAddr
	tests := []struct {
		in   string
		want Reference
	}{
		{"web", Reference{Name: "web"}},
		{"svc/web", Reference{Name: "web"}},
		{"service/web", Reference{Name: "web"}},
		{"services/web", Reference{Name: "web"}},
		{"Service/web", Reference{Name: "web"}},
		{"web:80", Reference{Name: "web", Port: "80"}},
		{"web:080", Reference{Name: "web", Port: "80"}},
		{"svc/web:http", Reference{Name: "web", Port: "http"}},
		{"dns:53/udp", Reference{Name: "dns", Port: "53", Protocol: "UDP"}},
		{"svc/dns:53/TCP", Reference{Name: "dns", Port: "53", Protocol: "TCP"}},
		{"7seven", Reference{Name: "7seven"}},
		{"10.96.0.1", Reference{Address: addr("10.96.0.1")}},
		{"10.96.0.1:443", Reference{Address: addr("10.96.0.1"), Port: "443"}},
		{"10.96.0.1:https", Reference{Address: addr("10.96.0.1"), Port: "https"}},
		{"10.96.0.10:53/udp", Reference{Address: addr("10.96.0.10"), Port: "53", Protocol: "UDP"}},
		{"::ffff:10.96.0.1", Reference{Address: addr("10.96.0.1")}},
		{"fd00::1", Reference{Address: addr("fd00::1")}},
		{"fd00::1:80", Reference{Address: addr("fd00::1:80")}},
		{"[fd00::1]", Reference{Address: addr("fd00::1")}},
		{"[fd00::1]:80", Reference{Address: addr("fd00::1"), Port: "80"}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseReference(tt.in)
			tt.want.Input = tt.in
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseReferenceErrors(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "names no Service"},
		{"svc/", "names no Service"},
		{":80", "names no Service"},
		{"deploy/web", "for a Service web in namespace deploy: web -n deploy"},
		{"a/b/c", "is no Service"},
		{"web:", `has port ""`},
		{"web:0", "has port 0: a port is a number from 1 to 65535"},
		{"web:65536", "has port 65536"},
		{"web:-1", "has port -1"},
		{"web:80:80", `has port "80:80"`},
		{"web:HTTP", `has port "HTTP"`},
		{"web:80/icmp", "may be tcp, udp or sctp"},
		{"Web", "is no Service's name"},
		{"we_b", "is no Service's name"},
		{"web.shop", "web -n shop"},
		{"web.shop.svc.cluster.local:80", "web -n shop"},
		{"10.96.0.256", "is no Service's name"},
		{"10.96.0.1:99999", "has port 99999"},
		{"fe80::1%eth0", "has a zone"},
		{"http://web", "is no Service"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseReference(tt.in)
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `"`+tt.in+`"`) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q and the input", err, tt.want)
			}
		})
	}
}
