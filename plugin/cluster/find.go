// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
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
	// Note says how the reference led to the Service, where it is not the Service's own name or address.
	Note string
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
		return f.Kind == expect.NodePort && int32(f.Port) == t.NodePort &&
			(elsewhere || !t.Address.IsValid() || f.Address == t.Address)
	}
	return !t.Address.IsValid() || f.Kind != expect.NodePort && f.Address == t.Address
}

func (t *Target) hasPort(name string, protocol corev1.Protocol) bool {
	return t.Ports == nil || slices.ContainsFunc(t.Ports, func(p corev1.ServicePort) bool {
		return p.Name == name && protocolOf(&p) == protocol
	})
}

// Find finds the one Service that a reference names. namespace is that of names without one. The errors say in one
// sentence what was not found and what there is.
func Find(objects *snapshot.Cluster, namespace string, ref Reference) (Target, error) {
	found, err := FindAll(objects, namespace, ref)
	switch {
	case err != nil:
		return Target{}, err
	case len(found) == 1:
		return found[0], nil
	}
	list := make([]string, len(found))
	for i := range found {
		list[i] = found[i].Name().String()
	}
	return Target{}, fmt.Errorf("%s leads to several Services (%s): give one of them", ref.Input, shorten(list))
}

// FindAll finds all Services that a reference leads to: a pod may be behind several.
func FindAll(objects *snapshot.Cluster, namespace string, ref Reference) ([]Target, error) {
	if ref.Asked != "" {
		return findAsked(objects, ref)
	}
	if ref.Namespace != "" {
		namespace = ref.Namespace
	}
	one := func(t Target, err error) ([]Target, error) { return []Target{t}, err }
	switch ref.Kind {
	case "", KindService:
	case KindNode:
		return one(findNodePort(objects, ref))
	case KindEndpointSlice:
		return findSlice(objects, namespace, ref)
	case KindPod, KindDeployment, KindReplicaSet, KindStatefulSet, KindDaemonSet, KindJob, KindController:
		return findSelecting(objects, namespace, ref)
	}
	switch {
	case ref.Chain != "":
		return one(findChain(objects, ref))
	case ref.Address.IsValid():
		return findAddress(objects, ref)
	case ref.Name == "" && ref.Host == "":
		return one(onlyOwner(objects, ref, nodePortOwners(objects, ref, "")))
	}
	for _, svc := range objects.Services {
		if svc.Namespace == namespace && svc.Name == ref.Name {
			ports, err := portsOf(svc, ref)
			return one(Target{Service: svc, Ports: ports, Note: noteOfPod(objects, svc, ref.Pod)}, err)
		}
	}
	if ref.Kind == "" && ref.Host != "" {
		if t, ok, err := findHost(objects, ref); ok || err != nil {
			return one(t, err)
		}
	}
	return nil, notFound(objects, namespace, ref)
}

// portsOf returns the ports that a reference selects. A number that is used for TCP and UDP selects both.
func portsOf(svc *corev1.Service, ref Reference) ([]corev1.ServicePort, error) {
	if ref.Port == "" && (ref.Protocol == "" || len(svc.Spec.Ports) == 0) {
		return nil, nil
	}
	var out []corev1.ServicePort
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		named := ref.Port == "" || p.Name == ref.Port || strconv.Itoa(int(p.Port)) == ref.Port
		if named && ref.speaks(protocolOf(p)) {
			out = append(out, *p)
		}
	}
	switch {
	case len(out) == len(svc.Spec.Ports) && ref.Port == "":
		return nil, nil // all that there are
	case len(out) > 0:
		return out, nil
	}
	if len(svc.Spec.Ports) == 0 {
		return nil, fmt.Errorf("service %s/%s has no ports at all: give it without :%s", svc.Namespace, svc.Name, ref.Port)
	}
	return nil, fmt.Errorf("service %s/%s has no %s%s: it has %s%s",
		svc.Namespace, svc.Name, ref.ports(), ref.ofScheme(), describePorts(svc), meantPort(svc, ref.Port))
}

// meantPort says which port may have been meant: the one with this target port or NodePort, or with a similar name.
func meantPort(svc *corev1.Service, given string) string {
	var names []string
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		switch given {
		case p.TargetPort.String():
			return fmt.Sprintf("; %s is the target port of port %d", given, p.Port)
		case strconv.Itoa(int(p.NodePort)):
			return fmt.Sprintf("; %s is the NodePort of port %d", given, p.Port)
		}
		names = append(names, p.Name)
	}
	if isNumber(given) {
		return ""
	}
	return DidYouMean(given, names)
}

func (r *Reference) speaks(p corev1.Protocol) bool { return r.Protocol == "" || r.Protocol == p }

// ofScheme says where a port comes from that was not given: clients take it for a URL without one.
func (r *Reference) ofScheme() string {
	if r.Scheme == "" {
		return ""
	}
	return ", the port of " + r.Scheme + ":// without a port"
}

func (r *Reference) port() string {
	if r.Protocol == "" {
		return r.Port
	}
	return r.Port + "/" + string(r.Protocol)
}

// ports names what a reference asks a Service for.
func (r *Reference) ports() string {
	if r.Port == "" {
		return string(r.Protocol) + " ports"
	}
	return "port " + r.port()
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
// kube-proxy's rules, and both before the address of an endpoint.
func findAddress(objects *snapshot.Cluster, ref Reference) ([]Target, error) {
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
		node, isNode := nodeOf(objects, ref.Address)
		if isNode {
			fits = nodePortOwners(objects, ref, node)
		}
		if len(owners) == 1 && len(fits) == 0 {
			return nil, owners[0].err
		}
		if len(fits) == 0 && len(owners) > 0 {
			return nil, fmt.Errorf("%s is an address of %s, of which none has %s%s",
				ref.Address, names(owners), ref.ports(), ref.ofScheme())
		}
	}
	if len(fits) == 0 {
		if found, err := findEndpoint(objects, ref); found != nil || err != nil {
			return found, err
		}
	}
	t, err := onlyOwner(objects, ref, fits)
	return []Target{t}, err
}

// onlyOwner returns the one Service that has an address, a name or a NodePort.
func onlyOwner(objects *snapshot.Cluster, ref Reference, owners []owner) (Target, error) {
	switch len(owners) {
	case 0:
		return Target{}, noOwner(objects, ref)
	case 1:
		return owners[0].Target, nil
	}
	return Target{}, fmt.Errorf("%s belongs to several Services (%s): give one of them by its name",
		ref.Input, names(owners))
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

// ServiceWith says which Service has an address, and as what: "the cluster IP of service/shop/web"; "" where none has.
func ServiceWith(objects *snapshot.Cluster, a netip.Addr) string {
	words := map[expect.FrontendKind]string{
		expect.ClusterIP: "the cluster IP", expect.ExternalIP: "an external IP", expect.LoadBalancerIP: "a load-balancer IP",
	}
	for _, svc := range objects.Services {
		if kind := kindOf(svc, a); kind != "" {
			return fmt.Sprintf("%s of service/%s/%s", words[kind], svc.Namespace, svc.Name)
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

// nodePortOwners returns the Services that have the port of a reference as NodePort. node is the one that the reference
// names; "" where that may be any.
func nodePortOwners(objects *snapshot.Cluster, ref Reference, node string) []owner {
	number, err := strconv.ParseInt(ref.Port, 10, 32)
	if err != nil {
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

// noOwner says what an address or a name is, where no Service has it.
func noOwner(objects *snapshot.Cluster, ref Reference) error {
	what := ref.Host
	node, isNode := ref.Host, ref.Host != ""
	if ref.Address.IsValid() {
		what = ref.Address.String()
		node, isNode = nodeOf(objects, ref.Address)
		isNode = isNode && node != ""
		what += " is an address of node " + node
	} else if isNode {
		what += " is a node"
	}
	switch {
	case ref.Address.IsLoopback() && ref.Port == "":
		return fmt.Errorf("%s is the loopback address, which every node has for itself: give it with a NodePort", ref.Address)
	case ref.Address.IsLoopback() && !isNumber(ref.Port):
		return fmt.Errorf("%s is the loopback address, with port %q: a NodePort is a number%s", ref.Address, ref.Port,
			nodePortsOf(objects))
	case ref.Address.IsLoopback():
		return fmt.Errorf("%s is the loopback address, which every node has for itself, and no Service has NodePort "+
			"%s", ref.Address,
			ref.port())
	case isNode && ref.Port == "":
		address := node
		if ref.Address.IsValid() {
			address = ref.Address.String()
		}
		return fmt.Errorf("%s: give it with a NodePort, as %s; --node %s traces a Service there",
			what, net.JoinHostPort(address, "30080"), node)
	case isNode && !isNumber(ref.Port):
		return fmt.Errorf("%s, with port %q: a NodePort is a number%s", what, ref.Port, nodePortsOf(objects))
	case isNode:
		return fmt.Errorf("%s, and no Service has NodePort %s", what, ref.port())
	case !ref.Address.IsValid():
		return fmt.Errorf("no Service has NodePort %s", ref.port())
	}
	for _, special := range specialAddresses {
		if special.is(ref.Address) {
			return fmt.Errorf("no Service has the address %s, which is %s", ref.Address, special.what)
		}
	}
	hint := withoutBrackets(objects, ref)
	if hint == "" {
		hint = "; if connections to it are answered, it may be the address of a deleted Service, whose rules verify -A finds"
	}
	return fmt.Errorf("no Service has the address %s as cluster IP, external IP or load-balancer IP, and no node and no "+
		"endpoint has it%s", ref.Address, hint)
}

// withoutBrackets says how an IPv6 address with a port is written, where a reference may be one without brackets.
func withoutBrackets(objects *snapshot.Cluster, ref Reference) string {
	host, port := cutLast(ref.Address.String(), ":")
	a, err := netip.ParseAddr(host)
	if ref.Port != "" || err != nil || !a.Is6() || !isPortNumber(port) {
		return ""
	}
	_, known := nodeOf(objects, a)
	for _, svc := range objects.Services {
		known = known || kindOf(svc, a) != ""
	}
	if !known {
		return ""
	}
	return "; an IPv6 address with a port is written [" + host + "]:" + port
}

// specialAddresses are addresses that no Service, no node and no pod can have, with what they are.
var specialAddresses = []struct {
	is   func(netip.Addr) bool
	what string
}{
	{
		netip.Addr.IsUnspecified, "the unspecified address: programs listen on it for all addresses of their host, and no " +
			"packet is sent to it; a NodePort is given as :30080",
	},
	{
		func(a netip.Addr) bool { return a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) },
		"the broadcast address: give a cluster IP, external IP or load-balancer IP",
	},
	{netip.Addr.IsMulticast, "a multicast address: give a cluster IP, external IP or load-balancer IP"},
	{netip.Addr.IsLinkLocalUnicast, "a link-local address, which means something else on each link: give a cluster IP, " +
		"external IP or load-balancer IP"},
	{
		netip.MustParsePrefix("240.0.0.0/4").Contains,
		"a reserved address: give a cluster IP, external IP or load-balancer IP",
	},
	{
		netip.MustParsePrefix("0.0.0.0/8").Contains,
		"a reserved address: give a cluster IP, external IP or load-balancer IP",
	},
}

// nodePortsOf lists the NodePorts that there are, behind a colon; "" where there is none.
func nodePortsOf(objects *snapshot.Cluster) string {
	var out []string
	for _, svc := range objects.Services {
		for i := range svc.Spec.Ports {
			if n := svc.Spec.Ports[i].NodePort; n != 0 {
				out = append(out, fmt.Sprintf("%d of %s/%s", n, svc.Namespace, svc.Name))
			}
		}
	}
	if out == nil {
		return ""
	}
	return "; there is " + shorten(out)
}

func names(owners []owner) string {
	out := make([]string, 0, len(owners))
	for i := range owners {
		o := &owners[i]
		out = append(out, fmt.Sprintf("%s/%s as %s", o.Service.Namespace, o.Service.Name, o.kind))
	}
	return shorten(out)
}
