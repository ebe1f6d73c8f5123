// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"encoding/json"
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
	PartServices   = "Services"
	PartEndpoints  = "endpoints"
	PartNodes      = "Nodes"
	PartPodObjects = "Pods" // those of endpoints
)

// Objects compares the API objects of two captures: what of Services and Nodes decides about paths, the endpoints of
// each Service, however they are cut into EndpointSlices, and the state of their Pods. left is how many differences are
// not listed; not are the kinds that are not compared, as one side has not read them.
func Objects(before, after *snapshot.Cluster) (changes []report.Change, left int, not []report.NotCompared) {
	c := &comparison{a: cluster(before), b: cluster(after), count: map[string]int{}}
	c.objects()
	c.order()
	for _, n := range c.count {
		left += max(n-maxChanges, 0)
	}
	return c.out.Changes, left, c.out.NotCompared
}

// cluster lists the API objects of a capture. An EndpointSlice and a Pod that came or went are told by the endpoints.
func cluster(of *snapshot.Cluster) *Facts {
	f := &Facts{objects: map[key]*Object{}, unread: map[source]string{}}
	for part, kind := range map[string]string{PartNodes: "nodes", PartPodObjects: "pods"} {
		if slices.Contains(of.Missing, kind) {
			f.unread[source{part, ""}] = ""
		}
		for file, text := range of.Unread {
			if strings.HasPrefix(file, "cluster/"+kind+".") {
				f.unread[source{part, ""}] = file + ": " + text
			}
		}
	}
	for _, s := range of.Services {
		o := f.object(PartServices, s.Namespace+"/"+s.Name, "")
		o.fields("", s.Spec)
		o.fields("loadBalancer", s.Status.LoadBalancer)
		o.fields("service-proxy-name", s.Labels["service.kubernetes.io/service-proxy-name"])
		f.object(PartEndpoints, s.Namespace+"/"+s.Name, "")
	}
	for _, n := range of.Nodes {
		o := f.object(PartNodes, n.Name, "")
		o.fields("podCIDRs", append(slices.Clone(n.Spec.PodCIDRs), n.Spec.PodCIDR))
		for _, a := range n.Status.Addresses {
			o.add(string(a.Type) + " " + a.Address)
		}
		o.fields("zone", n.Labels[corev1.LabelTopologyZone])
		for _, a := range snapshot.NodeAnnotations {
			o.fields(a, n.Annotations[a])
		}
	}
	ends := f.endpoints(of)
	for _, p := range of.Pods {
		ips := []string{p.Status.PodIP}
		for _, ip := range p.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		if !slices.ContainsFunc(ips, func(ip string) bool { return ends[ip] }) {
			continue
		}
		o := f.object(PartPodObjects, p.Namespace+"/"+p.Name, "")
		o.weak = true
		slices.Sort(ips)
		o.fields("addresses", slices.Compact(ips))
		o.fields("phase", p.Status.Phase)
		o.fields("node", p.Spec.NodeName)
		for _, x := range p.Status.Conditions {
			if x.Type == corev1.PodReady {
				o.fields("ready", x.Status)
			}
		}
		if p.DeletionTimestamp != nil {
			o.add("deletion requested")
		}
		for i := range p.Status.ContainerStatuses {
			if s := &p.Status.ContainerStatuses[i]; !s.Ready { // of those that are ready a dump has none
				o.add("container " + s.Name + " " + containerText(s))
			}
		}
	}
	for _, o := range f.objects {
		sortLines(o.Lines)
	}
	return f
}

// fields adds a line for each field of a value of the API, by its path; none for what is empty.
func (o *Object) fields(path string, value any) {
	data, err := json.Marshal(value)
	var v any
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		o.unread = err.Error()
		return
	}
	o.flat(path, v)
}

func (o *Object) flat(path string, value any) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			o.flat(strings.TrimPrefix(path+"."+name, "."), v[name])
		}
	case []any:
		var words []string
		for i, x := range v {
			if of, ok := x.(map[string]any); ok {
				name := any(i)
				if of["name"] != nil {
					name = of["name"]
				}
				o.flat(fmt.Sprintf("%s[%v]", path, name), of)
			} else if text := fmt.Sprint(x); text != "" && !slices.Contains(words, text) {
				words = append(words, text)
			}
		}
		o.flat(path, strings.Join(words, " "))
	default:
		if text := fmt.Sprint(v); text != "" {
			o.add(path + " " + text)
		}
	}
}

// pointer is what a pointer points to; the zero value for nil.
func pointer[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// endpoints lists the endpoints of each Service with their conditions, and returns their addresses.
func (f *Facts) endpoints(of *snapshot.Cluster) map[string]bool {
	all, seen := map[string]bool{}, map[string]bool{}
	for _, s := range of.EndpointSlices {
		o := f.object(PartEndpoints, s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName], "")
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			for _, a := range e.Addresses {
				all[a] = true
				for _, p := range s.Ports {
					text := report.JoinHostPort(a, pointer(p.Port))
					if n := pointer(p.Name); n != "" {
						text += " " + n
					}
					if proto := pointer(p.Protocol); proto != "" && proto != corev1.ProtocolTCP {
						text += " " + string(proto)
					}
					if text += " " + conditions(e); !seen[o.Name+" "+text] {
						seen[o.Name+" "+text] = true
						o.add(text)
					}
				}
			}
		}
	}
	return all
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
