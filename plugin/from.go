// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const fromHelp = "Where the packet comes from: pod, pod/NAME, pod/NAMESPACE/NAME, node, external, or an IP address. " +
	"Default: pod and node for cluster IPs, external and node for the rest"

// sender is --from, looked up: who sends, and on which node.
type sender struct {
	kind    expect.OriginKind // "" when it depends on the node
	address netip.Addr
	pod     string // namespace/name
	node    string // that it is on, where known; the packet enters there
	hostNet bool
	// families that it can send in; nil: any.
	families []corev1.IPFamily
}

// findSender looks --from up in a cluster or snapshot; nil means the default origins.
func findSender(ctx context.Context, sc *scene, from, namespace string) (*sender, error) {
	var which cluster.Pods
	if name, ok := strings.CutPrefix(from, "pod/"); ok {
		which.Namespace, which.Name = podName(name, namespace)
	} else if a, err := netip.ParseAddr(from); err == nil {
		which.Address = a.Unmap()
	}
	if which.Name != "" || which.Address.IsValid() {
		if err := sc.readPods(ctx, which); err != nil {
			return nil, err
		}
	}
	return parseFrom(from, namespace, sc.objects)
}

// podName parts NAMESPACE/NAME or NAME.
func podName(text, namespace string) (ns, name string) {
	if ns, name, ok := strings.Cut(text, "/"); ok {
		return ns, name
	}
	return namespace, text
}

// parseFrom looks --from up; nil means the default origins.
func parseFrom(from, namespace string, objects *snapshot.Cluster) (*sender, error) {
	switch from {
	case "":
		return nil, nil
	case "pod", "node", "external":
		return &sender{kind: expect.OriginKind(from)}, nil
	}
	if name, ok := strings.CutPrefix(from, "pod/"); ok {
		namespace, name = podName(name, namespace)
		return fromPod(from, namespace, name, objects)
	}
	if a, err := netip.ParseAddr(from); err == nil {
		return fromAddress(a.Unmap(), objects), nil
	}
	return nil, usagef("--from %q is none of pod, pod/NAME, pod/NAMESPACE/NAME, node, external and an IP address", from)
}

func fromPod(from, namespace, name string, objects *snapshot.Cluster) (*sender, error) {
	if slices.Contains(objects.Missing, "pods") {
		return nil, usagef("--from %s: pods were not collected (cluster/pods.json): give the pod's IP address", from)
	}
	var elsewhere []string
	for _, p := range objects.Pods {
		switch {
		case p.Name != name:
		case p.Namespace != namespace:
			elsewhere = append(elsewhere, p.Namespace)
		case p.Spec.HostNetwork:
			return &sender{kind: expect.FromNode, node: p.Spec.NodeName, hostNet: true}, nil
		default:
			s := &sender{kind: expect.FromPod, pod: namespace + "/" + name, node: p.Spec.NodeName}
			for _, ip := range podIPs(p) {
				s.families = append(s.families, familyOf(ip))
			}
			if s.families == nil {
				return nil, usagef("--from %s: pod %s/%s has no IP address (it is %s)", from, namespace, name, p.Status.Phase)
			}
			return s, nil
		}
	}
	if len(elsewhere) > 0 {
		return nil, usagef("--from %s: there is no pod %q in namespace %q, but in %s: give pod/NAMESPACE/NAME", from, name, namespace, shorten(elsewhere))
	}
	return nil, usagef("--from %s: there is no pod %q in namespace %q", from, name, namespace)
}

// fromAddress finds out whose address it is. What is neither a pod's nor a node's comes from outside.
func fromAddress(a netip.Addr, objects *snapshot.Cluster) *sender {
	s := &sender{kind: expect.FromExternal, address: a, families: []corev1.IPFamily{familyOf(a)}}
	for _, n := range objects.Nodes {
		for i := range n.Status.Addresses {
			if b, err := netip.ParseAddr(n.Status.Addresses[i].Address); err == nil && b.Unmap() == a {
				s.kind, s.node = expect.FromNode, n.Name
				return s
			}
		}
	}
	for _, p := range objects.Pods {
		if !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && slices.Contains(podIPs(p), a) {
			s.kind, s.node, s.pod = expect.FromPod, p.Spec.NodeName, p.Namespace+"/"+p.Name
			return s
		}
	}
	for _, n := range objects.Nodes {
		for _, cidr := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
			if p, err := netip.ParsePrefix(cidr); err == nil && p.Contains(a) {
				s.kind, s.node = expect.FromPod, n.Name
				return s
			}
		}
	}
	return s
}

// on returns the origin as a node sees it: what another node's pod or process sends comes in from outside.
func (s *sender) on(node string) *diagnose.From {
	if s == nil {
		return nil
	}
	f := &diagnose.From{Kind: s.kind, Address: s.address, Pod: s.pod}
	if s.address.IsValid() && s.node != "" && s.node != node {
		f.Kind, f.Pod = expect.FromExternal, ""
	}
	return f
}

// speaks tells whether the sender can send in a family.
func (s *sender) speaks(f corev1.IPFamily) bool {
	return s == nil || s.families == nil || slices.Contains(s.families, f)
}

// reaches checks that the sender has an address of one of the Service's families.
func (s *sender) reaches(from string, svc *corev1.Service) error {
	if slices.ContainsFunc(cluster.Families(svc), s.speaks) {
		return nil
	}
	return usagef("--from %s can send in %s only, and service %s/%s has addresses in %s", from, s.families[0], svc.Namespace, svc.Name, svc.Spec.IPFamilies[0])
}

func podIPs(p *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, text := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if a, err := netip.ParseAddr(text.IP); err == nil && !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	return out
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
