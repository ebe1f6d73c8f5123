// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sliceAddressType is the address type of the EndpointSlices of a family.
var sliceAddressType = [2]discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}

// duplicateRule tells which of several entries for the same address and port is used (pkg/proxy/endpointslicecache.go,
// addEndpoints). EndpointSlices are processed in no fixed order.
type duplicateRule uint8

const (
	// lastRunning: the last one that is not terminating, else the first (from 1.36 on, kubernetes/kubernetes#135593).
	lastRunning duplicateRule = 1 << iota
	// lastLocal: the last one on this node, else the first (before).
	lastLocal
)

// duplicateRuleOf returns the rule of a minor version; both where a patch release may have changed it.
func duplicateRuleOf(minor int) duplicateRule {
	switch {
	case minor >= 36:
		return lastRunning
	case minor <= 33: // of which no patch release is to come
		return lastLocal
	}
	return lastRunning | lastLocal
}

// indexSlices sorts EndpointSlices by Service, and by name within one.
func indexSlices(all []*discoveryv1.EndpointSlice) map[types.NamespacedName][]*discoveryv1.EndpointSlice {
	index := make(map[types.NamespacedName][]*discoveryv1.EndpointSlice, len(all))
	backing := make([]*discoveryv1.EndpointSlice, len(all)) // one array for the many lists of one
	for i, s := range all {
		key := ServiceOf(s)
		if key.Name == "" {
			continue
		}
		l := index[key]
		if l == nil {
			backing[i] = s
			index[key] = backing[i : i+1 : i+1]
			continue
		}
		at, _ := slices.BinarySearchFunc(l, s,
			func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
		index[key] = slices.Insert(l, at, s)
	}
	return index
}

// hidden tells whether kube-proxy's informers do not select an EndpointSlice (cmd/kube-proxy/app/server.go, Run).
func (f *features) hidden(s *discoveryv1.EndpointSlice) bool {
	if _, ok := s.Labels[labelServiceProxyName]; ok && f.oneSelector {
		return true
	}
	_, ok := s.Labels[labelHeadless]
	return ok
}

// MayBeHidden tells whether the informers of some version of kube-proxy do not select an EndpointSlice.
func MayBeHidden(s *discoveryv1.EndpointSlice) bool { return (&features{oneSelector: true}).hidden(s) }

// collection is the endpoints of one Service port in one family.
type collection struct {
	endpoints []Endpoint
	// unsure is the reason why it is not certain which of several entries for an address is used; empty when it is.
	unsure string
	// allowed is every list that kube-proxy may have made of them, where there is more than one; nil also where there are
	// too many to try.
	allowed [][]Endpoint
}

// collect reads the endpoints of a port out of the Service's EndpointSlices; with all also out of those that
// kube-proxy's informers do not select. A nil port takes every address, with port 0.
func (n *Node) collect(name types.NamespacedName, port *corev1.ServicePort, family int, all bool) collection {
	type part struct {
		number uint16
		from   int // the index of the slice
	}
	var parts []part
	room, lists := 0, n.in.Index.slices[name]
	for i, s := range lists {
		if s.AddressType != sliceAddressType[family] || !all && n.features.hidden(s) {
			continue
		}
		if port == nil {
			parts, room = append(parts, part{0, i}), room+len(s.Endpoints)
			continue
		}
		for j := range s.Ports {
			if number, ok := matches(&s.Ports[j], port); ok {
				parts, room = append(parts, part{number, i}), room+len(s.Endpoints)
			}
		}
	}
	eps := make([]Endpoint, 0, room)
	from := make([]int, 0, room) // the index of the slice that an entry is from
	for _, p := range parts {
		eps, from = n.appendEndpoints(eps, from, lists[p.from], p.number, p.from)
	}
	distinct := true
	sorted := true
	for i := 1; i < len(eps); i++ {
		c := eps[i-1].Address.Compare(eps[i].Address)
		sorted = sorted && c <= 0
		distinct = distinct && c < 0
	}
	if sorted && distinct {
		return collection{endpoints: eps}
	}
	return n.merge(eps, from)
}

// matches tells whether a port of an EndpointSlice is that of a Service port: by name and protocol. A port without name
// or number is ignored (pkg/proxy/endpointslicecache.go, endpointInfoByServicePort).
func matches(p *discoveryv1.EndpointPort, port *corev1.ServicePort) (number uint16, ok bool) {
	if p.Name == nil || *p.Name != port.Name || p.Port == nil || *p.Port <= 0 || *p.Port > 65535 {
		return 0, false
	}
	protocol := corev1.ProtocolTCP
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	return uint16(*p.Port), protocol == protocolOf(port.Protocol)
}

func protocolOf(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

func (n *Node) appendEndpoints(
	eps []Endpoint, from []int, s *discoveryv1.EndpointSlice, port uint16, at int,
) ([]Endpoint, []int) {
	names := []string{s.Name}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		a, ok := kubeproxy.ParseAddr(e.Addresses[0])
		if !ok {
			continue
		}
		eps, from = append(eps, n.endpoint(s, e, netip.AddrPortFrom(a, port), names)), append(from, at)
	}
	return eps, from
}

// IsReady tells whether an endpoint is ready, which it is where nothing is said (EndpointConditions in
// k8s.io/api/discovery/v1).
func IsReady(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

func (n *Node) endpoint(
	s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, a netip.AddrPort, names []string,
) Endpoint {
	out := Endpoint{
		Address:     a,
		Slices:      names,
		Ready:       IsReady(e),
		Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}
	if e.NodeName != nil {
		out.Node = *e.NodeName
		out.Local = out.Node != "" && out.Node == n.name
	}
	if e.Zone != nil {
		out.Zone = *e.Zone
	}
	if t := e.TargetRef; t != nil && t.Kind == "Pod" {
		namespace := t.Namespace
		if namespace == "" {
			namespace = s.Namespace
		}
		out.Pod = namespace + "/" + t.Name
	} else if n.in.PodNames != nil {
		out.Pod = n.in.PodNames[a.Addr()]
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.HintZones = append(out.HintZones, z.Name)
		}
		for _, z := range e.Hints.ForNodes {
			out.HintNodes = append(out.HintNodes, z.Name)
		}
	}
	return out
}

// merge sorts entries by address and keeps one for each.
func (n *Node) merge(eps []Endpoint, from []int) collection {
	order := make([]int, len(eps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return eps[a].Address.Compare(eps[b].Address) })
	out := collection{endpoints: make([]Endpoint, 0, len(eps))}
	for i := 0; i < len(order); {
		j := i + 1
		for j < len(order) && eps[order[j]].Address == eps[order[i]].Address {
			j++
		}
		e, sure := n.choose(eps, from, order[i:j])
		if !sure && out.unsure == "" {
			out.unsure = e.Address.String() + " is listed more than once in EndpointSlice " + strings.Join(e.Slices, ", ") +
				" with different conditions; which entry kube-proxy uses depends on its version and on chance"
		}
		out.endpoints = append(out.endpoints, e)
		i = j
	}
	if out.unsure != "" {
		out.allowed = n.allowedLists(eps, from, order, out.endpoints)
	}
	return out
}

// choose returns the entry that is used among several for one address, and whether no other may be used instead.
func (n *Node) choose(eps []Endpoint, from, group []int) (Endpoint, bool) {
	if len(group) == 1 {
		return eps[group[0]], true
	}
	var may []int
	if n.features.duplicates&lastRunning != 0 {
		may = candidates(eps, from, group, func(e *Endpoint) bool { return !e.Terminating })
	}
	if n.features.duplicates&lastLocal != 0 {
		may = append(may, candidates(eps, from, group, func(e *Endpoint) bool { return e.Local })...)
	}
	best := may[0]
	for _, i := range may {
		if eps[i].Ready && !eps[best].Ready {
			best = i
		}
	}
	sure := !slices.ContainsFunc(may, func(i int) bool { return !equivalent(&eps[i], &eps[best]) })
	e := eps[best]
	e.Slices = nil
	for _, i := range group {
		if name := eps[i].Slices[0]; !slices.Contains(e.Slices, name) {
			e.Slices = append(e.Slices, name)
		}
	}
	return e, sure
}

// candidates returns the entries that may be used: of every slice the last preferred one, since any of the slices may
// be processed last; if none is preferred, the first of every slice, since any may be processed first.
func candidates(eps []Endpoint, from, group []int, preferred func(*Endpoint) bool) []int {
	var last, first []int
	for _, i := range group {
		if len(first) == 0 || from[first[len(first)-1]] != from[i] {
			first = append(first, i)
		}
		if !preferred(&eps[i]) {
			continue
		}
		if len(last) > 0 && from[last[len(last)-1]] == from[i] {
			last[len(last)-1] = i
			continue
		}
		last = append(last, i)
	}
	if len(last) > 0 {
		return last
	}
	return first
}

// equivalent tells whether kube-proxy programs the same for either of two entries.
func equivalent(a, b *Endpoint) bool {
	return a.Ready == b.Ready && a.Serving == b.Serving && a.Terminating == b.Terminating && a.Local == b.Local &&
		slices.Equal(a.HintZones, b.HintZones) && slices.Equal(a.HintNodes, b.HintNodes)
}
