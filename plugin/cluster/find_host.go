// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// findHost finds the Service behind a name other than a Service name: that of a load balancer, that of a node with a
// NodePort, or a NodePort alone. ok is false where it is none of them.
func findHost(objects *snapshot.Cluster, ref Reference) (t Target, ok bool, err error) {
	var owners []owner
	for _, svc := range objects.Services {
		for i := range svc.Status.LoadBalancer.Ingress {
			if !strings.EqualFold(svc.Status.LoadBalancer.Ingress[i].Hostname, ref.Host) {
				continue
			}
			o := owner{Target: Target{Service: svc}, kind: expect.LoadBalancerIP}
			o.Note = fmt.Sprintf("%s is the load balancer of service/%s/%s", ref.Host, svc.Namespace, svc.Name)
			if o.Ports, o.err = portsOf(svc, ref); o.err != nil {
				return Target{}, true, o.err
			}
			owners = append(owners, o)
		}
	}
	if len(owners) > 0 {
		t, err = onlyOwner(objects, ref, owners)
		return t, true, err
	}
	if nodeNamed(objects, ref.Host) != "" {
		t, err = findNodePort(objects, ref)
		return t, true, err
	}
	if t, ok, err = findByName(objects, ref); ok {
		return t, ok, err
	}
	if _, err := strconv.Atoi(ref.Host); err == nil && ref.Port == "" {
		alone := Reference{Input: ref.Input, Port: ref.Host, Protocol: ref.Protocol}
		if owners := nodePortOwners(objects, alone, ""); len(owners) > 0 {
			t, err := onlyOwner(objects, alone, owners)
			return t, true, err
		}
	}
	return Target{}, false, nil
}

// findByName finds the Service of type ExternalName that stands for a host, and the headless one of a pod's name:
// POD.SERVICE.NAMESPACE.
func findByName(objects *snapshot.Cluster, ref Reference) (t Target, ok bool, err error) {
	labels := strings.Split(ref.Host, ".")
	for _, svc := range objects.Services {
		switch {
		case svc.Spec.ExternalName != "" && strings.EqualFold(strings.TrimSuffix(svc.Spec.ExternalName, "."), ref.Host):
			t = Target{Service: svc}
			t.Note = fmt.Sprintf("%s is the host that service/%s/%s of type ExternalName stands for", ref.Host, svc.Namespace,
				svc.Name)
			return t, true, nil
		case len(labels) == 3 && svc.Name == labels[1] && svc.Namespace == labels[2]:
			t = Target{Service: svc, Note: noteOfPod(objects, svc, labels[0])}
			t.Ports, err = portsOf(svc, ref)
			return t, true, err
		}
	}
	return t, false, nil
}

// noteOfPod says whether the first label of a pod's DNS name is the host name of an endpoint of a Service, as DNS knows
// no other; "" without a label.
func noteOfPod(objects *snapshot.Cluster, svc *corev1.Service, pod string) string {
	if pod == "" {
		return ""
	}
	name := fmt.Sprintf("%s.%s.%s", pod, svc.Name, svc.Namespace)
	what := fmt.Sprintf("service/%s/%s", svc.Namespace, svc.Name)
	hosts := hostsOf(objects, svc)
	switch {
	case slices.Contains(hosts, pod):
		return name + " is the name of a pod of " + what
	case len(hosts) == 0:
		return fmt.Sprintf("no endpoint of %s has a host name, so that DNS does not know %s", what, name)
	}
	return fmt.Sprintf("no endpoint of %s has the host name %s, so that DNS does not know %s: there is %s", what, pod,
		name, shorten(hosts))
}

// hostsOf returns the host names that the endpoints of a Service have, in order.
func hostsOf(objects *snapshot.Cluster, svc *corev1.Service) (out []string) {
	for _, s := range objects.EndpointSlices {
		for i := range s.Endpoints {
			if h := s.Endpoints[i].Hostname; h != nil && *h != "" && isSliceOf(s, svc) && !slices.Contains(out, *h) {
				out = append(out, *h)
			}
		}
	}
	slices.Sort(out)
	return out
}

// findNodePort finds the Service with a NodePort on a node that is named.
func findNodePort(objects *snapshot.Cluster, ref Reference) (Target, error) {
	node := nodeNamed(objects, ref.Host)
	if node == "" && len(objects.Nodes) > 0 {
		return Target{}, fmt.Errorf("there is no node %q: there is %s%s",
			ref.Host, shorten(nodeNames(objects)), DidYouMean(ref.Host, nodeNames(objects)))
	}
	if node == "" {
		node = ref.Host // nodes were not read
	}
	return onlyOwner(objects, ref, nodePortOwners(objects, ref, node))
}

// nodeNamed returns the node that has a name, as its own or for its host; "" where none has.
func nodeNamed(objects *snapshot.Cluster, host string) string {
	for _, n := range objects.Nodes {
		if n.Name == host {
			return n.Name
		}
	}
	for _, n := range objects.Nodes {
		for i := range n.Status.Addresses {
			if strings.EqualFold(n.Status.Addresses[i].Address, host) {
				return n.Name
			}
		}
	}
	return ""
}

// nodeNames returns the names of the nodes, in order.
func nodeNames(objects *snapshot.Cluster) []string {
	out := make([]string, len(objects.Nodes))
	for i, n := range objects.Nodes {
		out[i] = n.Name
	}
	slices.Sort(out)
	return out
}

// findEndpoint finds the Services behind the address of an endpoint, and with a port only those that send connections
// to it; nil if no endpoint has the address.
func findEndpoint(objects *snapshot.Cluster, ref Reference) ([]Target, error) {
	var out []Target
	var others []string // its ports, where none is the one of the reference
	for _, svc := range objects.Services {
		t := Target{Service: svc, Note: fmt.Sprintf("%s is an endpoint of service/%s/%s", ref.Address, svc.Namespace,
			svc.Name)}
		is := false
		for _, s := range objects.EndpointSlices {
			if !isSliceOf(s, svc) || !slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
				return slices.ContainsFunc(e.Addresses, sameAddress(ref.Address))
			}) {
				continue
			}
			for i := range s.Ports {
				if isPort(&s.Ports[i], ref) {
					is = true
					t.addPorts(&s.Ports[i])
				} else if p := s.Ports[i].Port; p != nil {
					others = append(others, fmt.Sprintf("%d of service/%s/%s", *p, svc.Namespace, svc.Name))
				}
			}
		}
		if is {
			out = append(out, t)
		}
	}
	if out == nil && others != nil {
		return nil, fmt.Errorf("%s is an endpoint, and not with %s: it has %s",
			ref.Address, ref.ports(), shorten(others))
	}
	return out, nil
}

// isPort tells whether a port of an endpoint is the one of a reference.
func isPort(p *discoveryv1.EndpointPort, ref Reference) bool {
	protocol := corev1.ProtocolTCP
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	return ref.speaks(protocol) && (ref.Port == "" || p.Port != nil && strconv.Itoa(int(*p.Port)) == ref.Port ||
		p.Name != nil && *p.Name == ref.Port)
}

// addPorts adds the Service ports of a port of an endpoint.
func (t *Target) addPorts(p *discoveryv1.EndpointPort) {
	for i := range t.Service.Spec.Ports {
		sp := &t.Service.Spec.Ports[i]
		if samePort(p, sp) && !slices.Contains(t.Ports, *sp) {
			t.Ports = append(t.Ports, *sp)
		}
	}
}

// findSlice finds the Service of an EndpointSlice.
func findSlice(objects *snapshot.Cluster, namespace string, ref Reference) ([]Target, error) {
	var names []string
	for _, s := range objects.EndpointSlices {
		if s.Namespace != namespace {
			continue
		}
		names = append(names, s.Name)
		if s.Name != ref.Name {
			continue
		}
		for _, svc := range objects.Services {
			if isSliceOf(s, svc) {
				what := fmt.Sprintf("endpointslice/%s is one of", s.Name)
				return targetsOf([]*corev1.Service{svc}, what, ref)
			}
		}
		return nil, fmt.Errorf("endpointslice/%s in namespace %s belongs to no Service", s.Name, namespace)
	}
	return nil, fmt.Errorf("there is no endpointslice/%s in namespace %s%s",
		ref.Name, namespace, DidYouMean(ref.Name, names))
}
