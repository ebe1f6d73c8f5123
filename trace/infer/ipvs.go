// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// ofIPVS reads the rules and the virtual servers of ipvs mode (pkg/proxy/ipvs/proxier.go, syncProxyRules and
// writeIptablesRules).
func (in *Input) ofIPVS() []Fact {
	var families [2]*masquerade
	var ports [2]served
	for i, f := range nodestate.Families {
		families[i] = newMasquerade()
		for _, t := range in.natTables(f) {
			families[i].ofServices(t.Chain(kubeproxy.ChainServices), f)
		}
		ports[i] = in.servers(f)
	}
	return append(in.localFacts(families), in.nodePortFact(ports, nil), in.scheduler(), in.strictARP())
}

// ofServices reads the rule of the chain of all Services that asks for masquerade of packets to cluster IPs. It matches
// the set by destination; where kube-proxy recognises no pods, by the source.
func (m *masquerade) ofServices(c *netfilter.Chain, f netfilter.Family) {
	set := kubeproxy.IPVSSetName(kubeproxy.IPVSSetClusterIP, f == netfilter.IPv6)
	for _, r := range c.Rules {
		_, flags, ok := strings.Cut(r.Text, "--match-set "+set+" ")
		if !ok || r.Target != kubeproxy.ChainMarkMasq {
			continue
		}
		m.explicit = true
		if strings.HasPrefix(flags, "src") {
			m.by[local{}] += enough // the form of that configuration alone
			m.all[false]++
			return
		}
		m.marked(localOf(r, true))
		return
	}
}

// servers reads at which of the node's addresses NodePorts have virtual servers.
func (in *Input) servers(f netfilter.Family) served {
	at := map[NodePort][]netip.Addr{}
	for i := range in.State.Virtual {
		v := &in.State.Virtual[i]
		k := NodePort{v.Protocol, v.Address.Port()}
		if v.Address.IsValid() && netfilter.FamilyOf(v.Address.Addr()) == f && slices.Contains(in.NodePorts, k) &&
			in.ofNode(v.Address.Addr()) {
			at[k] = append(at[k], v.Address.Addr())
		}
	}
	shapes := counts[string]{}
	lists := map[string][]netip.Addr{}
	for _, list := range at {
		slices.SortFunc(list, netip.Addr.Compare)
		key := fmt.Sprint(list)
		shapes[key]++
		lists[key] = list
	}
	key, votes, all := shapes.most(byText)
	var out served
	if !agree(votes, all) {
		return out
	}
	out.rule = true
	for _, a := range lists[key] {
		out.at(a)
	}
	out.all = in.everyAddress(lists[key], f)
	return out
}

// own are the node's addresses of a family at which ipvs mode serves NodePorts where nodePortAddresses leaves out none:
// not those of Services, nor loopback and link-local ones (pkg/proxy/ipvs/util, GetAllLocalAddressesExcept).
func (in *Input) own(f netfilter.Family) []netip.Addr {
	services := in.State.Host.AddressesOn(kubeproxy.IPVSDevice)
	return slices.DeleteFunc(slices.Clone(in.State.Host.Addresses()), func(a netip.Addr) bool {
		return netfilter.FamilyOf(a) != f || a.IsLoopback() || a.IsLinkLocalUnicast() || slices.Contains(services, a)
	})
}

func (in *Input) ofNode(a netip.Addr) bool {
	return in.State.Host.Addresses() == nil || slices.Contains(in.own(netfilter.FamilyOf(a)), a)
}

func (in *Input) everyAddress(list []netip.Addr, f netfilter.Family) bool {
	own := in.own(f)
	return len(own) > 0 && !slices.ContainsFunc(own, func(a netip.Addr) bool { return !slices.Contains(list, a) })
}

// scheduler reads by which scheduler the virtual servers distribute connections: kube-proxy gives all of them the same.
func (in *Input) scheduler() Fact {
	t := counts[string]{}
	for i := range in.State.Virtual {
		if v := &in.State.Virtual[i]; v.Address.IsValid() {
			t[v.Scheduler]++
		}
	}
	name, votes, all := t.most(byText)
	out := Fact{Setting: kubeproxy.IPVSScheduler, Detail: ofAll(votes, all, "virtual servers")}
	if all == 0 {
		return out
	}
	out.Allowed = []kubeproxy.Config{{Scheduler: name}}
	if out.Known = agree(votes, all) && (votes >= enough || votes == all && name == defaultScheduler); out.Known {
		return out
	}
	for _, other := range append(sortedKeys(t), defaultScheduler, anyOtherScheduler) {
		if !slices.ContainsFunc(out.Allowed, func(c kubeproxy.Config) bool { return c.Scheduler == other }) {
			out.Allowed = append(out.Allowed, kubeproxy.Config{Scheduler: other})
		}
	}
	return out
}

// The scheduler that kube-proxy uses unless it is told otherwise, and one that it may have been told.
const (
	defaultScheduler  = "rr"
	anyOtherScheduler = "lc"
)

// strictARP reads the settings that strictARP makes (NewProxier): kube-proxy leaves them alone without it.
func (in *Input) strictARP() Fact {
	ignore, ok := in.State.Host.Sysctl("net/ipv4/conf/all/arp_ignore")
	announce, ok2 := in.State.Host.Sysctl("net/ipv4/conf/all/arp_announce")
	out := Fact{Setting: kubeproxy.StrictARP}
	if !ok || !ok2 {
		return out
	}
	out.Detail = "net.ipv4.conf.all.arp_ignore=" + ignore + ", arp_announce=" + announce
	// Others may have made the settings, but without them it is off.
	if out.Known = ignore != "1" || announce != "2"; out.Known {
		out.Allowed = []kubeproxy.Config{{}}
	}
	return out
}
