// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// ipvsSysctls are the settings below net/ipv4/vs that virtual servers need, with the values that kube-proxy sets
// (NewProxier in pkg/proxy/ipvs/proxier.go): connections are tracked by connection tracking, without which their source
// cannot be translated, and a connection whose real server has been removed ends instead of timing out.
var ipvsSysctls = map[string]string{"conntrack": "1", "expire_nodest_conn": "1"}

// IPVS is the state before a plan of ipvs mode was programmed, as far as undoing needs it.
type IPVS struct {
	Servers []Served `json:"servers"`
	// Sysctls are the earlier values of the settings below net/ipv4/vs that had to be changed.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// KubeDevice says that kube-proxy's interface existed before. Taken are the addresses of the plan that it had.
	KubeDevice bool         `json:"kubeDevice,omitempty"`
	Taken      []netip.Addr `json:"taken,omitempty"`
	// Applied says that all virtual servers were set to After: one that differs has been changed by another program. Until
	// then, and after undoing has begun, each may be in any state between Before and After.
	Applied bool `json:"applied,omitempty"`
}

// values are those of sysctls.
var values = lazyregexp.New(`^\d{1,10}$`)

// check returns what is wrong with what a record says of a plan's virtual servers: that it speaks of others, or of
// other settings.
func (i *IPVS) check(p, earlier *plan.Plan) error {
	for name, value := range i.Sysctls {
		if ipvsSysctls[name] == "" || !values().MatchString(value) {
			return fmt.Errorf("%.40q = %.20q is not a setting of IPVS that is changed", name, value)
		}
	}
	has := func(p *plan.Plan, k serverKey) bool {
		return p != nil && slices.ContainsFunc(p.Frontends, func(f plan.Frontend) bool {
			return serverKey{f.Protocol, f.Address} == k
		})
	}
	for n := range i.Servers {
		s := &i.Servers[n]
		k := s.After.key()
		// One that an update has dropped is not used any more after it.
		dropped := s.Gone && (earlier == nil || has(earlier, k))
		if !dropped && (s.Gone || !has(p, k)) || s.Before != nil && s.Before.key() != k {
			return fmt.Errorf("the virtual server %s/%.10s belongs to no frontend of the plan", k.address, k.protocol)
		}
	}
	return nil
}

// Served is a frontend's virtual server.
type Served struct {
	// Before is nil where there was none.
	Before *VirtualServer `json:"before,omitempty"`
	After  VirtualServer  `json:"after"`
	// Gone says that an update has no such frontend any more. Before is restored.
	Gone bool `json:"gone,omitempty"`
	// Left says that undoing found that another program has changed it. It is not changed.
	Left bool `json:"left,omitempty"`
}

// VirtualServer is a virtual server of the kernel, with everything that is needed to restore it.
type VirtualServer struct {
	Protocol  string         `json:"protocol"`
	Address   netip.AddrPort `json:"address"`
	Scheduler string         `json:"scheduler"`
	Flags     uint32         `json:"flags,omitempty"`   // IP_VS_SVC_F_…, without those that are the kernel's own
	Timeout   uint32         `json:"timeout,omitempty"` // of persistence, in seconds
	// Netmask groups clients for persistence: for IPv4 a mask in network byte order, for IPv6 a prefix length.
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

// serve returns the virtual server for a frontend. Real servers of before that are not endpoints of it are kept with
// weight 0: their connections continue, and the order is the same when their weights are restored.
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
	for _, e := range f.ForOthers.Endpoints {
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
	// A connection whose hash selects a real server of weight 0 is to go to another one (ip_vs_sh_schedule).
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

// settings returns the virtual server without its real servers.
func (v *VirtualServer) settings() VirtualServer {
	s := *v
	s.Reals = nil
	return s
}

// equal tells whether two virtual servers are the same, apart from the order of their real servers.
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

// next returns the record for programming a plan. i is that of the plan's earlier state, or empty; now are the existing
// virtual servers of its frontends. A virtual server that another program has changed since counts as the state before.
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

// ours tells whether the existing virtual server is in a state that this program has set. settled says that it has been
// programmed, and undoing has not begun; otherwise the state may be anything between Before and After, and between
// those of the plan that an update replaces.
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
			return f.Address == now.Address && f.Protocol == now.Protocol && slices.Contains(f.ForOthers.Endpoints, r.Address)
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

// oneServer returns why a frontend cannot be one virtual server, which treats all clients the same; "" if it can.
func (l *layout) oneServer(e *entry) string {
	f := &l.fronts[e.front]
	byPod := f.byPod
	if f.pods == nil {
		byPod = f.byOthers
	}
	const why = ", and a virtual server sends all clients to the same endpoints: another --mode can distinguish them"
	switch {
	case e.Address.Addr().IsLoopback():
		return plan.NoLoopbackInIPVS
	case f.byOthers.pool < 0 && f.byNode.pool < 0 && byPod.pool < 0:
		return "no client is to be allowed"
	case f.byOthers.pool < 0 || f.byNode.pool < 0 || byPod.pool < 0:
		return "packets of some clients are to be dropped" + why
	case f.byOthers.pool != f.byNode.pool || f.byNode.pool != byPod.pool:
		return "pods, the node and others are to be sent to different endpoints" + why
	}
	return ""
}
