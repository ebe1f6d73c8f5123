// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
)

// IPVS is what kube-proxy has made in ipvs mode beside its rules of iptables.
type IPVS struct {
	Servers []ipvs.VirtualServer
	Sets    []Set
	Bound   []netip.Addr // the addresses on kube-ipvs0
}

// Set is a set of ipset, with its entries as ipset writes them.
type Set struct {
	Name, Type string
	IPv6       bool
	Entries    []string
}

// savedServers writes virtual and real servers as ipvsadm-save -n does.
func (v *IPVS) savedServers() []byte {
	option := map[string]string{"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service"}
	var out bytes.Buffer
	for i := range v.Servers {
		s := &v.Servers[i]
		at := option[s.Protocol] + " " + s.Address.String()
		fmt.Fprintf(&out, "-A %s -s %s", at, s.Scheduler)
		if s.Persistent > 0 {
			fmt.Fprintf(&out, " -p %d", s.Persistent)
		}
		out.WriteByte('\n')
		for _, r := range s.Reals {
			fmt.Fprintf(&out, "-a %s -r %s -m -w %d\n", at, r.Address, r.Weight)
		}
	}
	return out.Bytes()
}

// savedSets writes sets as ipset save does.
func (v *IPVS) savedSets() []byte {
	var out bytes.Buffer
	for _, s := range v.Sets {
		family := "inet"
		if s.IPv6 {
			family = "inet6"
		}
		fmt.Fprintf(&out, "create %s %s", s.Name, s.Type)
		if s.Type == "bitmap:port" { // of which kube-proxy leaves the range to ipset
			out.WriteString(" range 0-65535\n")
		} else {
			fmt.Fprintf(&out, " family %s hashsize 1024 maxelem 65536\n", family)
		}
		for _, e := range s.Entries {
			fmt.Fprintf(&out, "add %s %s\n", s.Name, e)
		}
	}
	return out.Bytes()
}

// device is the interface that ipvs mode gives the addresses of Services to.
func (v *IPVS) device() link {
	l := link{name: "kube-ipvs0"}
	for _, a := range v.Bound {
		l.addresses = append(l.addresses, netip.PrefixFrom(a, a.BitLen()))
	}
	return l
}

// persistent requires that the virtual server keeps clients for as long as the Service asks for.
func (c *checker) persistent(want *expect.Path) string {
	for i := range c.virtual {
		v := &c.virtual[i]
		if v.Address != netip.AddrPortFrom(want.Frontend.Address, want.Frontend.Port) ||
			v.Protocol != string(want.Frontend.Protocol) {
			continue
		}
		if v.Persistent != uint32(want.AffinitySeconds) { //nolint:gosec // validated
			return fmt.Sprintf("the virtual server is persistent for %d seconds", v.Persistent)
		}
		return ""
	}
	return "there is no virtual server"
}
