// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Result counts what was compared.
type Result struct {
	Services, Frontends, Paths int
	Unsure                     int // paths whose expectation says that it depends on chance; they are not compared
	Judged                     int // paths that were judged
	Silent, SilentUnknown      int // that were judged without kube-proxy's words, and those that name an unknown value
	Actions                    map[expect.Action]int
	Differences                []string
}

// Add adds up.
func (r *Result) Add(o Result) {
	r.Services += o.Services
	r.Frontends += o.Frontends
	r.Paths += o.Paths
	r.Unsure += o.Unsure
	r.Judged += o.Judged
	r.Silent, r.SilentUnknown = r.Silent+o.Silent, r.SilentUnknown+o.SilentUnknown
	r.Differences = append(r.Differences, o.Differences...)
	if r.Actions == nil {
		r.Actions = map[expect.Action]int{}
	}
	for a, n := range o.Actions {
		r.Actions[a] += n
	}
}

// checker walks packets through kube-proxy's rules of one cluster.
type checker struct {
	w      *Cluster
	exp    *expect.Node
	net    *host.Network
	walker *netfilter.Walker
	// virtual are the virtual servers of ipvs mode.
	virtual []ipvs.VirtualServer
	res     Result
}

// Check compares the expectation for a cluster with the rules that kube-proxy wrote for it.
func Check(w *Cluster, r Rules) (Result, error) {
	state, err := nodestate.Load(snapshot.NewNode(nodeName, w.Files(r)))
	if err != nil {
		return Result{}, err
	}
	in := w.Inputs()
	in.Layout = state.Layout()
	c := &checker{
		w: w, exp: expect.New(in), net: state.Host, virtual: state.Virtual,
		walker: judge.NewWalker(state, state.Host),
	}
	c.res.Actions = map[expect.Action]int{}
	for _, s := range w.Services {
		c.service(s)
	}
	c.judge(r)
	c.silent(r)
	return c.res, nil
}

func (c *checker) differ(format string, args ...any) {
	c.res.Differences = append(c.res.Differences, fmt.Sprintf("seed %d: ", c.w.Seed)+fmt.Sprintf(format, args...))
}

func (c *checker) service(s *corev1.Service) {
	c.res.Services++
	fs := c.exp.Frontends(s)
	have := map[expect.Frontend]bool{}
	for _, f := range fs {
		if have[f] {
			c.differ("%v listed twice", f)
		}
		have[f] = true
		c.frontend(s, f)
	}
	for _, f := range c.others(s) {
		if !have[f] {
			c.frontend(s, f)
		}
	}
}

// others returns every frontend that a user may ask for, whether kube-proxy serves it or not.
func (c *checker) others(s *corev1.Service) []expect.Frontend {
	var out []expect.Frontend
	for _, p := range s.Spec.Ports {
		f := expect.Frontend{Service: nameOf(s), PortName: p.Name, Protocol: p.Protocol}
		add := func(kind expect.FrontendKind, address string, port int32) {
			if a, err := netip.ParseAddr(address); err == nil && port != 0 {
				f.Kind, f.Address, f.Port = kind, a, uint16(port) //nolint:gosec // a port
				out = append(out, f)
			}
		}
		for _, ip := range s.Spec.ClusterIPs {
			add(expect.ClusterIP, ip, p.Port)
		}
		for _, l := range c.w.links {
			for _, a := range l.addresses {
				if a.Bits() < a.Addr().BitLen() { // not those that are load-balancer IPs
					add(expect.NodePort, a.Addr().String(), p.NodePort)
				}
			}
		}
		for _, ip := range s.Spec.ExternalIPs {
			add(expect.ExternalIP, ip, p.Port)
		}
		for _, ing := range s.Status.LoadBalancer.Ingress {
			add(expect.LoadBalancerIP, ing.IP, p.Port)
		}
	}
	return out
}

func (c *checker) frontend(s *corev1.Service, f expect.Frontend) {
	c.res.Frontends++
	for _, o := range c.origins(s, f) {
		c.path(f, o)
	}
}

// origins returns everybody who may send to a frontend: a pod, every local endpoint, the node, strangers, another node,
// a pod of another node, and those at the edges of each source range.
func (c *checker) origins(s *corev1.Service, f expect.Frontend) []expect.Origin {
	node := expect.Origin{Kind: expect.FromNode, Address: netfilter.SourceFor(c.net, protocolNumber(f.Protocol),
		netip.AddrPortFrom(f.Address, f.Port))}
	if f.Address.IsLoopback() {
		return []expect.Origin{node}
	}
	list := func(four, six string) netip.Addr {
		if f.Address.Is4() {
			return netip.MustParseAddr(four)
		}
		return netip.MustParseAddr(six)
	}
	outside := func(a netip.Addr) expect.Origin {
		return expect.Origin{Kind: expect.FromExternal, Address: a, Iface: "eth0"}
	}
	pod := func(a netip.Addr) expect.Origin {
		return expect.Origin{Kind: expect.FromPod, Address: a, Iface: "cni0"}
	}
	out := []expect.Origin{
		node, pod(list("10.244.1.250", "fd00:10:244:1::250")),
		outside(list("203.0.113.9", "2001:db8:ff::9")), outside(list("192.168.0.2", "fd00:192::2")),
		outside(list("10.244.2.250", "fd00:10:244:2::250")),
	}
	family := corev1.IPv4Protocol
	if f.Address.Is6() {
		family = corev1.IPv6Protocol
	}
	for i := range s.Spec.Ports {
		if s.Spec.Ports[i].Name != f.PortName {
			continue
		}
		for _, e := range c.exp.Endpoints(f.Service, &s.Spec.Ports[i], family) {
			if local, _ := c.net.Local(e.Address.Addr()); e.Local && !local {
				out = append(out, pod(e.Address.Addr()))
			}
		}
	}
	if f.Kind == expect.LoadBalancerIP {
		for _, r := range s.Spec.LoadBalancerSourceRanges {
			p, err := netip.ParsePrefix(strings.TrimSpace(r))
			if err != nil || p.Addr().Is4() != f.Address.Is4() || p.Bits() == 0 {
				continue
			}
			for _, a := range neighbours(p) {
				if local, _ := c.net.Local(a); !local {
					out = append(out, outside(a))
				}
			}
		}
	}
	return out
}

func protocolNumber(p corev1.Protocol) uint8 {
	return map[corev1.Protocol]uint8{
		corev1.ProtocolTCP: netfilter.TCP, corev1.ProtocolUDP: netfilter.UDP, corev1.ProtocolSCTP: netfilter.SCTP,
	}[p]
}

func (c *checker) walk(f expect.Frontend, o expect.Origin, listed string, steps bool) netfilter.Result {
	s := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
		Family: netfilter.FamilyOf(f.Address), Proto: protocolNumber(f.Protocol), Src: o.Address, Dst: f.Address,
		DstPort: f.Port, In: o.Iface,
	}}
	if o.Kind == expect.FromNode {
		s.Hook = netfilter.Output
	}
	return c.walker.Walk(s, netfilter.Options{Listed: listed, Steps: steps})
}

func (c *checker) path(f expect.Frontend, o expect.Origin) {
	c.res.Paths++
	want := c.exp.Path(f, o)
	if want.Unsure != "" {
		c.res.Unsure++
		return
	}
	c.res.Actions[want.Action]++
	if !want.Action.ReachesEndpoint() && (want.Reason == "" || want.Why == "") {
		c.differ("%v from %v: %s without reason", f, o, want.Action)
	}
	res := c.walk(f, o, "", false)
	if len(res.Uncertain) > 0 {
		c.differ("%v from %v: the walk is not certain: %v", f, o, res.Uncertain)
		return
	}
	if problem := c.compare(&want, res.Outcomes); problem != "" {
		c.differ("%v from %v: %s\n\twant %s %v masquerade %q (%s)\n\tgot  %s", f, o, problem, want.Action,
			addresses(want.Endpoints), want.Masquerade, want.Why, outcomes(res.Outcomes))
	}
}

func (c *checker) compare(want *expect.Path, got []netfilter.Outcome) string {
	shares := map[netip.AddrPort]float64{}
	for i := range got {
		o := &got[i]
		switch {
		case o.P <= 0:
			continue
		case o.Packet.DNAT && (want.Action == expect.DNAT || o.End == netfilter.Sent || o.End == netfilter.Delivered):
			if want.Action != expect.DNAT {
				return "it is translated"
			}
			to := netip.AddrPortFrom(o.Packet.Dst, o.Packet.DstPort)
			shares[to] += o.P
			if problem := c.translated(want, o, to); problem != "" {
				return problem
			}
			continue
		case want.Action == expect.DNAT:
			return "it is not translated"
		}
		end := map[expect.Action]netfilter.End{expect.Reject: netfilter.Rejected, expect.Drop: netfilter.Dropped}
		if e, ok := end[want.Action]; ok && o.End != e {
			return "it is " + o.End.String()
		}
		if want.Action == expect.Proxy && o.End != netfilter.Delivered {
			return "it does not come to kube-proxy: it is " + o.End.String()
		}
		if want.Action == expect.None && (o.End == netfilter.Rejected || o.End == netfilter.Dropped) &&
			!untranslated(want, o) {
			return "it is " + o.End.String()
		}
	}
	if want.Action != expect.DNAT {
		return ""
	}
	fixed := !slices.ContainsFunc(got, func(o netfilter.Outcome) bool { return o.Packet.Scheduled != "" })
	if len(shares) != len(want.Endpoints) {
		return "other endpoints"
	}
	for i := range want.Endpoints {
		if fixed && math.Abs(shares[want.Endpoints[i].Address]-1/float64(len(want.Endpoints))) > 1e-4 {
			return fmt.Sprintf("%s has share %.6f", want.Endpoints[i].Address, shares[want.Endpoints[i].Address])
		}
	}
	return ""
}

// untranslated tells whether nftables mode has refused a packet to a cluster IP that nobody has translated: it does so
// with every address of the cluster's Service network, whoever serves it.
func untranslated(want *expect.Path, o *netfilter.Outcome) bool {
	return want.Frontend.Kind == expect.ClusterIP && o.Where.Chain != nil && o.Where.Chain.Name == "cluster-ips-check"
}

// translated compares the masquerade and the affinity of a packet that reaches an endpoint.
func (c *checker) translated(want *expect.Path, o *netfilter.Outcome, to netip.AddrPort) string {
	if o.End != netfilter.Sent && o.End != netfilter.Delivered {
		return "translated to " + to.String() + ", but " + o.End.String()
	}
	due := want.Masquerade == expect.MasqAlways ||
		want.Masquerade == expect.MasqHairpin && want.Origin.Address == to.Addr()
	inside := o.End == netfilter.Delivered && !o.Packet.Local // never passes POSTROUTING
	switch {
	case want.Masquerade == expect.MasqUnknown:
		return "the masquerade is not known"
	case !inside && due != o.Packet.SNAT:
		return fmt.Sprintf("masquerade to %s is %v", to, o.Packet.SNAT)
	case want.Masquerade == expect.MasqNever && want.Origin.Address == to.Addr():
		return "Never, though the origin is an endpoint"
	}
	if o.Packet.Virtual.IsValid() {
		return c.persistent(want)
	}
	if (want.AffinitySeconds != 0) != (o.Packet.Recent != "") {
		return fmt.Sprintf("affinity is %d seconds, and the client is remembered in %q", want.AffinitySeconds,
			o.Packet.Recent)
	}
	if want.AffinitySeconds == 0 {
		return ""
	}
	back := c.walk(want.Frontend, want.Origin, o.Packet.Recent, true)
	for _, b := range back.Outcomes {
		if b.P > 0 && netip.AddrPortFrom(b.Packet.Dst, b.Packet.DstPort) != to {
			return "a returning client does not get back to " + to.String()
		}
	}
	for i := range back.Steps {
		if s := &back.Steps[i]; s.Asked.Name != "" && int64(s.Asked.Seconds) == int64(want.AffinitySeconds) {
			return ""
		}
	}
	return fmt.Sprintf("no rule remembers for %d seconds", want.AffinitySeconds)
}

func addresses(eps []expect.Endpoint) []string {
	out := make([]string, len(eps))
	for i := range eps {
		out[i] = eps[i].Address.String()
	}
	return out
}

func outcomes(os []netfilter.Outcome) string {
	out := make([]string, 0, len(os))
	for i := range os {
		o := &os[i]
		out = append(out, fmt.Sprintf("%s %s:%d dnat=%v snat=%v p=%.4f %s", o.End, o.Packet.Dst, o.Packet.DstPort,
			o.Packet.DNAT, o.Packet.SNAT, o.P, o.Where))
	}
	return strings.Join(out, "; ")
}

// keepsItsSource tells whether the node sends packets to a NodePort at an address that other nodes may not send answers
// to, with that as their source: in ipvs mode kube-proxy masquerades none with traffic policy Local.
func keepsItsSource(p *report.Path) bool {
	return p.Verdict == report.Unknown && p.Frontend.Kind == string(expect.NodePort) &&
		p.Origin.Kind == string(expect.FromNode) && p.Origin.Address == p.Frontend.Address &&
		!slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code != judge.AnswerNotEvaluated })
}

// judge requires that the judgement of the node finds nothing.
func (c *checker) judge(r Rules) {
	cluster, node := c.w.Snapshot(r)
	got := judge.Files(cluster, node, judge.Request{Backwards: true, Matching: true, PerPathService: true})
	if got.Error != "" {
		c.differ("judged: %s", got.Error)
	}
	for _, f := range got.Findings {
		if f.Severity != report.Info && !risks[f.Code] {
			c.differ("judged, node: %s %s: %s; expected %s, actual %s; %v", f.Code, f.Subject, f.Message, f.Expected,
				f.Actual, f.Evidence)
		}
	}
	for i := range got.Paths {
		p := &got.Paths[i]
		c.res.Judged++
		if p.Verdict == report.Match || p.Verdict == report.ByDesign {
			continue
		}
		want, ok := c.expected(p)
		if ok && (want.Unsure != "" || p.Verdict == report.Warning && want.Reason == expect.ReasonKubeProxyBug) ||
			keepsItsSource(p) {
			continue
		}
		for _, f := range p.Findings {
			c.differ("judged, %s %v %v from %v: %s %s %s: %s; expected %s, actual %s", p.Verdict, p.Service, p.Frontend,
				p.Origin, f.Severity, f.Code, f.Subject, f.Message, f.Expected, f.Actual)
		}
		if len(p.Findings) == 0 {
			c.differ("judged, %s %v %v from %v without finding", p.Verdict, p.Service, p.Frontend, p.Origin)
		}
	}
}

// risks are the findings about what the API's objects and kube-proxy's configuration risk by themselves: random
// clusters have all of it.
var risks = map[string]bool{
	judge.HintsIgnored: true, judge.NodePortsExposed: true, judge.NodePortClash: true, judge.NodeAddressCaptured: true,
}

// expected returns the expectation for a path of a report; ok is false where the report names no address.
func (c *checker) expected(p *report.Path) (want expect.Path, ok bool) {
	f := expect.Frontend{
		PortName: p.Frontend.PortName, Kind: expect.FrontendKind(p.Frontend.Kind),
		Port:     uint16(p.Frontend.Port), //nolint:gosec // a port
		Protocol: corev1.Protocol(p.Frontend.Protocol),
	}
	if p.Service != nil {
		f.Service.Namespace, f.Service.Name = p.Service.Namespace, p.Service.Name
	}
	var err error
	if f.Address, err = netip.ParseAddr(p.Frontend.Address); err != nil {
		return want, false
	}
	o := expect.Origin{Kind: expect.OriginKind(p.Origin.Kind)}
	o.Address, _ = netip.ParseAddr(p.Origin.Address)
	return c.exp.Path(f, o), true
}
