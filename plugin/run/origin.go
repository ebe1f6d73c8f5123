// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Origin is --from: where packets come from, and on which node. A nil Origin stands for the default origins of each
// frontend.
type Origin struct {
	kind    expect.OriginKind
	address netip.Addr
	// Pod is a pod's namespace/name; "" where no pod was named.
	Pod string
	// Node is the node that it is on, where the packet starts; "" where that depends on the node or is not known.
	Node string
	// HostNetwork says that it is a pod without a network of its own; HostPod is its namespace/name.
	HostNetwork bool
	HostPod     string
	// named says that it was named, not found by its address.
	named bool
	// families that it can send in; nil: any.
	families []corev1.IPFamily
}

// FindOrigin finds what --from names in a cluster or snapshot; nil means the default origins. namespace is that of a
// pod without one.
func (s *Session) FindOrigin(ctx context.Context, from, namespace string) (*Origin, error) {
	var which cluster.Pods
	if name, ok := cutPod(from); ok {
		which.Namespace, which.Name = podName(name, namespace)
	} else if a, err := netip.ParseAddr(from); err == nil {
		which.Address = a.Unmap()
	}
	if which.Name != "" || which.Address.IsValid() {
		if err := s.ReadPods(ctx, which); err != nil {
			return nil, err
		}
	}
	return parseOrigin(from, namespace, s.Objects)
}

// NoteOrigin says what an address of --from is taken for that no pod and no node has.
func (s *Session) NoteOrigin(o *Origin, from string) {
	if o == nil || !o.address.IsValid() || slices.Contains(s.Objects.Missing, "pods") {
		return
	}
	if note := o.unknownAddress(); note != "" {
		s.Progress.Note("--from %s: %s", from, note)
	}
}

// unknownAddress says what an address is taken for that no pod and no node has; "" where one has it, or where it can
// only be one outside the cluster.
func (o *Origin) unknownAddress() string {
	switch {
	case o.kind == expect.FromPod && o.Pod == "":
		return "no pod has this address: it is of the pod range of node " + o.Node + ", and packets are judged as those of " +
			"a pod there"
	case o.kind == expect.FromExternal && o.address.IsPrivate():
		return "no pod and no node has this address, and no node has it in its pod range: packets are judged as those of a " +
			"client outside the cluster"
	}
	return ""
}

// cutPod takes kubectl's words for pods off the front of a name.
func cutPod(from string) (name string, ok bool) {
	word, name, ok := strings.Cut(from, "/")
	kind, known := cluster.KindOf(word)
	return name, ok && known && kind == cluster.KindPod
}

// podName splits NAMESPACE/NAME or NAME.
func podName(text, namespace string) (ns, name string) {
	if ns, name, ok := strings.Cut(text, "/"); ok {
		return ns, name
	}
	return namespace, text
}

// parseOrigin finds what --from names; nil means the default origins.
func parseOrigin(from, namespace string, objects *snapshot.Cluster) (*Origin, error) {
	switch from {
	case "":
		return nil, nil
	case "pod", "node", "external":
		return &Origin{kind: expect.OriginKind(from)}, nil
	}
	if name, ok := cutPod(from); ok {
		if namespace, name = podName(name, namespace); name == "" {
			return nil, Usagef("--from %q has no name of a pod: give pod/NAME or pod/NAMESPACE/NAME, or pod for any pod", from)
		}
		return fromPod(from, namespace, name, objects)
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(from, "["), "]")); err == nil {
		if a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return nil, Usagef("--from %s: no packet has this address as its source", from)
		}
		o := fromAddress(a.Unmap(), objects)
		if what := cluster.ServiceWith(objects, a.Unmap()); what != "" && o.kind == expect.FromExternal {
			return nil, Usagef("--from %s: it is %s, and a Service's address is never the source of a client's packet: give "+
				"pod/NAME, node/NAME, external or the IP address of the client", from, what)
		}
		return o, nil
	}
	if node := cluster.NodeName(from); node != from {
		if node == "" {
			return nil, Usagef("--from %q has no name of a node: give node/NAME, or node for any node", from)
		}
		node = nodeNamed(objects, node)
		if names := nodeNames(objects); !slices.Contains(names, node) {
			return nil, Usagef("--from %s: there is no node %q%s", from, node, cluster.DidYouMean(node, names))
		}
		return &Origin{kind: expect.FromNode, Node: node, named: true}, nil
	}
	return nil, Usagef("--from %q is not pod, pod/NAME, pod/NAMESPACE/NAME, node, node/NAME, external or an IP "+
		"address%s", from, meantOrigin(from, namespace, objects))
}

// meantOrigin says what a name without a kind may be, as --from.
func meantOrigin(from, namespace string, objects *snapshot.Cluster) string {
	for _, p := range objects.Pods {
		if p.Name == from && p.Namespace == namespace || p.Namespace+"/"+p.Name == from {
			return "; did you mean pod/" + from + "?"
		}
	}
	if i := strings.IndexAny(from, "=:/"); i > 0 && otherOrigins[strings.ToLower(from[:i])] == "external" {
		if a, err := netip.ParseAddr(strings.Trim(from[i+1:], "[]/")); err == nil {
			return "; did you mean " + a.String() + "?"
		}
	}
	if kind, name, ok := strings.Cut(from, ":"); ok && name != "" {
		switch known, _ := cluster.KindOf(kind); known {
		case cluster.KindPod, cluster.KindNode:
			return "; did you mean " + known.Word() + "/" + name + "?"
		}
	}
	if node := nodeNamed(objects, from); slices.Contains(nodeNames(objects), node) {
		return "; did you mean node/" + node + "?"
	}
	if meant := otherOrigins[strings.ToLower(from)]; meant != "" {
		return "; did you mean " + meant + "?"
	}
	if word, name, ok := strings.Cut(from, "/"); ok {
		if _, isKind := cluster.KindOf(word); isKind {
			return "; give one of the pods of " + word + "/" + name + " as pod/NAME"
		}
	}
	if p, err := netip.ParseAddrPort(from); err == nil {
		return "; did you mean " + p.Addr().String() + "?"
	}
	if p, err := netip.ParsePrefix(from); err == nil {
		if p.Bits() == 0 {
			return "; did you mean external?"
		}
		return "; it is a range of addresses: give one address of it"
	}
	switch strings.ToLower(from) {
	case "all", "any", "both", "everywhere":
		return "; all are tried where --from is left out"
	}
	if strings.Contains(from, ",") {
		return "; it is one of them: run the command once for each"
	}
	return cluster.DidYouMean(from, []string{"pod", "node", "external"})
}

// otherOrigins are words that people have for origins.
var otherOrigins = map[string]string{
	"outside": "external", "internet": "external", "world": "external", "client": "external, pod or pod/NAME",
	"host": "node", "localhost": "node", "local": "node", "pods": "pod", "nodes": "node", "pod": "pod", "node": "node",
	"external": "external",
}

func fromPod(from, namespace, name string, objects *snapshot.Cluster) (*Origin, error) {
	if slices.Contains(objects.Missing, "pods") {
		why := "were not collected (cluster/pods.json)"
		for file, reason := range objects.Unread {
			if strings.Contains(file, "pods") {
				why = "could not be read (" + file + ": " + reason + ")"
			}
		}
		return nil, Usagef("--from %s: pods %s: give the pod's IP address", from, why)
	}
	var elsewhere, names []string
	for _, p := range objects.Pods {
		switch {
		case p.Name != name:
			if p.Namespace == namespace {
				names = append(names, p.Name)
			}
		case p.Namespace != namespace:
			elsewhere = append(elsewhere, p.Namespace)
		case p.Spec.HostNetwork:
			return &Origin{
				kind: expect.FromNode, Node: p.Spec.NodeName, HostNetwork: true, HostPod: namespace + "/" + name, named: true,
			}, nil
		default:
			o := &Origin{kind: expect.FromPod, Pod: namespace + "/" + name, Node: p.Spec.NodeName, named: true}
			for _, ip := range cluster.PodIPs(p) {
				o.families = append(o.families, familyOf(ip))
			}
			if o.families == nil {
				return nil, Usagef("--from %s: pod %s/%s has no IP address (it is %s)", from, namespace, name, p.Status.Phase)
			}
			return o, nil
		}
	}
	if len(elsewhere) > 0 {
		return nil, Usagef("--from %s: there is no pod %q in namespace %q, but in %s: give pod/NAMESPACE/NAME",
			from, name, namespace, Shorten(elsewhere))
	}
	return nil, Usagef("--from %s: there is no pod %q in namespace %q%s", from, name, namespace,
		cluster.DidYouMean(name, names))
}

// fromAddress finds out whose address it is. What is neither a pod's nor a node's comes from outside.
func fromAddress(a netip.Addr, objects *snapshot.Cluster) *Origin {
	o := &Origin{kind: expect.FromExternal, address: a, families: []corev1.IPFamily{familyOf(a)}}
	for _, n := range objects.Nodes {
		for i := range n.Status.Addresses {
			if b, err := netip.ParseAddr(n.Status.Addresses[i].Address); err == nil && b.Unmap() == a {
				o.kind, o.Node = expect.FromNode, n.Name
				return o
			}
		}
	}
	for _, p := range objects.Pods {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !p.Spec.HostNetwork && !ended && slices.Contains(cluster.PodIPs(p), a) {
			o.kind, o.Node, o.Pod = expect.FromPod, p.Spec.NodeName, p.Namespace+"/"+p.Name
			return o
		}
	}
	for _, slice := range objects.EndpointSlices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.NodeName == nil || !slices.ContainsFunc(e.Addresses, func(s string) bool {
				b, err := netip.ParseAddr(s)
				return err == nil && b.Unmap() == a
			}) {
				continue
			}
			o.kind, o.Node = expect.FromPod, *e.NodeName
			if t := e.TargetRef; t != nil && t.Kind == "Pod" {
				o.Pod = cmp.Or(t.Namespace, slice.Namespace) + "/" + t.Name
			}
			return o
		}
	}
	for _, n := range objects.Nodes {
		for _, cidr := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
			if p, err := netip.ParsePrefix(cidr); err == nil && p.Contains(a) {
				o.kind, o.Node = expect.FromPod, n.Name
				return o
			}
		}
	}
	return o
}

// IsNamed tells whether --from names a pod or a node: its packets start on one node, and no other can be meant.
func (o *Origin) IsNamed() bool { return o != nil && o.named }

// IsOutside tells whether packets come from outside of the cluster.
func (o *Origin) IsOutside() bool { return o != nil && o.kind == expect.FromExternal }

// On returns the origin as a node sees it: what another node's pod or process sends comes in from outside.
func (o *Origin) On(node string) *RequestOrigin {
	if o == nil {
		return nil
	}
	f := &RequestOrigin{Kind: o.kind, Address: o.address, Pod: o.Pod}
	if o.address.IsValid() && o.Node != "" && o.Node != node {
		f.Kind, f.Pod = expect.FromExternal, ""
	}
	return f
}

// Reaches tells whether packets to an address can come from there, by the address's family.
func (o *Origin) Reaches(to netip.Addr) bool { return o.canUse(familyOf(to)) }

// canUse tells whether packets of a family can come from there.
func (o *Origin) canUse(f corev1.IPFamily) bool {
	return o == nil || o.families == nil || slices.Contains(o.families, f)
}

// CheckFamilies says what is wrong where the origin, which is --from, has no address of one of the Service's families.
func (o *Origin) CheckFamilies(from string, svc *corev1.Service) error {
	if slices.ContainsFunc(cluster.Families(svc), o.canUse) {
		return nil
	}
	return Usagef("--from %s can send in %s only, and service %s/%s has addresses in %s",
		from, o.families[0], svc.Namespace, svc.Name, svc.Spec.IPFamilies[0])
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
