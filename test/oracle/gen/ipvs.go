// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// IPVS is what kube-proxy has made in ipvs mode beside its rules of iptables.
type IPVS struct {
	Servers []byte       // virtual and real servers, as ipvsadm-save -n prints them
	Sets    []byte       // as ipset save prints them
	Bound   []netip.Addr // the addresses on kube-ipvs0
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
		if v.Address != netip.AddrPortFrom(want.Frontend.Address, want.Frontend.Port) || v.Protocol != string(want.Frontend.Protocol) {
			continue
		}
		if v.Persistent != uint32(want.AffinitySeconds) { //nolint:gosec // validated
			return fmt.Sprintf("the virtual server is persistent for %d seconds", v.Persistent)
		}
		return ""
	}
	return "there is no virtual server"
}
