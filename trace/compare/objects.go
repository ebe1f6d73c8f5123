// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The parts of API objects.
const (
	PartServices  = "Services"
	PartEndpoints = "endpoints"
	PartNodes     = "Nodes"
	// PartPodObjects are the Pods of endpoints.
	PartPodObjects = "Pods"
)

// fields are the fields of an object, or its endpoints.
type fields map[string]string

type objects struct {
	changes []report.Change
	left    int
	not     []report.NotCompared
}

// Objects compares the API objects of two captures: what of Services and Nodes decides about paths, the endpoints of
// each Service, however they are cut into EndpointSlices, and the state of their Pods. left is how many differences are
// not listed; not are the kinds that are not compared, as one side has not read them.
func Objects(before, after *snapshot.Cluster) (changes []report.Change, left int, not []report.NotCompared) {
	x := &objects{}
	x.compare(PartServices, services(before), services(after))
	x.compare(PartEndpoints, endpoints(before), endpoints(after))
	if x.both(PartPodObjects, "pods", before, after) {
		a, b := pods(before), pods(after)
		// What comes and goes is among the endpoints.
		maps.DeleteFunc(a, func(name string, _ fields) bool { return b[name] == nil })
		maps.DeleteFunc(b, func(name string, _ fields) bool { return a[name] == nil })
		x.compare(PartPodObjects, a, b)
	}
	if x.both(PartNodes, "nodes", before, after) {
		x.compare(PartNodes, nodes(before), nodes(after))
	}
	return x.changes, x.left, x.not
}

// both tells whether both sides have read the objects of a kind, and notes it where one has not.
func (x *objects) both(part, kind string, before, after *snapshot.Cluster) bool {
	side := func(name string, of *snapshot.Cluster) reading {
		out := reading{side: name, unread: slices.Contains(of.Missing, kind)}
		for file, text := range of.Unread {
			if strings.HasPrefix(file, "cluster/"+kind+".") {
				out.why = file + ": " + text
			}
		}
		return out
	}
	a, b := side("before", before), side("after", after)
	if why := whyNot(a, b); why != "" {
		x.not = append(x.not, report.NotCompared{Part: part, Why: why})
	}
	return !a.unread && !b.unread
}

func (x *objects) add(c report.Change) {
	if len(x.changes) >= maxChanges {
		x.left++
		return
	}
	c.Place, c.Before, c.After = cut(c.Place), cut(c.Before), cut(c.After)
	x.changes = append(x.changes, c)
}

// compare compares objects of a kind by their names.
func (x *objects) compare(part string, a, b map[string]fields) {
	names := map[string]bool{}
	for n := range a {
		names[n] = true
	}
	for n := range b {
		names[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		left, inA := a[n]
		right, inB := b[n]
		c := report.Change{Part: part, Place: n}
		switch {
		case !inA && part != PartEndpoints:
			c.Change, c.After = report.Added, right.text()
			x.add(c)
		case !inB && part != PartEndpoints:
			c.Change, c.Before = report.Removed, left.text()
			x.add(c)
		default:
			x.fields(c, left, right)
		}
	}
}

// fields compares the fields of an object.
func (x *objects) fields(c report.Change, a, b fields) {
	all := maps.Clone(a)
	if all == nil {
		all = fields{}
	}
	maps.Copy(all, b)
	for _, f := range slices.Sorted(maps.Keys(all)) {
		left, inA := a[f]
		right, inB := b[f]
		if left == right && inA == inB {
			continue
		}
		d := c
		name := strings.TrimSpace(f + " ")
		switch {
		case !inA:
			d.Change, d.After = report.Added, strings.TrimSpace(name+" "+right)
		case !inB:
			d.Change, d.Before = report.Removed, strings.TrimSpace(name+" "+left)
		default:
			d.Change, d.Before, d.After = report.Changed, strings.TrimSpace(name+" "+left), strings.TrimSpace(name+" "+right)
		}
		x.add(d)
	}
}

// text is a short form of the fields.
func (f fields) text() string {
	var out []string
	for _, name := range []string{"type", "clusterIPs", "ports"} {
		if f[name] != "" {
			out = append(out, f[name])
		}
	}
	return strings.Join(out, " ")
}

// services lists what of Services decides about paths.
func services(c *snapshot.Cluster) map[string]fields {
	out := make(map[string]fields, len(c.Services))
	for _, s := range c.Services {
		f := fields{}
		put := func(name, value string) {
			if value != "" {
				f[name] = value
			}
		}
		spec := &s.Spec
		put("type", string(spec.Type))
		ips := spec.ClusterIPs
		if len(ips) == 0 && spec.ClusterIP != "" {
			ips = []string{spec.ClusterIP}
		}
		put("clusterIPs", strings.Join(ips, " "))
		var ports []string
		for _, p := range spec.Ports {
			text := fmt.Sprintf("%s %d/%s→%s", p.Name, p.Port, p.Protocol, p.TargetPort.String())
			if p.NodePort != 0 {
				text += fmt.Sprintf(" nodePort %d", p.NodePort)
			}
			ports = append(ports, strings.TrimSpace(text))
		}
		put("ports", strings.Join(ports, ", "))
		put("externalIPs", strings.Join(spec.ExternalIPs, " "))
		put("loadBalancerClass", pointer(spec.LoadBalancerClass))
		put("loadBalancerSourceRanges", strings.Join(spec.LoadBalancerSourceRanges, " "))
		put("externalTrafficPolicy", string(spec.ExternalTrafficPolicy))
		put("internalTrafficPolicy", string(pointer(spec.InternalTrafficPolicy)))
		put("trafficDistribution", pointer(spec.TrafficDistribution))
		if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
			text := string(spec.SessionAffinity)
			if a := spec.SessionAffinityConfig; a != nil && a.ClientIP != nil && a.ClientIP.TimeoutSeconds != nil {
				text += fmt.Sprintf(" %ds", *a.ClientIP.TimeoutSeconds)
			}
			put("sessionAffinity", text)
		}
		if spec.HealthCheckNodePort != 0 {
			put("healthCheckNodePort", fmt.Sprint(spec.HealthCheckNodePort))
		}
		var lb []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			lb = append(lb, strings.TrimSpace(i.IP+i.Hostname+" "+string(pointer(i.IPMode))))
		}
		put("loadBalancer", strings.Join(lb, ", "))
		put("service-proxy-name", s.Labels["service.kubernetes.io/service-proxy-name"])
		out[s.Namespace+"/"+s.Name] = f
	}
	return out
}

// pointer is what a pointer points to; the zero value for nil.
func pointer[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// endpoints lists the endpoints of each Service with their conditions.
func endpoints(c *snapshot.Cluster) map[string]fields {
	out := map[string]fields{}
	for _, s := range c.EndpointSlices {
		name := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
		f := out[name]
		if f == nil {
			f = fields{}
			out[name] = f
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			text := conditions(e)
			for _, a := range e.Addresses {
				for _, p := range s.Ports {
					at := report.JoinHostPort(a, pointer(p.Port))
					if n := pointer(p.Name); n != "" {
						at += " " + n
					}
					if proto := pointer(p.Protocol); proto != "" && proto != corev1.ProtocolTCP {
						at += " " + string(proto)
					}
					f[at] = text
				}
			}
		}
	}
	return out
}

// conditions says what of an endpoint decides whether it is used.
func conditions(e *discoveryv1.Endpoint) string {
	var words []string
	switch c := e.Conditions; {
	case pointer(c.Terminating) && pointer(c.Serving):
		words = append(words, "terminating, serving")
	case pointer(c.Terminating):
		words = append(words, "terminating")
	case c.Ready == nil || *c.Ready:
		words = append(words, "ready")
	default:
		words = append(words, "not ready")
	}
	if n := pointer(e.NodeName); n != "" {
		words = append(words, "on "+n)
	}
	if h := e.Hints; h != nil {
		for _, z := range h.ForZones {
			words = append(words, "for zone "+z.Name)
		}
		for _, n := range h.ForNodes {
			words = append(words, "for node "+n.Name)
		}
	}
	return strings.Join(words, " ")
}

// nodes lists what of Nodes decides about paths.
func nodes(c *snapshot.Cluster) map[string]fields {
	out := make(map[string]fields, len(c.Nodes))
	for _, n := range c.Nodes {
		f := fields{}
		if n.Spec.PodCIDR != "" || len(n.Spec.PodCIDRs) > 0 {
			f["podCIDRs"] = strings.Join(n.Spec.PodCIDRs, " ")
			if len(n.Spec.PodCIDRs) == 0 {
				f["podCIDRs"] = n.Spec.PodCIDR
			}
		}
		var addrs []string
		for _, a := range n.Status.Addresses {
			addrs = append(addrs, string(a.Type)+" "+a.Address)
		}
		slices.Sort(addrs)
		f["addresses"] = strings.Join(addrs, ", ")
		if z := n.Labels[corev1.LabelTopologyZone]; z != "" {
			f["zone"] = z
		}
		for _, a := range snapshot.NodeAnnotations {
			if value := n.Annotations[a]; value != "" {
				f[a] = value
			}
		}
		out[n.Name] = f
	}
	return out
}

// pods lists the state of the Pods that are endpoints: where they run, and why containers do not.
func pods(c *snapshot.Cluster) map[string]fields {
	ends := map[string]bool{}
	for _, s := range c.EndpointSlices {
		for i := range s.Endpoints {
			for _, a := range s.Endpoints[i].Addresses {
				ends[a] = true
			}
		}
	}
	out := map[string]fields{}
	for _, p := range c.Pods {
		ips := []string{p.Status.PodIP}
		for _, ip := range p.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		if !slices.ContainsFunc(ips, func(ip string) bool { return ends[ip] }) {
			continue
		}
		slices.Sort(ips)
		f := fields{
			"phase": string(p.Status.Phase), "addresses": strings.Join(slices.Compact(ips), " "), "node": p.Spec.NodeName,
		}
		for _, x := range p.Status.Conditions {
			if x.Type == corev1.PodReady {
				f["ready"] = string(x.Status)
			}
		}
		if p.DeletionTimestamp != nil {
			f["deletion"] = "requested"
		}
		for i := range p.Status.ContainerStatuses {
			// Of those that are ready a dump has none.
			if s := &p.Status.ContainerStatuses[i]; !s.Ready {
				f["container "+s.Name] = containerText(s)
			}
		}
		out[p.Namespace+"/"+p.Name] = f
	}
	return out
}

// containerText says why a container is not ready.
func containerText(s *corev1.ContainerStatus) string {
	text := "not ready"
	switch {
	case s.State.Waiting != nil:
		text += ", waiting: " + s.State.Waiting.Reason
	case s.State.Terminated != nil:
		text += ", ended: " + s.State.Terminated.Reason
	}
	if t := s.LastTerminationState.Terminated; t != nil {
		text += fmt.Sprintf(", before that ended: %s %d", t.Reason, t.ExitCode)
	}
	return text
}
