// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Target is what a reference comes to: a Service, and which of its frontends are meant.
type Target struct {
	Service *corev1.Service
	// Ports are the Service ports that were asked for; nil means all.
	Ports []corev1.ServicePort
	// Address restricts the frontends to one address, where one was given in place of a name.
	Address netip.Addr
	// NodePort restricts the frontends to this NodePort, where the address was a node's.
	NodePort int32
	// Node is the node that has the address of a NodePort, where the API tells.
	Node string
}

// Name returns the namespace and name of the Service.
func (t *Target) Name() types.NamespacedName { return expect.NameOf(t.Service) }

// Selects tells whether a frontend is meant. The address of a NodePort counts on its own node alone: elsewhere the same
// NodePort is served at that node's addresses.
func (t *Target) Selects(f *expect.Frontend, node string) bool {
	if f.Service != t.Name() || !t.hasPort(f.PortName, f.Protocol) {
		return false
	}
	if t.NodePort != 0 {
		elsewhere := node != t.Node && !t.Address.IsLoopback()
		return f.Kind == expect.NodePort && int32(f.Port) == t.NodePort && (elsewhere || f.Address == t.Address)
	}
	return !t.Address.IsValid() || f.Kind != expect.NodePort && f.Address == t.Address
}

func (t *Target) hasPort(name string, protocol corev1.Protocol) bool {
	return t.Ports == nil || slices.ContainsFunc(t.Ports, func(p corev1.ServicePort) bool {
		return p.Name == name && protocolOf(&p) == protocol
	})
}

// Find finds what a reference names. Its errors say in one sentence what was not found and what there is.
func Find(objects *snapshot.Cluster, namespace string, ref Reference) (Target, error) {
	if ref.Address.IsValid() {
		return findAddress(objects, ref)
	}
	for _, svc := range objects.Services {
		if svc.Namespace == namespace && svc.Name == ref.Name {
			ports, err := portsOf(svc, ref)
			return Target{Service: svc, Ports: ports}, err
		}
	}
	return Target{}, notFound(objects, namespace, ref.Name)
}

// portsOf returns the ports that a reference selects. A number that is used for TCP and UDP selects both.
func portsOf(svc *corev1.Service, ref Reference) ([]corev1.ServicePort, error) {
	if ref.Port == "" {
		return nil, nil
	}
	var out []corev1.ServicePort
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		named := p.Name == ref.Port || strconv.Itoa(int(p.Port)) == ref.Port
		if named && ref.speaks(protocolOf(p)) {
			out = append(out, *p)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if len(svc.Spec.Ports) == 0 {
		return nil, fmt.Errorf("service %s/%s has no ports at all: give it without :%s", svc.Namespace, svc.Name, ref.Port)
	}
	return nil, fmt.Errorf("service %s/%s has no port %s: it has %s",
		svc.Namespace, svc.Name, ref.port(), describePorts(svc))
}

func (r *Reference) speaks(p corev1.Protocol) bool { return r.Protocol == "" || r.Protocol == p }

func (r *Reference) port() string {
	if r.Protocol == "" {
		return r.Port
	}
	return r.Port + "/" + string(r.Protocol)
}

func describePorts(svc *corev1.Service) string {
	out := make([]string, 0, len(svc.Spec.Ports))
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		text := strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, protocolOf(p)))
		if p.NodePort != 0 {
			text += fmt.Sprintf(" (NodePort %d)", p.NodePort)
		}
		out = append(out, text)
	}
	return shorten(out)
}

func protocolOf(p *corev1.ServicePort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}

// owner is a Service that has an address.
type owner struct {
	Target
	kind expect.FrontendKind
	err  error // why the port given does not fit
}

// findAddress finds the Service that owns an address. A Service's own address comes before a NodePort, as it does in
// kube-proxy's rules.
func findAddress(objects *snapshot.Cluster, ref Reference) (Target, error) {
	var owners []owner
	for _, svc := range objects.Services {
		if kind := kindOf(svc, ref.Address); kind != "" {
			o := owner{Target: Target{Service: svc, Address: ref.Address}, kind: kind}
			o.Ports, o.err = portsOf(svc, ref)
			owners = append(owners, o)
		}
	}
	fits := slices.DeleteFunc(slices.Clone(owners), func(o owner) bool { return o.err != nil })
	if len(fits) == 0 {
		nodePorts := nodePortOwners(objects, ref)
		if len(owners) == 1 && len(nodePorts) == 0 {
			return Target{}, owners[0].err
		}
		if len(nodePorts) == 0 && len(owners) > 0 {
			return Target{}, fmt.Errorf("%s is an address of %s, of which none has port %s",
				ref.Address, names(owners), ref.port())
		}
		fits = nodePorts
	}
	switch len(fits) {
	case 0:
		return Target{}, noOwner(objects, ref)
	case 1:
		return fits[0].Target, nil
	}
	return Target{}, fmt.Errorf("%s belongs to several Services (%s): give one of them by its name",
		ref.Input, names(fits))
}

// kindOf returns as what a Service has an address; "" when it does not.
func kindOf(svc *corev1.Service, a netip.Addr) expect.FrontendKind {
	if slices.ContainsFunc(append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...), sameAddress(a)) {
		return expect.ClusterIP
	}
	if slices.ContainsFunc(svc.Spec.ExternalIPs, sameAddress(a)) {
		return expect.ExternalIP
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		if sameAddress(a)(svc.Status.LoadBalancer.Ingress[i].IP) {
			return expect.LoadBalancerIP
		}
	}
	return ""
}

// sameAddress compares with an address in text; IPv6 has many spellings.
func sameAddress(a netip.Addr) func(string) bool {
	return func(text string) bool {
		b, err := netip.ParseAddr(text)
		return err == nil && b.Unmap() == a
	}
}

// nodePortOwners returns the Services whose NodePort is meant by a node's address and a port.
func nodePortOwners(objects *snapshot.Cluster, ref Reference) []owner {
	number, err := strconv.ParseInt(ref.Port, 10, 32)
	if err != nil {
		return nil
	}
	node, isNode := nodeOf(objects, ref.Address)
	if !isNode {
		return nil
	}
	var out []owner
	for _, svc := range objects.Services {
		t := Target{Service: svc, Address: ref.Address, NodePort: int32(number), Node: node}
		o := owner{Target: t, kind: expect.NodePort}
		for i := range svc.Spec.Ports {
			if p := &svc.Spec.Ports[i]; int64(p.NodePort) == number && ref.speaks(protocolOf(p)) {
				o.Ports = append(o.Ports, *p)
			}
		}
		if o.Ports != nil {
			out = append(out, o)
		}
	}
	return out
}

// nodeOf returns the node that has an address. The loopback address is every node's; where no Nodes were collected, any
// address may be.
func nodeOf(objects *snapshot.Cluster, a netip.Addr) (name string, isNode bool) {
	for _, n := range objects.Nodes {
		for i := range n.Status.Addresses {
			if sameAddress(a)(n.Status.Addresses[i].Address) {
				return n.Name, true
			}
		}
	}
	return "", a.IsLoopback() || len(objects.Nodes) == 0
}

// noOwner says what an address is, where it is not a Service's.
func noOwner(objects *snapshot.Cluster, ref Reference) error {
	for _, s := range objects.EndpointSlices {
		for i := range s.Endpoints {
			if slices.ContainsFunc(s.Endpoints[i].Addresses, sameAddress(ref.Address)) {
				name := s.Labels["kubernetes.io/service-name"]
				return fmt.Errorf("%s is no Service's address, but an endpoint of service %s/%s: give %s -n %s",
					ref.Address, s.Namespace, name, name, s.Namespace)
			}
		}
	}
	if node, ok := nodeOf(objects, ref.Address); ok && node != "" {
		if ref.Port == "" {
			return fmt.Errorf("%s is an address of node %s: give it with a NodePort, as %s",
				ref.Address, node, netip.AddrPortFrom(ref.Address, 30080))
		}
		return fmt.Errorf("%s is an address of node %s, and no Service has NodePort %s", ref.Address, node, ref.port())
	}
	return fmt.Errorf("no Service has the address %s as cluster IP, external IP or load-balancer IP, and no node has it",
		ref.Address)
}

func names(owners []owner) string {
	out := make([]string, 0, len(owners))
	for i := range owners {
		o := &owners[i]
		out = append(out, fmt.Sprintf("%s/%s as %s", o.Service.Namespace, o.Service.Name, o.kind))
	}
	return shorten(out)
}
