// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Classes are the names of the classes of addresses that PathConfig.Allow may have.
func Classes() []string { return plan.Askable() }

// readBackends reads the pods of the Service's namespace: behind which endpoints there is one decides whether the path
// may lead to them.
func (k *PathKeeper) readBackends(ctx context.Context) error {
	return k.session.ReadPods(ctx, cluster.Pods{Namespace: k.target.Service.Namespace})
}

// reach refuses the plan where it takes or reaches addresses of classes that are not allowed, before anybody is asked.
// The helper checks the same, with what it knows of its node.
func (k *PathKeeper) reach() error {
	k.facts = factsOf(k.session.Objects, k.target.Service, k.session.apiServer())
	facts := *k.facts
	if err := ownAddresses(k.files, &facts); err != nil {
		return NotInspected(err)
	}
	k.exposed = k.plan.Exposed(&facts)
	err := k.plan.Expose(&facts, k.config.Allow)
	if refusal, ok := errors.AsType[plan.RefusalError](err); ok {
		return Usagef("%s is not programmed on %s: %w", k.target.Name(), k.config.Node, refusal)
	}
	return err
}

// ownAddresses adds the node's own addresses, as its files have them.
func ownAddresses(files *snapshot.Node, f *plan.Facts) error {
	data, ok, err := files.File(snapshot.AddrFile)
	if err != nil || !ok {
		return err
	}
	s, err := nodestate.Load(snapshot.NewNode(files.Name, map[string][]byte{snapshot.AddrFile: data}))
	if err != nil {
		return err
	}
	f.Bound = append(s.Host.AddressesOn(kubeproxy.IPVSDevice), s.Host.AddressesOn(kubeproxy.ProgramDevice)...)
	f.Own = slices.DeleteFunc(s.Host.Addresses(), func(a netip.Addr) bool { return slices.Contains(f.Bound, a) })
	f.OwnKnown = len(f.Own) > 0
	return nil
}

// apiServer returns where the kubeconfig says that the API server is, where that is an address.
func (s *Session) apiServer() []netip.AddrPort {
	if s.config.Helper.Config == nil {
		return nil
	}
	host := s.config.Helper.Config.Host
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	if at, err := netip.ParseAddrPort(host); err == nil {
		return []netip.AddrPort{at}
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(a, 443)}
	}
	return nil
}

// factsOf returns what a cluster's objects tell of addresses, for a plan of one Service.
func factsOf(objects *snapshot.Cluster, of *corev1.Service, apiServer []netip.AddrPort) *plan.Facts {
	f := &plan.Facts{APIServer: apiServer, IsAPI: isAPI(of.Namespace, of.Name)}
	for _, n := range objects.Nodes {
		for _, a := range n.Status.Addresses {
			f.Nodes = appendAddress(f.Nodes, a.Address)
		}
		for _, c := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(c); err == nil {
				f.PodNetworks = append(f.PodNetworks, p)
			}
		}
	}
	for _, svc := range objects.Services {
		serviceFacts(f, svc, svc.Namespace == of.Namespace && svc.Name == of.Name)
	}
	for _, s := range objects.EndpointSlices {
		sliceFacts(f, s)
	}
	podFacts(f, objects, of)
	return f
}

func isAPI(namespace, name string) bool {
	return namespace == corev1.NamespaceDefault && name == "kubernetes"
}

func appendAddress(list []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return list
	}
	return append(list, a.Unmap())
}

// serviceFacts adds the addresses of a Service.
func serviceFacts(f *plan.Facts, svc *corev1.Service, own bool) {
	var clusterIPs, external []netip.Addr
	for _, ip := range svc.Spec.ClusterIPs {
		clusterIPs = appendAddress(clusterIPs, ip)
	}
	for _, ip := range svc.Spec.ExternalIPs {
		external = appendAddress(external, ip)
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		external = appendAddress(external, in.IP)
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		port := uint16(p.Port) //nolint:gosec // a port
		if isAPI(svc.Namespace, svc.Name) {
			for _, a := range clusterIPs {
				f.APIServer = append(f.APIServer, netip.AddrPortFrom(a, port))
			}
		}
		if own {
			continue
		}
		for _, a := range external {
			f.External = append(f.External, plan.Socket{At: netip.AddrPortFrom(a, port), Protocol: string(p.Protocol)})
		}
	}
	if !own {
		f.ClusterIPs = append(f.ClusterIPs, clusterIPs...)
	}
}

// sliceFacts adds the addresses of Pods that an EndpointSlice names, and those of the API server.
func sliceFacts(f *plan.Facts, s *discoveryv1.EndpointSlice) {
	api := isAPI(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for _, text := range e.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				f.AllPods = append(f.AllPods, a)
			}
			for _, p := range s.Ports {
				if api && p.Port != nil {
					f.APIServer = append(f.APIServer, netip.AddrPortFrom(a, uint16(*p.Port))) //nolint:gosec // a port
				}
			}
		}
	}
}

// podFacts adds the addresses of Pods: those of the Service's namespace apart, and those of its Pods in the network of
// their node, which an EndpointSlice of the Service names at such an address.
func podFacts(f *plan.Facts, objects *snapshot.Cluster, of *corev1.Service) {
	host := map[string][]netip.Addr{}
	for _, p := range objects.Pods {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		switch ips := cluster.PodIPs(p); {
		case ended: // its address may be another's by now
		case p.Spec.HostNetwork && p.Namespace == of.Namespace:
			host[p.Name] = ips
		case p.Spec.HostNetwork:
		case p.Namespace == of.Namespace:
			f.Pods = append(f.Pods, ips...)
		default:
			f.AllPods = append(f.AllPods, ips...)
		}
	}
	for _, s := range objects.EndpointSlices {
		if expect.ServiceOf(s) != expect.NameOf(of) {
			continue
		}
		for i := range s.Endpoints {
			ref := s.Endpoints[i].TargetRef
			if ref == nil || ref.Kind != "Pod" || ref.Namespace != "" && ref.Namespace != of.Namespace {
				continue
			}
			for _, text := range s.Endpoints[i].Addresses {
				if a, err := netip.ParseAddr(text); err == nil && slices.Contains(host[ref.Name], a) {
					f.HostPods = append(f.HostPods, a)
				}
			}
		}
	}
}

// How much of a path is listed to those who are asked.
const (
	listedFrontends = 20
	listedEndpoints = 5
)

// Taken lists what the path takes, and where it leads: one line for each frontend, and one for each address that is
// programmed only as its class is allowed.
func (k *PathKeeper) Taken() []string {
	var out []string
	for i := range k.plan.Frontends[:min(len(k.plan.Frontends), listedFrontends)] {
		f := &k.plan.Frontends[i]
		out = append(out, fmt.Sprintf("%s %s/%s → %s", f.Kind, f.Address, f.Protocol, leads(f)))
	}
	if n := len(k.plan.Frontends) - listedFrontends; n > 0 {
		out = append(out, fmt.Sprintf("… and %s more: --dry-run shows all", counted(n, "frontend")))
	}
	for i := range k.exposed[:min(len(k.exposed), listedFrontends)] {
		out = append(out, fmt.Sprintf("allowed as --allow %s: %s", k.exposed[i].Class, &k.exposed[i]))
	}
	if n := len(k.exposed) - listedFrontends; n > 0 {
		out = append(out, fmt.Sprintf("… and %d more that are allowed", n))
	}
	for i := range out {
		out[i] = safetext.Line(out[i], 500)
	}
	return out
}

// leads says where a frontend leads: to the same for everybody, or for pods, the node and others apart.
func leads(f *plan.Frontend) string {
	same := slices.Equal(f.ForNode.Endpoints, f.ForOthers.Endpoints) &&
		(f.ForPods == nil || slices.Equal(f.ForPods.Endpoints, f.ForOthers.Endpoints))
	if same {
		return endpointList(&f.ForOthers)
	}
	text := "from the node: " + endpointList(&f.ForNode) + "; from others: " + endpointList(&f.ForOthers)
	if f.ForPods != nil {
		text = "from pods: " + endpointList(f.ForPods) + "; " + text
	}
	return text
}

func endpointList(d *plan.Destination) string {
	if len(d.Endpoints) == 0 {
		return "dropped"
	}
	words := make([]string, 0, listedEndpoints)
	for _, e := range d.Endpoints[:min(len(d.Endpoints), listedEndpoints)] {
		words = append(words, e.String())
	}
	text := strings.Join(words, ", ")
	if n := len(d.Endpoints) - listedEndpoints; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
