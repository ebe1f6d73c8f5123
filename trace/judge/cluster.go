// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Cluster is the objects of a cluster, indexed for the judgement of any number of nodes. It does not change, and may be
// shared by goroutines.
type Cluster struct {
	*snapshot.Cluster

	index    *expect.Index
	services map[types.NamespacedName]*corev1.Service
	// endpoints are the addresses of every endpoint, and whether it is on a node, as opposed to outside the cluster.
	endpoints *host.AddrMap
	// onNode are the addresses of the endpoints on each node, with the names of their pods where these are told.
	onNode   map[string]map[netip.Addr]string
	nodesAt  map[netip.Addr][]string // the names of the Nodes that have an address, for tunnels too
	podNets  podNetworks
	pods     map[string][]pod // of each node, those with an address of their own, by name
	podNames map[netip.Addr]string
	podsAt   map[netip.Addr][]string // running pods with an address of their own that have an address
	// podsByName are all pods by namespace/name, podSpaces the namespaces of the pods of each node.
	podsByName map[string]*corev1.Pod
	podSpaces  map[string]map[string]bool
	proxyPods  map[string]*proxyPod             // of each node, kube-proxy's
	twice      map[netip.Addr]bool              // that a Service lists more than once
	mirrors    map[types.NamespacedName]*mirror // of Services whose endpoints come from Endpoints
	// namedPorts are the Services with a targetPort that not all of their pods have.
	namedPorts map[types.NamespacedName]*selected
	// rangesTwice are the ports of Services that list a source range more than once.
	rangesTwice []servicePort
	configs     []kubeproxy.StoredConfig // of the ConfigMaps
}

// pod is a pod with an address of its own.
type pod struct {
	name   string // namespace/name
	v4, v6 netip.Addr
}

func (p pod) address(v4 bool) netip.Addr {
	if v4 {
		return p.v4
	}
	return p.v6
}

// NewCluster indexes the objects of a cluster, which must not be changed afterwards.
func NewCluster(objects *snapshot.Cluster) *Cluster {
	c := &Cluster{
		Cluster: objects, services: make(map[types.NamespacedName]*corev1.Service, len(objects.Services)),
		onNode: map[string]map[netip.Addr]string{}, nodesAt: map[netip.Addr][]string{}, pods: map[string][]pod{},
		proxyPods: map[string]*proxyPod{}, twice: map[netip.Addr]bool{},
	}
	var beside parallel.Group
	beside.Go(c.indexEndpoints)
	c.index = expect.NewIndex(objects.Services, objects.EndpointSlices, objects.Left)
	for _, s := range objects.Services {
		c.services[expect.NameOf(s)] = s
		if len(s.Spec.ExternalIPs)+len(s.Status.LoadBalancer.Ingress) > 0 {
			c.noteTwice(s)
		}
	}
	c.indexNodes()
	c.podNets = podNetworksOf(objects.Nodes)
	c.indexPods()
	c.mirrors, c.namedPorts = mirrorsOf(objects), namedPortsOf(objects.Services, objects.Pods)
	c.configs = kubeproxy.StoredConfigs(objects.ConfigMaps)
	beside.Wait()
	return c
}

func (c *Cluster) indexNodes() {
	for _, o := range c.Nodes {
		texts := []string{o.Annotations[snapshot.FlannelPublicIP]}
		for i := range o.Status.Addresses {
			texts = append(texts, o.Status.Addresses[i].Address)
		}
		for _, text := range texts {
			if a, ok := kubeproxy.ParseAddr(text); ok && !slices.Contains(c.nodesAt[a], o.Name) {
				c.nodesAt[a] = append(c.nodesAt[a], o.Name)
			}
		}
	}
}

// ofNode returns the name of a Node that has an address, for tunnels or in its status; "" where none has.
func (c *Cluster) ofNode(a netip.Addr) string {
	if names := c.nodesAt[a]; len(names) > 0 {
		return names[0]
	}
	return ""
}

// nodeAt is ofNode where no other Node has the address; "" where several have it.
func (c *Cluster) nodeAt(a netip.Addr) string {
	if len(c.nodesAt[a]) > 1 {
		return ""
	}
	return c.ofNode(a)
}

// indexEndpoints fills in endpoints and onNode.
func (c *Cluster) indexEndpoints() {
	count := 0
	for _, s := range c.EndpointSlices {
		count += len(s.Endpoints)
	}
	c.endpoints = host.NewAddrMap(count)
	for _, s := range c.EndpointSlices {
		for i := range s.Endpoints {
			for _, text := range s.Endpoints[i].Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					onNode := s.Endpoints[i].NodeName != nil
					known, _ := c.endpoints.Get(a)
					c.endpoints.Set(a, known || onNode)
					if onNode {
						c.noteEndpoint(s, &s.Endpoints[i], a)
					}
				}
			}
		}
	}
}

// ServedSlice tells whether kube-proxy, of whatever version, programs the endpoints of a slice: it is of a Service, the
// informers select it, and it has no names in place of addresses.
func ServedSlice(s *discoveryv1.EndpointSlice) bool {
	return expect.ServiceOf(s).Name != "" && !expect.MayBeHidden(s) &&
		(s.AddressType == discoveryv1.AddressTypeIPv4 || s.AddressType == discoveryv1.AddressTypeIPv6)
}

// hasEndpoint tells whether an address is that of an endpoint.
func (c *Cluster) hasEndpoint(a netip.Addr) bool {
	_, has := c.endpoints.Get(a)
	return has
}

// listedOn returns the node that some endpoint with an address is on, of whatever Service, if the address is in the pod
// network of that node; "" where none is, and of addresses of Nodes. By a slice that anybody may write nobody is told
// to take an address away that belongs to something else.
func (c *Cluster) listedOn(a netip.Addr) string {
	if on, _ := c.endpoints.Get(a); !on || len(c.nodesAt[a]) > 0 {
		return ""
	}
	for _, x := range c.podNets.of(a) {
		if _, has := c.onNode[x.node.Name][a]; has {
			return x.node.Name
		}
	}
	return ""
}

// noteEndpoint notes on which node an endpoint is.
func (c *Cluster) noteEndpoint(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, a netip.Addr) {
	here := c.onNode[*e.NodeName]
	if here == nil {
		here = map[netip.Addr]string{}
		c.onNode[*e.NodeName] = here
	}
	name := here[a]
	if t := e.TargetRef; t != nil && t.Kind == "Pod" && name == "" {
		name = cmp.Or(t.Namespace, s.Namespace) + "/" + t.Name
	}
	here[a] = name
}

func (c *Cluster) indexPods() {
	if len(c.Pods) > 0 {
		c.podNames = make(map[netip.Addr]string, len(c.Pods))
		c.podsAt = make(map[netip.Addr][]string, len(c.Pods))
		c.podsByName = make(map[string]*corev1.Pod, len(c.Pods))
		c.podSpaces = map[string]map[string]bool{}
	}
	for _, p := range c.Pods {
		name := p.Namespace + "/" + p.Name
		c.podsByName[name] = p
		if c.podSpaces[p.Spec.NodeName] == nil {
			c.podSpaces[p.Spec.NodeName] = map[string]bool{}
		}
		c.podSpaces[p.Spec.NodeName][p.Namespace] = true
		if x := proxyPodOf(p); x != nil && x.better(c.proxyPods[p.Spec.NodeName]) {
			c.proxyPods[p.Spec.NodeName] = x
		}
		if p.Spec.HostNetwork {
			continue // several pods share the node's address
		}
		x := pod{name: name}
		for _, ip := range p.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err != nil {
				continue
			}
			running := p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
			if running {
				c.notePodAt(a, name)
			}
			if running || len(c.podsAt[a]) == 0 { // a pod that has ended may have given its address away
				c.podNames[a] = name
			}
			if a.Is4() {
				x.v4 = a
			} else {
				x.v6 = a
			}
		}
		if p.Status.Phase == corev1.PodRunning {
			c.pods[p.Spec.NodeName] = append(c.pods[p.Spec.NodeName], x)
		}
	}
	for _, list := range c.pods {
		slices.SortFunc(list, func(a, b pod) int { return strings.Compare(a.name, b.name) })
	}
}

// servicePort is a port of a Service.
type servicePort struct {
	svc  *corev1.Service
	port *corev1.ServicePort
}

// noteTwice notes what a Service lists more than once: addresses, and the ports of repeated source ranges.
func (c *Cluster) noteTwice(svc *corev1.Service) {
	seen := map[netip.Addr]bool{}
	note := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			if seen[a] {
				c.twice[a] = true
			}
			seen[a] = true
		}
	}
	for _, ip := range svc.Spec.ExternalIPs {
		note(ip)
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		note(svc.Status.LoadBalancer.Ingress[i].IP)
	}
	ranges := map[string]bool{}
	for _, r := range svc.Spec.LoadBalancerSourceRanges {
		r = strings.TrimSpace(r)
		if ranges[r] {
			for i := range svc.Spec.Ports {
				c.rangesTwice = append(c.rangesTwice, servicePort{svc, &svc.Spec.Ports[i]})
			}
		}
		ranges[r] = true
	}
}
