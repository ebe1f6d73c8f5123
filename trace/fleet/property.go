// SPDX-License-Identifier: Apache-2.0

// Package fleet says of the nodes of a cluster that were judged which have a finding in common, and what those nodes
// share that the others do not have.
package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// maxLabels and maxText bound what is compared of the labels of nodes and of a value, in numbers and bytes.
const (
	maxLabels = 128
	maxText   = 256
)

// properties are what one node is known to have: texts by the name of the property, and times.
type properties struct {
	object bool            // the Node object is known: a label that is not in texts is not there
	long   map[string]bool // but for these, whose values are too long to be compared
	texts  map[string]string
	times  map[string]time.Time
	// read is when a time of times was read, where that was not at the same moment on all nodes.
	read map[string]time.Time
}

// text returns a text, and whether it is known. That of a label that the node does not have is "".
func (p *properties) text(name string) (value string, ok bool) {
	value, ok = p.texts[name]
	return value, ok || p.object && isLabel(name) && !p.long[name]
}

// isLabel tells whether a property is a label of Nodes, which some do not have.
func isLabel(name string) bool {
	return strings.HasPrefix(name, labelPrefix) || name == propZone || name == propRegion || name == propInstance
}

// labelPrefix begins the names of properties that are labels.
const labelPrefix = "label "

// set notes a text that is known.
func (p *properties) set(name, value string) {
	if value != "" && len(value) <= maxText {
		p.texts[name] = value
	}
}

// known are the properties with a name of their own, in the order in which they are said: what a person looks at first,
// first. The others, labels among them, follow by name.
var known = []string{
	propMode, propConfigured, propBackend, propVersion, propHealth, propKernel, propOS, propArch, propRuntime, propKubelet,
	propZone, propRegion, propInstance, propUnschedulable, propSync, propCreated,
}

const (
	propMode          = "proxy mode"
	propConfigured    = "configured proxy mode"
	propBackend       = "iptables backend"
	propVersion       = "kube-proxy version"
	propHealth        = "kube-proxy health"
	propKernel        = "kernel"
	propOS            = "OS image"
	propArch          = "architecture"
	propRuntime       = "container runtime"
	propKubelet       = "kubelet version"
	propZone          = "zone"
	propRegion        = "region"
	propInstance      = "instance type"
	propUnschedulable = "unschedulable"
	propSync          = "last sync of kube-proxy"
	propCreated       = "creation of the Node"
)

// labels are the labels that have a name above, and those that say nothing of their own: they are different on each
// node, or repeat another.
var labels = map[string]string{
	corev1.LabelTopologyZone:               propZone,
	corev1.LabelTopologyRegion:             propRegion,
	corev1.LabelInstanceTypeStable:         propInstance,
	corev1.LabelArchStable:                 "",
	corev1.LabelHostname:                   "",
	corev1.LabelOSStable:                   "",
	"beta.kubernetes.io/arch":              "",
	"beta.kubernetes.io/os":                "",
	corev1.LabelInstanceType:               "",
	corev1.LabelFailureDomainBetaZone:      "",
	corev1.LabelFailureDomainBetaRegion:    "",
	"topology.ebs.csi.aws.com/zone":        "",
	"topology.gke.io/zone":                 "",
	"failure-domain.beta.kubernetes.io/az": "",
}

// rank orders properties as they are said.
func rank(a, b string) int {
	at := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	return cmp.Or(at(a)-at(b), strings.Compare(a, b))
}

// propertiesOf reads what is known of a node: from the Node object, nil where it is not known, and from what was
// found out about kube-proxy there. at is when that was; zero where it was at the same time on all nodes. keys are the
// labels that are compared.
func propertiesOf(n *corev1.Node, keys []string, mode *report.Mode, at time.Time) properties {
	p := properties{texts: map[string]string{}, times: map[string]time.Time{}, read: map[string]time.Time{}}
	if n != nil {
		p.object = true
		i := &n.Status.NodeInfo
		p.set(propKernel, i.KernelVersion)
		p.set(propOS, i.OSImage)
		p.set(propArch, i.Architecture)
		p.set(propRuntime, i.ContainerRuntimeVersion)
		p.set(propKubelet, i.KubeletVersion)
		p.set(propUnschedulable, map[bool]string{true: "true", false: "false"}[n.Spec.Unschedulable])
		if !n.CreationTimestamp.IsZero() {
			p.times[propCreated] = n.CreationTimestamp.Time
		}
		p.setLabels(n.Labels, keys)
	}
	if mode != nil {
		p.setMode(mode)
		if !at.IsZero() {
			p.read[propSync] = at
		}
	}
	return p
}

// setLabels notes of a node's labels those that have a name above, and those with the keys that are compared.
func (p *properties) setLabels(all map[string]string, keys []string) {
	for key, name := range labels {
		if name != "" {
			p.setLabel(name, all[key])
		}
	}
	for _, key := range keys {
		if value, ok := all[key]; ok {
			// A label is often there without a value (node-role.kubernetes.io/worker).
			p.setLabel(labelPrefix+key, cmp.Or(value, noValue))
		}
	}
}

// setLabel notes a label's value, or that it is too long.
func (p *properties) setLabel(name, value string) {
	if len(value) > maxText {
		if p.long == nil {
			p.long = map[string]bool{}
		}
		p.long[name] = true
	}
	p.set(name, value)
}

// describing are words in the keys of labels that software writes about the hardware it found, often hundreds of them
// on a node (https://github.com/kubernetes-sigs/node-feature-discovery, NVIDIA's gpu-feature-discovery). grouping are
// words in those of labels that say to which group of nodes a node belongs, as clouds and people write them.
var (
	describing = []string{"feature.node.kubernetes.io/", "nvidia.com/", "amd.com/gpu", "intel.feature"}
	grouping   = []string{"pool", "group", "role", "topology", "zone", "rack", "image", "provisioner", "lifecycle"}
)

// weightOf is where a label stands among those of which not all are compared: lower comes first.
func weightOf(key string) int {
	has := func(word string) bool { return strings.Contains(key, word) }
	switch {
	case slices.ContainsFunc(describing, has):
		return 2
	case slices.ContainsFunc(grouping, has):
		return 0
	}
	return 1
}

// labelsOf chooses the labels that are compared, by their keys: the same ones of all nodes, so that one that a node
// does not have is known not to be there. Those with the same value on all nodes separate none of them, and are left
// out first.
func labelsOf(nodes []*corev1.Node) []string {
	type values struct {
		first string
		nodes int
		other bool // on some node it has another value
	}
	all := map[string]*values{}
	for _, n := range nodes {
		for key, value := range n.Labels {
			if _, own := labels[key]; own || len(key) > maxText {
				continue
			}
			v := all[key]
			if v == nil {
				v = &values{first: value}
				all[key] = v
			}
			v.nodes++
			v.other = v.other || value != v.first
		}
	}
	keys := make([]string, 0, len(all))
	for key, v := range all {
		if v.other || v.nodes < len(nodes) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(weightOf(a)-weightOf(b), strings.Compare(a, b)) })
	return keys[:min(len(keys), maxLabels)]
}

// noValue stands for the value of a label that is there and empty.
const noValue = `""`

func (p *properties) setMode(m *report.Mode) {
	p.set(propMode, m.Actual)
	p.set(propConfigured, m.Configured)
	p.set(propBackend, m.Backend)
	p.set(propVersion, m.KubeProxyVersion)
	p.set(propHealth, m.Health)
	if t, err := time.Parse(time.RFC3339, m.LastSync); err == nil {
		p.times[propSync] = t
	}
	for i := range m.Values {
		v := &m.Values[i]
		switch v.Name {
		case "mode", "version": // of the rules, above
		default:
			if !v.Inferred() { // what the rules show of a value is not all of it
				p.set("kube-proxy's "+v.Name, v.Value)
			}
		}
	}
}
