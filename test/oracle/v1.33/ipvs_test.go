// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/proxy/conntrack"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	"k8s.io/kubernetes/pkg/proxy/ipvs"
	fakeipset "k8s.io/kubernetes/pkg/proxy/ipvs/ipset/testing"
	fakenetlink "k8s.io/kubernetes/pkg/proxy/ipvs/testing"
	fakeipvs "k8s.io/kubernetes/pkg/proxy/ipvs/util/testing"
	fakeiptables "k8s.io/kubernetes/pkg/util/iptables/testing"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// TestIPVSOracle lets kube-proxy write into fakes of IPVS, ipset, iptables and the node's interfaces.
func TestIPVSOracle(t *testing.T) {
	quiet(t)
	gen.Run(t, "v1.33.0", expect.IPVS, writeIPVS, "PreferSameTrafficDistribution")
}

const (
	ipvsDevice     = "kube-ipvs0"
	ipsetVersion   = "7.17"
	ipvsPersistent = 0x1 // IP_VS_SVC_F_PERSISTENT
)

func writeIPVS(w *gen.World) (r gen.Rules, err error) {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(w.Config.FeatureGates); err != nil {
		return r, err
	}
	r.IPVS = &gen.IPVS{}
	for at, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
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

func writeIPVSFamily(w *gen.World, family corev1.IPFamily, at int, out *gen.IPVS) ([]byte, error) {
	c := &w.Config
	tables := fakeiptables.NewFake()
	if at == 1 {
		tables = fakeiptables.NewIPv6Fake()
	}
	servers, sets, links := fakeipvs.NewFake(), fakeipset.NewFake(ipsetVersion), fakenetlink.NewFakeNetlinkHandle(at == 1)
	p, err := ipvs.NewProxier(context.Background(), family, tables, servers, sets, sysctls{}, time.Hour, time.Hour, nil, false, 0, 0, 0, c.MasqueradeAll,
		c.MasqueradeBit, detector(w, family), w.Node.Name, net.ParseIP(w.Node.Status.Addresses[at].Address), nil, nil, c.Scheduler, c.NodePortAddresses, false)
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
	set(p, "networkInterfacer", network(w))
	set(p, "conntrack", conntrack.NewFake())
	set(p, "serviceHealthServer", healthcheck.NewFakeServiceHealthServer())

	p.OnNodeAdd(w.Node)
	services, endpointSlices := w.Seen(true)
	for _, s := range services {
		p.OnServiceAdd(s)
	}
	for _, s := range endpointSlices {
		p.OnEndpointSliceAdd(s)
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()

	out.Servers = append(out.Servers, savedServers(servers)...)
	out.Sets = append(out.Sets, savedSets(sets, at == 1)...)
	bound, err := links.GetLocalAddresses(ipvsDevice)
	if err != nil {
		return nil, err
	}
	for a := range bound {
		out.Bound = append(out.Bound, netip.MustParseAddr(a))
	}
	slices.SortFunc(out.Bound, netip.Addr.Compare)
	var buf bytes.Buffer
	err = tables.SaveInto("", &buf)
	return buf.Bytes(), err
}

// savedServers writes what the fake IPVS has as ipvsadm-save -n does.
func savedServers(f *fakeipvs.FakeIPVS) []byte {
	option := map[string]string{"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service"}
	var out bytes.Buffer
	for key, v := range f.Services {
		at := option[v.Protocol] + " " + netip.AddrPortFrom(netip.MustParseAddr(v.Address.String()), v.Port).String()
		fmt.Fprintf(&out, "-A %s -s %s", at, v.Scheduler)
		if v.Flags&ipvsPersistent != 0 {
			fmt.Fprintf(&out, " -p %d", v.Timeout)
		}
		out.WriteByte('\n')
		for _, r := range f.Destinations[key] {
			fmt.Fprintf(&out, "-a %s -r %s -m -w %d\n", at, netip.AddrPortFrom(netip.MustParseAddr(r.Address.String()), r.Port), r.Weight)
		}
	}
	return out.Bytes()
}

// savedSets writes what the fake ipset has as ipset save does.
func savedSets(f *fakeipset.FakeIPSet, v6 bool) []byte {
	family := "inet"
	if v6 {
		family = "inet6"
	}
	var out bytes.Buffer
	for name, s := range f.Sets {
		fmt.Fprintf(&out, "create %s %s", name, s.SetType)
		if s.SetType == "bitmap:port" { // of which kube-proxy leaves the range to ipset
			out.WriteString(" range 0-65535\n")
		} else {
			fmt.Fprintf(&out, " family %s hashsize 1024 maxelem 65536\n", family)
		}
		for e := range f.Entries[name] {
			fmt.Fprintf(&out, "add %s %s\n", name, e)
		}
	}
	return out.Bytes()
}
