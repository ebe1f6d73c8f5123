// SPDX-License-Identifier: Apache-2.0

package program

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// ipvsSysctls are the settings that virtual servers need, below net/ipv4/vs, and their values, which are kube-proxy's
// (pkg/proxy/ipvs/proxier.go, NewProxier): connections are left to connection tracking, without which their source
// cannot be translated; one whose real server has been removed is not sent into the void until it times out.
var ipvsSysctls = map[string]string{"conntrack": "1", "expire_nodest_conn": "1"}

// IPVS is what undoing has to know of the virtual servers of a plan, and of the node.
type IPVS struct {
	Servers []Served `json:"servers"`
	// Sysctls are settings of net/ipv4/vs that were not as they have to be, and their values before.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// KubeDevice: kube-proxy's interface was there before. Taken are addresses of the plan that it had.
	KubeDevice bool         `json:"kubeproxy.IPVSDevice,omitempty"`
	Taken      []netip.Addr `json:"taken,omitempty"`
	// Applied says that all virtual servers were made as After says: one that is otherwise now was changed by somebody
	// else. Until then, and once undoing has begun, one may be on its way from the one state to the other.
	Applied bool `json:"applied,omitempty"`
}

// Served is a frontend's virtual server.
type Served struct {
	// Before is nil where there was none.
	Before *VirtualServer `json:"before,omitempty"`
	After  VirtualServer  `json:"after"`
	// Gone: an update has no such frontend any more. What there was before is put there again.
	Gone bool `json:"gone,omitempty"`
	// Left: undoing has found that somebody else has changed it since. It stays as it is.
	Left bool `json:"left,omitempty"`
}

// VirtualServer is a virtual server of the kernel's, as far as it can be told to be so again.
type VirtualServer struct {
	Protocol  string         `json:"protocol"`
	Address   netip.AddrPort `json:"address"`
	Scheduler string         `json:"scheduler"`
	Flags     uint32         `json:"flags,omitempty"`   // IP_VS_SVC_F_…, without those that are the kernel's own
	Timeout   uint32         `json:"timeout,omitempty"` // of persistence, in seconds
	// of clients that persist as one: the mask as it lies in memory, of IPv6 its length
	Netmask uint32       `json:"netmask"`
	Reals   []RealServer `json:"reals,omitempty"`
}

// RealServer is one of its real servers.
type RealServer struct {
	Address netip.AddrPort `json:"address"`
	Weight  int            `json:"weight"`
	Method  uint32         `json:"method,omitempty"` // of IP_VS_CONN_F_FWD_MASK; 0: masquerading
	Upper   uint32         `json:"upper,omitempty"`  // thresholds of connections
	Lower   uint32         `json:"lower,omitempty"`
}

const (
	persistent = 0x1        // IP_VS_SVC_F_PERSISTENT
	shFallback = 0x8        // IP_VS_SVC_F_SCHED_SH_FALLBACK
	mask4      = 0xffffffff // a client is one address
	mask6      = 128
)

// serve is the virtual server that a frontend is to have. Real servers of before that are to get nothing stay, with
// weight 0: connections to them live on, and all stand in their places when their weights come back.
func serve(f *plan.Frontend, scheduler string, before *VirtualServer) VirtualServer {
	v := VirtualServer{Protocol: f.Protocol, Address: f.Address, Scheduler: scheduler, Netmask: mask4}
	if scheduler == "" {
		v.Scheduler = wire.Schedulers[wire.IPVS][0]
	}
	if f.V6() {
		v.Netmask = mask6
	}
	if f.Affinity > 0 {
		v.Flags, v.Timeout = persistent, uint32(f.Affinity)
	}
	for _, e := range f.ByOthers.Endpoints {
		if v.real(e) == nil {
			v.Reals = append(v.Reals, RealServer{Address: e, Weight: 1})
		}
	}
	if before == nil {
		return v
	}
	for _, r := range before.Reals {
		if v.real(r.Address) == nil {
			r.Weight = 0
			v.Reals = append(v.Reals, r)
		}
	}
	// What falls to a real server of weight 0 by its hash is to go to another one (ip_vs_sh_schedule).
	if v.idle() && v.Scheduler == "sh" {
		v.Flags |= shFallback
	}
	return v
}

// idle tells whether a real server gets no connections.
func (v *VirtualServer) idle() bool {
	return slices.ContainsFunc(v.Reals, func(r RealServer) bool { return r.Weight == 0 })
}

// real returns a real server by its address; nil: there is none.
func (v *VirtualServer) real(at netip.AddrPort) *RealServer {
	for i := range v.Reals {
		if v.Reals[i].Address == at {
			return &v.Reals[i]
		}
	}
	return nil
}

// settings is all but the real servers.
func (v *VirtualServer) settings() VirtualServer {
	s := *v
	s.Reals = nil
	return s
}

// equal tells whether two virtual servers are the same, in whatever order their real servers are.
func (v *VirtualServer) equal(o *VirtualServer) bool {
	a, b := v.settings(), o.settings()
	return a.key() == b.key() && a.Scheduler == b.Scheduler && a.Flags == b.Flags && a.Timeout == b.Timeout &&
		a.Netmask == b.Netmask &&
		len(v.Reals) == len(o.Reals) && !slices.ContainsFunc(v.Reals, func(r RealServer) bool {
		other := o.real(r.Address)
		return other == nil || *other != r
	})
}

// serverKey tells virtual servers apart.
type serverKey struct {
	protocol string
	address  netip.AddrPort
}

func (v *VirtualServer) key() serverKey { return serverKey{v.Protocol, v.Address} }

// served returns a frontend's; nil: there is none.
func (i *IPVS) served(k serverKey) *Served {
	for n := range i.Servers {
		if i.Servers[n].After.key() == k {
			return &i.Servers[n]
		}
	}
	return nil
}

// next is what a plan is to leave behind. now are the virtual servers at its frontends; was is what an earlier state of
// the plan left, or nil. What somebody else has changed since counts as having been there before.
func (i *IPVS) next(p *plan.Plan, scheduler string, now map[serverKey]*VirtualServer) *IPVS {
	out := &IPVS{Sysctls: i.Sysctls, KubeDevice: i.KubeDevice, Taken: i.Taken, Applied: i.Applied}
	has := map[serverKey]bool{}
	for n := range p.Frontends {
		f := &p.Frontends[n]
		k := serverKey{f.Protocol, f.Address}
		has[k] = true
		before := now[k]
		if was := i.served(k); was != nil && !was.Gone && before != nil && before.equal(&was.After) {
			before = was.Before
		}
		out.Servers = append(out.Servers, Served{Before: before, After: serve(f, scheduler, before)})
	}
	for _, was := range i.Servers {
		if !has[was.After.key()] && !was.Gone {
			was.Gone = true
			out.Servers = append(out.Servers, was)
		}
	}
	return out
}

// ours tells whether a virtual server, as it is now, is what this program has made of it. settled: making is over, and
// undoing has not begun; otherwise it may be anything between before and after, and what an update replaces.
func (s *Served) ours(now *VirtualServer, settled bool, earlier *plan.Plan) bool {
	if now == nil || s.Left {
		return false
	}
	if settled {
		return now.equal(&s.After)
	}
	known := func(r RealServer) bool {
		if s.After.real(r.Address) != nil || s.Before != nil && s.Before.real(r.Address) != nil {
			return true
		}
		return earlier != nil && slices.ContainsFunc(earlier.Frontends, func(f plan.Frontend) bool {
			return f.Address == now.Address && f.Protocol == now.Protocol && slices.Contains(f.ByOthers.Endpoints, r.Address)
		})
	}
	return !slices.ContainsFunc(now.Reals, func(r RealServer) bool { return !known(r) })
}

// vips are the addresses that a plan binds on the node: all but those of NodePorts, which the node has.
func vips(plans ...*plan.Plan) []netip.Addr {
	var out []netip.Addr
	for _, p := range plans {
		if p == nil {
			continue
		}
		for i := range p.Frontends {
			if f := &p.Frontends[i]; f.Kind != expect.NodePort {
				out = append(out, f.Address.Addr())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// oneServer says why a frontend cannot be one virtual server, which serves everybody alike; "" where it can.
func (l *layout) oneServer(e *entry) string {
	f := &l.fronts[e.front]
	byPod := f.byPod
	if f.pods == nil {
		byPod = f.byOthers
	}
	const why = ", and a virtual server sends everybody to the same endpoints: another --mode can tell them apart"
	switch {
	case e.Address.Addr().IsLoopback():
		return plan.NoLoopbackInIPVS
	case f.byOthers.pool < 0 && f.byNode.pool < 0 && byPod.pool < 0:
		return "nobody is to be let through"
	case f.byOthers.pool < 0 || f.byNode.pool < 0 || byPod.pool < 0:
		return "some senders are to be dropped" + why
	case f.byOthers.pool != f.byNode.pool || f.byNode.pool != byPod.pool:
		return "pods, the node and others are to be sent to different endpoints" + why
	}
	return ""
}
