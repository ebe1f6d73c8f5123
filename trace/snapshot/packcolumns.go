// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// columns are what differs most from object to object, taken out of the objects: lists that are each of one kind are
// packed to two thirds of what they are in their places. Each list has an element for each object that it is about, in
// their order; "" and 0 stand for what has stayed in its place.
type columns struct {
	// ClusterIPs are those of Services that have one.
	ClusterIPs []string `json:"i,omitempty"`
	// Owners say how many Services further in their list that of an EndpointSlice is than that of the one before, and
	// Names how its name goes on behind the Service's. An empty name: the owner has stayed in its place.
	Owners []int    `json:"o,omitempty"`
	Names  []string `json:"n,omitempty"`
	// Addresses and Nodes are those of all endpoints; of Nodes the places in their list, from 1 on.
	Addresses []string `json:"a,omitempty"`
	Nodes     []int    `json:"w,omitempty"`
	// ServiceTimes, SliceTimes and NodeTimes say when objects were created, in seconds: EndpointSlices how long after the
	// Service of the one before, or of their own. Triggers are how long after that an EndpointSlice's endpoints changed.
	// noTime: there is none, or it has stayed in its place.
	ServiceTimes []int64 `json:"ts,omitempty"`
	SliceTimes   []int64 `json:"te,omitempty"`
	NodeTimes    []int64 `json:"tn,omitempty"`
	Triggers     []int64 `json:"tt,omitempty"`
}

// noTime is further away than any time of an object.
const noTime = -1 << 40

// takeTime takes a time out of an object.
func takeTime(t *metav1.Time, since int64) int64 {
	if t.IsZero() {
		return noTime
	}
	at := t.Unix() - since
	*t = metav1.Time{}
	return at
}

// putTime puts a time back. The error is for one that no object has.
func putTime(t *metav1.Time, at, since int64) error {
	switch {
	case at == noTime:
	case at < noTime || at > -noTime:
		return errColumns
	default:
		*t = metav1.Unix(since+at, 0)
	}
	return nil
}

// takeTrigger takes from an EndpointSlice when its endpoints changed, if that is told to the second.
func takeTrigger(o *discoveryv1.EndpointSlice, since int64) int64 {
	text, ok := o.Annotations[corev1.EndpointsLastChangeTriggerTime]
	at, err := time.Parse(time.RFC3339, text)
	if !ok || err != nil || at.UTC().Format(time.RFC3339) != text {
		return noTime
	}
	left := make(map[string]string, len(o.Annotations))
	for k, v := range o.Annotations {
		if k != corev1.EndpointsLastChangeTriggerTime {
			left[k] = v
		}
	}
	o.Annotations = left
	return at.Unix() - since
}

// takeColumns takes columns out of objects, of which it makes copies.
func takeColumns(
	c *Cluster,
) (services []*corev1.Service, endpoints []*discoveryv1.EndpointSlice, bareNodes []*corev1.Node, out columns) {
	place := make(map[[2]string]int, len(c.Services))
	for i, o := range c.Services {
		place[[2]string{o.Namespace, o.Name}] = i
		bare, ip := *o, ""
		if list := o.Spec.ClusterIPs; len(list) == 1 && list[0] == o.Spec.ClusterIP {
			ip, bare.Spec.ClusterIP, bare.Spec.ClusterIPs = list[0], "", nil
		}
		out.ServiceTimes = append(out.ServiceTimes, takeTime(&bare.CreationTimestamp, 0))
		services, out.ClusterIPs = append(services, &bare), append(out.ClusterIPs, ip)
	}
	nodes := make(map[string]int, len(c.Nodes))
	for i, o := range c.Nodes {
		bare := *o
		out.NodeTimes = append(out.NodeTimes, takeTime(&bare.CreationTimestamp, 0))
		bareNodes = append(bareNodes, &bare)
		nodes[o.Name] = i + 1
	}
	before := 0
	for _, o := range c.EndpointSlices {
		bare := *o
		owner, name := takeOwner(&bare, place, before)
		if name != "" {
			before += owner
		}
		out.Owners, out.Names = append(out.Owners, owner), append(out.Names, name)
		since := int64(0)
		if len(c.Services) > 0 {
			since = secondsOf(&c.Services[before].CreationTimestamp)
		}
		out.SliceTimes = append(out.SliceTimes, takeTime(&bare.CreationTimestamp, since))
		out.Triggers = append(out.Triggers, takeTrigger(&bare, since))
		bare.Endpoints = slices.Clone(o.Endpoints)
		for k := range bare.Endpoints {
			out.takeEndpoint(&bare.Endpoints[k], nodes)
		}
		endpoints = append(endpoints, &bare)
	}
	return services, endpoints, bareNodes, out
}

// secondsOf is a time in seconds; 0 for none.
func secondsOf(t *metav1.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// takeOwner takes from an EndpointSlice its Service and its name. before is the place of the last one's Service.
func takeOwner(o *discoveryv1.EndpointSlice, place map[[2]string]int, before int) (owner int, name string) {
	service := o.Labels[discoveryv1.LabelServiceName]
	at, ok := place[[2]string{o.Namespace, service}]
	name, named := strings.CutPrefix(o.Name, service+"-")
	if !ok || !named || name == "" {
		return 0, ""
	}
	labels := make(map[string]string, len(o.Labels))
	for k, v := range o.Labels {
		if k != discoveryv1.LabelServiceName {
			labels[k] = v
		}
	}
	o.Labels, o.Name, o.Namespace = labels, "", ""
	return at - before, name
}

// takeEndpoint takes from an endpoint its address and its node.
func (x *columns) takeEndpoint(e *discoveryv1.Endpoint, nodes map[string]int) {
	address, node := "", 0
	if len(e.Addresses) == 1 {
		address, e.Addresses = e.Addresses[0], nil
	}
	if e.NodeName != nil {
		if node = nodes[*e.NodeName]; node > 0 {
			e.NodeName = nil
		}
	}
	x.Addresses, x.Nodes = append(x.Addresses, address), append(x.Nodes, node)
}

var errColumns = errors.New("the objects and the lists of what was taken out of them do not fit")

// putColumns puts columns into the objects that they were taken from.
func (p *packedObjects) putColumns() error {
	endpoints := 0
	for _, o := range p.EndpointSlices {
		endpoints += len(o.Endpoints)
	}
	x := &p.Columns
	for _, fit := range [][2]int{
		{len(x.ClusterIPs), len(p.Services)},
		{len(x.ServiceTimes), len(p.Services)},
		{len(x.NodeTimes), len(p.Nodes)},
		{len(x.Owners), len(p.EndpointSlices)},
		{len(x.Names), len(p.EndpointSlices)},
		{len(x.SliceTimes), len(p.EndpointSlices)},
		{len(x.Triggers), len(p.EndpointSlices)},
		{len(x.Addresses), endpoints},
		{len(x.Nodes), endpoints},
	} {
		if fit[0] != fit[1] {
			return errColumns
		}
	}
	errs := make([]error, 0, len(p.Services)+len(p.Nodes))
	for i, o := range p.Services {
		if ip := x.ClusterIPs[i]; ip != "" {
			o.Spec.ClusterIP, o.Spec.ClusterIPs = ip, []string{ip}
		}
		errs = append(errs, putTime(&o.CreationTimestamp, x.ServiceTimes[i], 0))
	}
	for i, o := range p.Nodes {
		errs = append(errs, putTime(&o.CreationTimestamp, x.NodeTimes[i], 0))
	}
	if err := errors.Join(errs...); err != nil {
		return errColumns
	}
	at, service := 0, 0
	for i, o := range p.EndpointSlices {
		if x.Names[i] != "" {
			if service += x.Owners[i]; service < 0 || service >= len(p.Services) {
				return errColumns
			}
			of := p.Services[service]
			if o.Labels == nil {
				o.Labels = map[string]string{}
			}
			o.Labels[discoveryv1.LabelServiceName] = of.Name
			o.Name, o.Namespace = of.Name+"-"+x.Names[i], of.Namespace
		}
		if err := p.putTimes(o, service, x.SliceTimes[i], x.Triggers[i]); err != nil {
			return err
		}
		for k := range o.Endpoints {
			if err := p.putEndpoint(&o.Endpoints[k], x.Addresses[at], x.Nodes[at]); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// putTimes puts the times of an EndpointSlice back. service is the place of the last one whose place is known.
func (p *packedObjects) putTimes(o *discoveryv1.EndpointSlice, service int, created, trigger int64) error {
	since := int64(0)
	if service < len(p.Services) {
		since = secondsOf(&p.Services[service].CreationTimestamp)
	}
	var at metav1.Time
	if err := errors.Join(putTime(&o.CreationTimestamp, created, since), putTime(&at, trigger, since)); err != nil {
		return errColumns
	}
	if trigger != noTime {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		o.Annotations[corev1.EndpointsLastChangeTriggerTime] = at.UTC().Format(time.RFC3339)
	}
	return nil
}

func (p *packedObjects) putEndpoint(e *discoveryv1.Endpoint, address string, node int) error {
	if node < 0 || node > len(p.Nodes) {
		return errColumns
	}
	if address != "" {
		e.Addresses = []string{address}
	}
	if node > 0 {
		e.NodeName = &p.Nodes[node-1].Name
	}
	return nil
}
