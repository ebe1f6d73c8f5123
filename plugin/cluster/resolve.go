// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// Resolution is what the API holds of a Service: what clients are told, and which endpoints are behind it.
type Resolution struct {
	Service *corev1.Service
	// Node is the node whose view this is, Zone its zone; "" for the whole cluster's view.
	Node, Zone string
	// NotProxied is the code of why kube-proxy programs nothing for the Service, and Why says it in words; "" where it
	// does.
	NotProxied, Why string
	DNS             DNS
	// Frontends are the Service's addresses. In the cluster's view a NodePort has no valid address: it is every node's.
	Frontends []expect.Frontend
	Endpoints []Endpoint // every endpoint of the ports asked for, port by port
}

// DNS is what the cluster's DNS answers for a Service (github.com/kubernetes/dns, docs/specification.md).
type DNS struct {
	Name    string
	Records []string // "A 10.96.0.10"
	Note    string
}

// Endpoint is one endpoint of one Service port, and whether connections may be sent to it.
type Endpoint struct {
	expect.Usage
	PortName string
	Protocol corev1.Protocol
	// Used is whether traffic of any policy may go there; Reason says why, or why not.
	Used   bool
	Reason string
}

// Resolve says what the API holds of a Service. With a node in the inputs it is that node's view, else the whole
// cluster's.
func Resolve(t *Target, in expect.Inputs) *Resolution {
	svc := t.Service
	exp := expect.New(in)
	r := &Resolution{Service: svc, Node: in.NodeName}
	if in.Node != nil {
		r.Zone = in.Node.Labels[corev1.LabelTopologyZone]
	}
	r.NotProxied, r.Why = exp.Ignored(svc)
	r.Frontends = frontends(exp, t, in.NodeName)
	r.Endpoints = endpoints(exp, t, in.NodeName != "", r.NotProxied != "")
	if r.NotProxied != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone {
		for i := range r.Endpoints {
			if r.Endpoints[i].Used = false; r.Endpoints[i].Ready {
				r.Endpoints[i].Reason = "ready, but kube-proxy does not handle this Service"
			} else {
				r.Endpoints[i].Reason = "not ready"
			}
		}
	}
	r.DNS = dnsOf(svc, r.Endpoints)
	return r
}

// frontends lists the addresses of a Service.
func frontends(exp *expect.Node, t *Target, node string) []expect.Frontend {
	var out []expect.Frontend
	for _, f := range exp.Frontends(t.Service) {
		if node == "" && f.Kind == expect.NodePort || !t.Selects(&f, node) {
			continue
		}
		out = append(out, f)
	}
	if node != "" {
		return out
	}
	for i := range t.Service.Spec.Ports {
		p := &t.Service.Spec.Ports[i]
		if p.NodePort != 0 && t.hasPort(p.Name, protocolOf(p)) && (!t.Address.IsValid() || t.NodePort != 0) {
			out = append(out, expect.Frontend{
				Service: t.Name(), PortName: p.Name, Kind: expect.NodePort, Protocol: protocolOf(p),
				Port: uint16(p.NodePort), //nolint:gosec // the API server takes no other
			})
		}
	}
	return out
}

// endpoints lists every endpoint of the ports asked for, port by port.
func endpoints(exp *expect.Node, t *Target, nodeView, ignored bool) []Endpoint {
	var out []Endpoint
	ports := t.Ports
	if ports == nil {
		ports = t.Service.Spec.Ports
	}
	for _, family := range Families(t.Service) {
		if t.Address.IsValid() && (family == corev1.IPv4Protocol) != t.Address.Is4() {
			continue
		}
		for i := range ports {
			for _, u := range exp.Usage(t.Name(), &ports[i], family) {
				out = append(out, endpoint(&ports[i], u, nodeView, ignored))
			}
		}
		if len(ports) == 0 && ignored {
			for _, e := range exp.Endpoints(t.Name(), nil, family) {
				out = append(out, endpoint(&corev1.ServicePort{}, expect.Usage{Endpoint: e}, nodeView, ignored))
			}
		}
	}
	return out
}

func endpoint(p *corev1.ServicePort, u expect.Usage, nodeView, ignored bool) Endpoint {
	e := Endpoint{Usage: u, PortName: p.Name, Protocol: protocolOf(p)}
	switch {
	case ignored:
		// DNS gives out what is ready; for publishNotReadyAddresses the controller marks everything so.
		e.Used, e.Reason = u.Ready, "not ready, so not in DNS"
		if u.Ready {
			e.Reason = "ready, so DNS returns it"
		}
	case nodeView:
		e.Used = u.Cluster.Used || u.Local.Used
		e.Reason = bothReasons(&u)
	case !u.Cluster.NotFollowed:
		e.Used, e.Reason = u.Cluster.Used, u.Cluster.Why
	default: // everything follows policy Local: each node uses its own
		e.Used, e.Reason = u.Ready, "not ready"
		if u.Ready {
			e.Reason = "ready, for clients on its own node (policy Local)"
		}
	}
	return e
}

// bothReasons says in one clause what the traffic policies make of an endpoint. A policy that nothing follows is left
// out.
func bothReasons(u *expect.Usage) string {
	switch {
	case u.Local.NotFollowed || u.Cluster == u.Local:
		return u.Cluster.Why
	case u.Cluster.NotFollowed:
		return u.Local.Why
	}
	return "policy Cluster: " + u.Cluster.Why + "; policy Local: " + u.Local.Why
}

// dnsOf says what the cluster's DNS answers.
func dnsOf(svc *corev1.Service, endpoints []Endpoint) DNS {
	d := DNS{Name: svc.Name + "." + svc.Namespace + ".svc.cluster.local"}
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		d.Records = []string{"CNAME " + svc.Spec.ExternalName}
		d.Note = "clients get another name, and connect to that: no Service address and no proxy is involved"
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		for i := range endpoints {
			rec := recordOf(endpoints[i].Address.Addr().String())
			if endpoints[i].Ready && !slices.Contains(d.Records, rec) {
				d.Records = append(d.Records, rec)
			}
		}
		d.Note = "headless: clients get the endpoints' own addresses, and connect to those"
		if len(d.Records) == 0 {
			d.Note = "headless, and no endpoint is ready: the name does not resolve"
		}
	default:
		for _, ip := range AddressesOf(svc) {
			d.Records = append(d.Records, recordOf(ip))
		}
	}
	return d
}

func recordOf(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return "AAAA " + ip
	}
	return "A " + ip
}
