// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels that exclude a Service, or an EndpointSlice, from kube-proxy's informers (cmd/kube-proxy/app/server.go, Run).
const (
	labelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless         = corev1.IsHeadlessService
)

// Labels are those of Services and EndpointSlices by which it is decided what is due.
var Labels = []string{labelServiceProxyName, labelHeadless, discoveryv1.LabelServiceName}

// defaultAffinitySeconds is the API's default for sessionAffinityConfig.clientIP.timeoutSeconds.
const defaultAffinitySeconds = 10800

// NameOf returns the name of a Service as Inputs and Frontend have it.
func NameOf(svc *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
}

// ServiceOf returns the name of the Service that an EndpointSlice is of; without Name where it is of none.
func ServiceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// service is what kube-proxy computes of one Service. It is filled in on first use.
type service struct {
	once sync.Once
	svc  *corev1.Service
	name types.NamespacedName

	reason, why string // why kube-proxy ignores it
	beyond      string // why nothing is expected of it: that would take too much
	families    [2]*familyService
	order       []int // of families, as in spec.ipFamilies
	affinity    int32
	itpLocal    bool
	etpLocal    bool
	proxied     []netip.Addr // load-balancer IPs with ipMode Proxy
}

// familyService is one IP family of a Service (pkg/proxy/serviceport.go, newBaseServiceInfo).
type familyService struct {
	clusterIP     netip.Addr
	externalIPs   []netip.Addr   // in order of address
	vips          []netip.Addr   // load-balancer IPs with ipMode VIP, in order of address
	ranges        []netip.Prefix // loadBalancerSourceRanges; empty: no restriction
	allowFromNode bool           // the node's own IP is in one of the ranges
	ports         []servicePort  // as spec.ports
}

// service returns what is known of a Service, nil when there is none of that name.
func (n *Node) service(name types.NamespacedName) *service {
	s := n.services[name]
	if s != nil {
		s.once.Do(func() { n.fill(s) })
	}
	return s
}

// of returns what is known of a Service object; it need not be one of Inputs.Services.
func (n *Node) of(svc *corev1.Service) *service {
	if s := n.services[NameOf(svc)]; s != nil && s.svc == svc {
		return n.service(s.name)
	}
	s := &service{svc: svc, name: NameOf(svc)}
	n.fill(s)
	return s
}

func (n *Node) fill(s *service) {
	svc := s.svc
	if s.reason, s.why = n.features.ignored(svc); s.reason != "" {
		return
	}
	if s.beyond = n.in.Index.beyond[s.name]; s.beyond != "" {
		return
	}
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.affinity = defaultAffinitySeconds
		if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			s.affinity = *c.ClientIP.TimeoutSeconds
		}
	}
	s.itpLocal = svc.Spec.InternalTrafficPolicy != nil &&
		*svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	s.etpLocal = n.externalPolicyLocal(svc)
	for i, family := range familiesOf(svc) {
		ip, ok := kubeproxy.ParseAddr(clusterIPOf(svc, i))
		if !ok || s.families[family] != nil {
			continue
		}
		s.order = append(s.order, family)
		s.families[family] = n.fillFamily(s, family, ip)
	}
	if len(s.order) == 0 {
		s.reason, s.why = ReasonNotForKubeProxy, "it has no cluster IP of a family of its spec.ipFamilies"
	}
}

// externalPolicyLocal says whether externalTrafficPolicy Local holds (pkg/api/v1/service/util.go). Up to 1.28 it did so
// only for the types NodePort and LoadBalancer; since 1.29 also for a ClusterIP Service with external IPs
// (kubernetes/kubernetes#119150).
func (n *Node) externalPolicyLocal(svc *corev1.Service) bool {
	if svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return false
	}
	switch svc.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeClusterIP, "":
		return n.features.externalLocal && len(svc.Spec.ExternalIPs) > 0
	case corev1.ServiceTypeExternalName:
	}
	return false
}

func (n *Node) fillFamily(s *service, family int, clusterIP netip.Addr) *familyService {
	svc := s.svc
	f := &familyService{clusterIP: clusterIP}
	// externalIPs of the API count here even where the gate is off (serviceport.go, ExternallyAccessible)
	accessible := false
	for _, ip := range svc.Spec.ExternalIPs {
		if a, ok := kubeproxy.ParseAddr(ip); ok && familyIndex(a) == family {
			accessible = true
			if n.features.externalIPs {
				f.externalIPs = append(f.externalIPs, a)
			}
		}
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		ing := &svc.Status.LoadBalancer.Ingress[i]
		a, ok := kubeproxy.ParseAddr(ing.IP)
		if !ok || familyIndex(a) != family {
			continue
		}
		if n.features.ipMode && ing.IPMode != nil && *ing.IPMode != corev1.LoadBalancerIPModeVIP {
			s.proxied = append(s.proxied, a)
			continue
		}
		f.vips = append(f.vips, a)
		accessible = true
	}
	f.externalIPs, f.vips = sortedUnique(f.externalIPs), sortedUnique(f.vips)
	for _, r := range svc.Spec.LoadBalancerSourceRanges {
		if p, ok := kubeproxy.ParsePrefix(strings.TrimSpace(r)); ok && familyIndex(p.Addr()) == family {
			f.ranges = append(f.ranges, p)
		}
	}
	if slices.ContainsFunc(f.ranges, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		f.ranges = nil
	}
	f.allowFromNode = contains(f.ranges, n.nodeIPs[family])
	f.ports = make([]servicePort, len(svc.Spec.Ports))
	for i := range svc.Spec.Ports {
		n.fillPort(s, &f.ports[i], &svc.Spec.Ports[i], family, accessible || svc.Spec.Ports[i].NodePort != 0)
	}
	return f
}

func sortedUnique(as []netip.Addr) []netip.Addr {
	if len(as) < 2 {
		return as
	}
	slices.SortFunc(as, netip.Addr.Compare)
	return slices.Compact(as)
}

func contains(ps []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ignored returns why kube-proxy programs nothing for a Service (pkg/proxy/util/utils.go, ShouldSkipService, and the
// informers' selectors in cmd/kube-proxy/app/server.go: until 1.35 one for Services and EndpointSlices alike, of two
// labels; since 1.36 service-proxy-name hides Services, and headless hides EndpointSlices).
func (f *features) ignored(svc *corev1.Service) (reason, why string) {
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return ReasonExternalName, "it is of type ExternalName: DNS answers with the name " + svc.Spec.ExternalName +
			", no proxy rule is expected"
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return ReasonHeadless, "it is headless: DNS answers with the addresses of its endpoints, no proxy rule is expected"
	}
	if name, ok := svc.Labels[labelServiceProxyName]; ok {
		return ReasonNotForKubeProxy, "its label " + labelServiceProxyName + "=" + name + " leaves it to another proxy"
	}
	if _, ok := svc.Labels[labelHeadless]; ok && f.oneSelector {
		return ReasonNotForKubeProxy, "its label " + labelHeadless + " hides it from kube-proxy"
	}
	switch {
	case svc.Spec.ClusterIP == "":
		return ReasonNotForKubeProxy, "it has no cluster IP yet"
	case len(svc.Spec.Ports) == 0:
		return ReasonNotForKubeProxy, "it has no port"
	}
	return "", ""
}

// familiesOf returns the families of a Service as indices, in the order of spec.ipFamilies; where these are not set,
// the family of its cluster IP (pkg/proxy/util/utils.go, GetClusterIPByFamily).
func familiesOf(svc *corev1.Service) []int {
	if len(svc.Spec.IPFamilies) == 0 {
		if strings.Contains(svc.Spec.ClusterIP, ":") {
			return []int{1}
		}
		return []int{0}
	}
	out := make([]int, 0, 2)
	for _, f := range svc.Spec.IPFamilies {
		out = append(out, indexOf(f))
	}
	return out
}

func indexOf(f corev1.IPFamily) int {
	if f == corev1.IPv6Protocol {
		return 1
	}
	return 0
}

func clusterIPOf(svc *corev1.Service, i int) string {
	switch {
	case len(svc.Spec.IPFamilies) == 0:
		return svc.Spec.ClusterIP
	case i < len(svc.Spec.ClusterIPs):
		return svc.Spec.ClusterIPs[i]
	}
	return ""
}
