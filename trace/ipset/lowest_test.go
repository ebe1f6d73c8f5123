// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// An answer comes to a port that is not known, but none below those that the kernel gives to clients: a set that has
// lower ports alone of an address does not match.
func TestPortsBelowThoseOfClients(t *testing.T) {
	sets := mustParse(t, `create low hash:ip,port family inet
add low 10.0.0.2,tcp:80
add low 10.0.0.2,tcp:8000-8999
add low 10.0.0.3,tcp:80
create high hash:ip,port family inet
add high 10.0.0.2,tcp:80
add high 10.0.0.2,tcp:30000-40000
create map bitmap:port range 0-65535
add map 80
create list list:set
add list low
`)
	network := func(setting string) *host.Network {
		n, errs := host.Parse(host.Files{Sysctl: []byte(setting)})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return n
	}
	usual := network("net/ipv4/ip_local_port_range=32768\t60999\n")
	for _, tt := range []struct {
		name, set string
		host      *host.Network
		snat      bool
		in        bool
		known     bool
	}{
		{name: "low ports", set: "low", host: usual, known: true},
		{name: "a list of a set with low ports", set: "list", host: usual, known: true},
		{name: "ports alone", set: "map", host: usual, known: true},
		{name: "a range of higher ports", set: "high", host: usual},
		{name: "clients with low ports", set: "low", host: network("net/ipv4/ip_local_port_range=8000\t60999\n")},
		{
			name: "clients with ports above all", set: "low", known: true,
			host: network("net/ipv4/ip_local_port_range=9000\t60999\n"),
		},
		{name: "a translated client, whose port may be any from 1024 on", set: "low", host: usual, snat: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := packet(t, "tcp 10.0.0.1:8080>10.0.0.2:0")
			c.Host, c.Packet.Turn, c.Packet.Conn = tt.host, netfilter.Reply, &netfilter.Connection{SNAT: tt.snat}
			flags := []string{"dst", "dst"}
			if tt.set == "map" {
				flags = flags[:1]
			}
			if in, known, why := sets.Match(c, tt.set, flags); in != tt.in || known != tt.known {
				t.Errorf("%v, known %v: %s", in, known, why)
			}
		})
	}
}
