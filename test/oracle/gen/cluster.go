// SPDX-License-Identifier: Apache-2.0

// Package gen makes random clusters and compares the project's expectation with rules that kube-proxy's own code wrote
// for them. The modules beside it bring one version of kube-proxy each.
package gen

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// Cluster is one random cluster, seen from its first node.
type Cluster struct {
	Seed     uint64
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Node     *corev1.Node
	Config   kubeproxy.Config
	// ClusterCIDR is Config.ClusterCIDRs as kube-proxy's configuration has it.
	ClusterCIDR string
	links       []link
	rng         *rand.Rand
	taken       map[string]bool // load-balancer IPs assigned so far
}

// link is an interface of the node.
type link struct {
	name      string
	addresses []netip.Prefix
}

const nodeName = "node1"

// labelProxyName leaves a Service to another proxy (pkg/proxy/apis/well_known_labels.go).
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// New makes a cluster of so many Services. The version and the mode are those of the kube-proxy, gates its feature
// gates to be set at random.
func New(seed uint64, services int, version, mode string, gates ...string) *Cluster {
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
	w := &Cluster{Seed: seed, rng: rng, taken: map[string]bool{}}
	w.node()
	w.config(version, mode, gates)
	for i := range services {
		w.service(i)
	}
	if w.oneIn(3) { // a cluster IP that is bound on the node
		if a, err := netip.ParseAddr(pick(w, w.Services...).Spec.ClusterIP); err == nil {
			w.links[0].addresses = append(w.links[0].addresses, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return w
}

func (w *Cluster) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func pick[T any](w *Cluster, list ...T) T { return list[w.rng.IntN(len(list))] }

func (w *Cluster) node() {
	w.links = []link{
		{"lo", prefixes("127.0.0.1/8", "::1/128")},
		{"eth0", prefixes("192.168.0.1/24", "fd00:192::1/64")},
		{"eth1", prefixes("172.31.7.1/24", "fd00:172::1/64")},
		{"cni0", prefixes("10.244.1.1/24", "fd00:10:244:1::1/64")},
	}
	if w.oneIn(3) { // load-balancer IPs that are bound on the node
		bound := prefixes("198.51.100.10/32", "198.51.100.11/32", "2001:db8::a/128")
		w.links[0].addresses = append(w.links[0].addresses, bound...)
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.168.0.1"},
			{Type: corev1.NodeInternalIP, Address: "fd00:192::1"},
			{Type: corev1.NodeHostName, Address: nodeName},
		}},
	}
	if !w.oneIn(5) {
		n.Labels[corev1.LabelTopologyZone] = pick(w, "zone-a", "zone-b")
	}
	w.Node = n
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func (w *Cluster) config(version, mode string, gates []string) {
	c := kubeproxy.DefaultConfig()
	c.Source, c.Version, c.Mode = "generated", version, mode
	c.DetectLocalMode = pick(w, "", "ClusterCIDR", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
	c.BridgeInterface = pick(w, "cni0", "cni0", "cni1")
	c.InterfaceNamePrefix = pick(w, "cni", "veth")
	w.ClusterCIDR = pick(w, "10.244.0.0/16,fd00:10:244::/48", "10.244.0.0/16,fd00:10:244::/48", "10.244.0.0/16",
		"fd00:10:244::/48", "", "10.9.0.0/16")
	if w.ClusterCIDR != "" {
		for _, s := range splitComma(w.ClusterCIDR) {
			c.ClusterCIDRs = append(c.ClusterCIDRs, netip.MustParsePrefix(s))
		}
	}
	c.MasqueradeAll = w.oneIn(6)
	c.MasqueradeBit = pick(w, 14, 14, 14, 0, 31)
	c.LocalhostNodePorts = !w.oneIn(4)
	c.NodePortAddresses = pick(w, nil, nil, nil, []string{"192.168.0.0/24"}, []string{"172.31.0.0/16", "fd00:172::/64"},
		[]string{"127.0.0.0/8", "192.168.0.1/32"}, []string{"10.0.0.0/8", "0.0.0.0/0"}, []string{"203.0.113.0/24"},
		[]string{"::1/128", "fd00:192::/64"})
	if mode == kubeproxy.IPVS {
		c.Scheduler = pick(w, "rr", "rr", "rr", "wrr", "lc", "sh")
	}
	c.FeatureGates = map[string]bool{}
	for _, g := range gates {
		c.FeatureGates[g] = !w.oneIn(4)
	}
	w.Config = c
}

func splitComma(s string) []string {
	var out []string
	for s != "" {
		i := 0
		for i < len(s) && s[i] != ',' {
			i++
		}
		out = append(out, s[:i])
		s = s[min(i+1, len(s)):]
	}
	return out
}

func (w *Cluster) service(i int) {
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pick(w, "shop", "kube-system", "a"), Name: fmt.Sprintf("svc-%d", i), Labels: map[string]string{},
		},
	}
	s.Spec.Type = pick(w, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeLoadBalancer)
	w.clusterIPs(s, i)
	switch {
	case w.oneIn(30):
		s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		s.Spec.Type = corev1.ServiceTypeClusterIP
	case w.oneIn(40):
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	case w.oneIn(29):
		s.Labels[labelProxyName] = "other"
	case w.oneIn(28):
		s.Labels[corev1.IsHeadlessService] = ""
	}
	if !w.oneIn(6) {
		s.Spec.Selector = map[string]string{"app": s.Name}
	}
	w.ports(s, i)
	w.policies(s)
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		w.external(s, i)
	}
	w.Services = append(w.Services, s)
	w.endpointSlices(s)
}

func (w *Cluster) clusterIPs(s *corev1.Service, i int) {
	four, six := fmt.Sprintf("10.96.%d.%d", i/200, i%200+1), fmt.Sprintf("fd00:10:96::%x", i+1)
	switch w.rng.IntN(5) {
	case 0:
		s.Spec.ClusterIPs, s.Spec.IPFamilies = []string{four}, []corev1.IPFamily{corev1.IPv4Protocol}
	case 1:
		s.Spec.ClusterIPs, s.Spec.IPFamilies = []string{six}, []corev1.IPFamily{corev1.IPv6Protocol}
	case 2:
		s.Spec.ClusterIPs, s.Spec.IPFamilies = []string{six, four},
			[]corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	default:
		s.Spec.ClusterIPs, s.Spec.IPFamilies = []string{four, six},
			[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
}

func (w *Cluster) ports(s *corev1.Service, i int) {
	for j := range pick(w, 1, 1, 2, 3) {
		p := corev1.ServicePort{
			Name: fmt.Sprintf("p%d", j), Port: int32(80 + j),
			Protocol: pick(w, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		}
		p.TargetPort = pick(w, intstr.FromInt32(8080), intstr.FromString("web"))
		if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer && !w.oneIn(5) {
			p.NodePort = int32(30000 + i*3 + j) //nolint:gosec // a port
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	switch {
	case len(s.Spec.Ports) == 1 && w.oneIn(2):
		s.Spec.Ports[0].Name = ""
	case len(s.Spec.Ports) > 1 && w.oneIn(3) && s.Spec.Ports[0].Protocol != s.Spec.Ports[1].Protocol: // as DNS has it
		s.Spec.Ports[1].Port = s.Spec.Ports[0].Port
	}
}

func (w *Cluster) policies(s *corev1.Service) {
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = pick(w, nil, new(corev1.ServiceInternalTrafficPolicyCluster),
			new(corev1.ServiceInternalTrafficPolicyLocal))
	}
	s.Spec.ExternalTrafficPolicy = pick(w, corev1.ServiceExternalTrafficPolicyCluster,
		corev1.ServiceExternalTrafficPolicyLocal)
	if w.oneIn(4) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(pick[int32](w, 1, 60, 10800, 86400))},
		}
	}
	s.Spec.PublishNotReadyAddresses = w.oneIn(10)
	if w.oneIn(3) { // without them no version before 1.31 uses hints
		key := corev1.AnnotationTopologyMode
		if w.oneIn(3) {
			key = corev1.DeprecatedAnnotationTopologyAwareHints
		}
		s.Annotations = map[string]string{key: pick(w, "Auto", "auto", "PreferZone", "Disabled", "disabled", "")}
	}
	if w.oneIn(6) {
		s.Spec.TrafficDistribution = new(pick(w, "PreferClose", "PreferSameZone", "PreferSameNode"))
	}
}

func (w *Cluster) external(s *corev1.Service, i int) {
	if w.oneIn(4) {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("198.51.%d.%d", 101+i/200, i%200+1))
		if w.oneIn(2) {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("2001:db8:1::%x", i+1), "")
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	ingress := func(ip string) {
		w.taken[ip] = true
		ing := corev1.LoadBalancerIngress{IP: ip}
		ing.IPMode = pick(w, nil, new(corev1.LoadBalancerIPModeVIP), new(corev1.LoadBalancerIPModeVIP),
			new(corev1.LoadBalancerIPModeProxy))
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, ing)
	}
	for range w.rng.IntN(3) {
		ingress(fmt.Sprintf("198.51.%d.%d", 121+i/100, i%100*2+w.rng.IntN(2)))
	}
	if w.oneIn(2) {
		ingress(fmt.Sprintf("2001:db8:2::%x", i+1))
	}
	if w.oneIn(8) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	}
	for _, bound := range []string{"198.51.100.10", "198.51.100.11", "2001:db8::a"} {
		if !w.taken[bound] && w.oneIn(8) {
			ingress(bound)
		}
	}
	if w.oneIn(12) && len(s.Status.LoadBalancer.Ingress) > 0 && s.Status.LoadBalancer.Ingress[0].IP != "" {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, s.Status.LoadBalancer.Ingress[0].IP)
	}
	if w.oneIn(2) {
		w.ranges(s)
	}
}

func (w *Cluster) ranges(s *corev1.Service) {
	for range 1 + w.rng.IntN(3) {
		r := pick(w, "203.0.113.0/28", " 203.0.113.32/27 ", "192.168.0.0/24", "192.168.0.1/32", "10.244.1.0/24",
			"10.244.0.0/16", "198.51.100.0/24",
			"2001:db8:ff::/64", "\tfd00:192::/64", "fd00:10:244::/48", "203.0.113.9/32")
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, r)
	}
	if w.oneIn(8) {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, pick(w, "0.0.0.0/0", "::/0"))
	}
}

// nodes are the nodes that endpoints are on, and their zones. The last is none.
var nodes = []struct{ name, zone string }{
	{nodeName, "zone-a"}, {nodeName, "zone-b"}, {"node2", "zone-b"}, {"node3", "zone-a"}, {"node4", "zone-c"}, {"", ""},
}

func (w *Cluster) endpointSlices(s *corev1.Service) {
	if w.oneIn(12) {
		return // no EndpointSlice at all
	}
	hints := pick(w, "none", "none", "all", "partial", "nodes")
	for family, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		var all []*discoveryv1.EndpointSlice
		for i := range pick(w, 0, 1, 1, 1, 2, 3) {
			slice := &discoveryv1.EndpointSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: s.Namespace, Name: fmt.Sprintf("%s-%d-%d", s.Name, family, i),
					Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
				},
				AddressType: kind,
			}
			if !w.oneIn(3) { // as the controller does, but not everybody who writes slices by hand
				maps.Copy(slice.Labels, s.Labels)
			}
			w.slicePorts(slice, s)
			for range w.rng.IntN(5) {
				slice.Endpoints = append(slice.Endpoints, w.endpoint(family, hints))
			}
			all = append(all, slice)
		}
		w.duplicate(all)
		w.Slices = append(w.Slices, all...)
	}
}

func (w *Cluster) slicePorts(slice *discoveryv1.EndpointSlice, s *corev1.Service) {
	for _, p := range s.Spec.Ports {
		if w.oneIn(15) {
			continue // a named target port that this pod does not have
		}
		number := pick[int32](w, 8080, 9090, p.Port)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new(p.Name), Port: &number, Protocol: new(p.Protocol),
		})
	}
	switch w.rng.IntN(20) {
	case 0:
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new("unused"), Port: new(int32(1)), Protocol: new(corev1.ProtocolTCP),
		})
	case 1:
		if w.minor() >= minorNoNumber {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new("p1"), Protocol: new(corev1.ProtocolTCP)})
		}
	}
}

func (w *Cluster) endpoint(family int, hints string) discoveryv1.Endpoint {
	var e discoveryv1.Endpoint
	on := pick(w, nodes...)
	if on.name != "" {
		e.NodeName, e.Zone = new(on.name), new(on.zone)
	}
	n, host := map[string]int{nodeName: 1, "node2": 2, "node3": 3, "node4": 4, "": 9}[on.name], 2+w.rng.IntN(180)
	e.Addresses = []string{fmt.Sprintf("10.244.%d.%d", n, host)}
	if family == 1 {
		e.Addresses[0] = fmt.Sprintf("fd00:10:244:%x::%x", n, host)
	}
	if on.name == nodeName && w.oneIn(12) { // host network
		e.Addresses[0] = []string{"192.168.0.1", "fd00:192::1"}[family]
	}
	state := w.rng.IntN(8)
	switch state {
	case 0:
		e.Conditions.Ready, e.Conditions.Serving = new(false), new(false)
	case 1:
		e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = new(false), new(true), new(true)
	case 2:
		e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = new(false), new(false), new(true)
	case 3:
		e.Conditions.Ready, e.Conditions.Terminating = new(false), new(true) // serving is not said: yes
	case 4:
		e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = new(true), new(true), new(false)
	case 5:
		// publishNotReadyAddresses
		e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = new(true), new(true), new(true)
	}
	if hints == "none" || hints == "partial" && w.oneIn(4) || on.zone == "" {
		return e
	}
	e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: on.zone}}}
	if w.oneIn(4) {
		e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: "zone-d"})
	}
	if hints == "nodes" && !w.oneIn(8) {
		e.Hints.ForNodes = []discoveryv1.ForNode{{Name: on.name}}
	}
	return e
}

// duplicate puts some endpoints in a second time, in the same or another slice, alike or in other conditions.
func (w *Cluster) duplicate(all []*discoveryv1.EndpointSlice) {
	for _, from := range all {
		if len(from.Endpoints) == 0 || !w.oneIn(4) {
			continue
		}
		to := pick(w, all...)
		e := pick(w, from.Endpoints...)
		switch w.rng.IntN(4) {
		case 0:
			e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)}
		case 1:
			e.Conditions = discoveryv1.EndpointConditions{Ready: new(true)}
		}
		to.Endpoints = append(to.Endpoints, e)
	}
}

// Seen returns what kube-proxy's informers let through, by the labels of either kind (cmd/kube-proxy/app/server.go,
// Run): up to 1.35 they ask for neither label on both, from 1.36 on for one label on each.
func (w *Cluster) Seen() ([]*corev1.Service, []*discoveryv1.EndpointSlice) {
	hidden := func(labels map[string]string, label string) bool {
		_, other := labels[labelProxyName]
		_, headless := labels[corev1.IsHeadlessService]
		if w.minor() < minorLabelEach {
			return other || headless
		}
		_, has := labels[label]
		return has
	}
	return slices.DeleteFunc(slices.Clone(w.Services), func(s *corev1.Service) bool {
			return hidden(s.Labels, labelProxyName) || s.Spec.ClusterIP == corev1.ClusterIPNone
		}),
		slices.DeleteFunc(slices.Clone(w.Slices),
			func(s *discoveryv1.EndpointSlice) bool { return hidden(s.Labels, corev1.IsHeadlessService) })
}

const (
	// minorLabelEach is the first minor version whose informers ask for one label on each kind.
	minorLabelEach = 36
	// minorNoNumber is the first minor version that survives a slice with several ports, one of them without number:
	// earlier ones sort them by number, and end with a nil pointer (pkg/proxy/endpointslicecache.go, byPort).
	minorNoNumber = 31
	// minorPrimary is the first minor version of which nftables mode has "primary" for nodePortAddresses.
	minorPrimary = 31
)

// minor is the minor version of the cluster's kube-proxy.
func (w *Cluster) minor() (minor int) {
	if _, err := fmt.Sscanf(w.Config.Version, "v1.%d.", &minor); err != nil {
		panic(w.Config.Version + ": " + err.Error())
	}
	return minor
}

// Addresses returns the node's addresses with the lengths of their networks, as the interfaces have them.
func (w *Cluster) Addresses() []netip.Prefix {
	var out []netip.Prefix
	for _, l := range w.links {
		out = append(out, l.addresses...)
	}
	return out
}

// Inputs returns what the expectation needs to know.
func (w *Cluster) Inputs() expect.Inputs {
	in := expect.Inputs{Services: w.Services, Slices: w.Slices, Node: w.Node, NodeName: nodeName, Config: w.Config}
	for _, p := range w.Addresses() {
		in.Addresses = append(in.Addresses, p.Addr())
	}
	return in
}

func nameOf(s *corev1.Service) types.NamespacedName { return expect.NameOf(s) }
