// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cluster is Services with endpoints on many nodes, of which the first one is watched.
type cluster struct {
	services, endpoints int

	slices []*discoveryv1.EndpointSlice
	pods   int // that there ever were
	random *rand.Rand
}

// nodes is how many nodes there are, each with room for a thousand pods. The kernel forgets no neighbour of so few
// (gc_thresh1 of net/core/neighbour.c).
const nodes = 100

const (
	node       = "node-0"
	podNetwork = "10.128.0.0/9"
	service    = "kubernetes.io/service-name"
)

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func nodeAddress(i int) string { return fmt.Sprintf("192.0.2.%d", i+10) }

func podCIDR(i int) string { return fmt.Sprintf("10.%d.%d.0/22", 128+i/64, i%64*4) }

// pod returns the address of a new pod, and its node.
func (c *cluster) pod() (address, on string) {
	i := c.pods % nodes
	a := netip.MustParsePrefix(podCIDR(i)).Addr().As4()
	n := c.pods/nodes%1000 + 2
	c.pods++
	a[2] += byte(n >> 8)
	a[3] = byte(n) //nolint:gosec // the lower half
	return netip.AddrFrom4(a).String(), nodeName(i)
}

func (c *cluster) endpoint() discoveryv1.Endpoint {
	address, on := c.pod()
	return discoveryv1.Endpoint{
		Addresses: []string{address}, NodeName: &on,
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}
}

// fill makes all objects. api is the address of the API server.
func (c *cluster) fill(a *api, address netip.AddrPort) {
	for i := range nodes {
		a.put(nodesPath, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: "1"},
			Spec:       corev1.NodeSpec{PodCIDR: podCIDR(i), PodCIDRs: []string{podCIDR(i)}},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress(i)}},
			},
		})
	}
	c.service(a, "default", "kubernetes", 0, int32(address.Port()), []discoveryv1.Endpoint{{
		Addresses: []string{address.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
	}})
	for i := range c.services {
		endpoints := make([]discoveryv1.Endpoint, c.endpoints)
		for k := range endpoints {
			endpoints[k] = c.endpoint()
		}
		namespace, name := fmt.Sprintf("ns-%d", i%50), fmt.Sprintf("service-%d", i)
		c.slices = append(c.slices, c.service(a, namespace, name, i+1, 8080, endpoints))
	}
}

func (c *cluster) service(
	a *api, namespace, name string, i int, port int32, endpoints []discoveryv1.Endpoint,
) *discoveryv1.EndpointSlice {
	ip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).Next().String() //nolint:gosec // below 65536
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			Ports:                 []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	if i%10 == 1 { // beyond some number a cluster has no room for more
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = int32(30000 + i/10) //nolint:gosec // below 32768
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	a.put(servicesPath, s)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-x", UID: "1", Labels: map[string]string{
				service: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: &port, Protocol: new(corev1.ProtocolTCP)}},
	}
	a.put(slicesPath, slice)
	return slice
}

// change has one endpoint of some Service be another one.
func (c *cluster) change(a *api) {
	i := c.random.IntN(len(c.slices))
	s := c.slices[i].DeepCopy()
	s.Endpoints[c.random.IntN(len(s.Endpoints))] = c.endpoint()
	c.slices[i] = s
	a.put(slicesPath, s)
}
