// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fakeipset "k8s.io/kubernetes/pkg/proxy/ipvs/ipset/testing"
	fakenetlink "k8s.io/kubernetes/pkg/proxy/ipvs/testing"
	fakeipvs "k8s.io/kubernetes/pkg/proxy/ipvs/util/testing"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
	table "github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TestIPVSOracle lets kube-proxy write into fakes of IPVS, ipset, iptables and the node's interfaces.
func TestIPVSOracle(t *testing.T) {
	quiet(t)
	gen.Run(t, version(), kubeproxy.IPVS, writeIPVS, gates()...)
}

const (
	ipvsDevice     = "kube-ipvs0"
	ipsetVersion   = "7.17"
	ipvsPersistent = 0x1 // IP_VS_SVC_F_PERSISTENT
)

func writeIPVS(w *gen.Cluster) (r gen.Rules, err error) {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(w.Config.FeatureGates); err != nil {
		return r, err
	}
	r.IPVS = &gen.IPVS{}
	for at, family := range families {
		rules, err := writeIPVSFamily(w, family, at, r.IPVS)
		if err != nil {
			return r, err
		}
		if at == 0 {
			r.IPv4 = rules
		} else {
			r.IPv6 = rules
		}
	}
	return r, nil
}

func writeIPVSFamily(w *gen.Cluster, family corev1.IPFamily, at int, out *gen.IPVS) ([]byte, error) {
	f, links := newFakes(at), fakenetlink.NewFakeNetlinkHandle(at == 1)
	p, err := newIPVS(w, family, at, f)
	if err != nil {
		return nil, err
	}
	var own []string
	for _, a := range w.Addresses() {
		own = append(own, a.Addr().String())
	}
	if err := links.SetLocalAddresses("eth", own...); err != nil {
		return nil, err
	}
	set(p, "netlinkHandle", links)
	isolate(p, w)
	feed(p, w)

	out.Servers = append(out.Servers, serversOf(f.servers)...)
	out.Sets = append(out.Sets, setsOf(f.sets, at == 1)...)
	bound, err := links.GetLocalAddresses(ipvsDevice)
	if err != nil {
		return nil, err
	}
	for a := range bound {
		out.Bound = append(out.Bound, netip.MustParseAddr(a))
	}
	slices.SortFunc(out.Bound, netip.Addr.Compare)
	return f.save()
}

// serversOf returns what the fake IPVS has.
func serversOf(f *fakeipvs.FakeIPVS) (out []table.VirtualServer) {
	at := func(ip net.IP, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(ip.String()), port)
	}
	for key, v := range f.Services {
		s := table.VirtualServer{Protocol: v.Protocol, Address: at(v.Address, v.Port), Scheduler: v.Scheduler}
		if v.Flags&ipvsPersistent != 0 {
			s.Persistent = v.Timeout
		}
		for _, r := range f.Destinations[key] {
			s.Reals = append(s.Reals, table.RealServer{Address: at(r.Address, r.Port), Weight: r.Weight})
		}
		out = append(out, s)
	}
	return out
}

// setsOf returns what the fake ipset has.
func setsOf(f *fakeipset.FakeIPSet, v6 bool) (out []gen.Set) {
	for name, s := range f.Sets {
		out = append(out, gen.Set{Name: name, Type: string(s.SetType), IPv6: v6, Entries: f.Entries[name].List()})
	}
	return out
}
