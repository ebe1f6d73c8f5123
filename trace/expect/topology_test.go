// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCategorize(t *testing.T) {
	annotated := func(key, value string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Annotations = map[string]string{key: value} }
	}
	zones := []string{"10.244.1.11 node1 zone=zone-a", "10.244.2.12 node2 zone=zone-b", "10.244.3.13 node3 zone=zone-a"}
	nodes := []string{
		"10.244.1.11 node1 zone=zone-a for-node=node1", "10.244.2.12 node2 zone=zone-b for-node=node2",
		"10.244.3.13 node3 zone=zone-a for-node=node3",
	}
	for _, c := range []struct {
		name           string
		version        string
		lines          []string
		mods           []func(*corev1.Service)
		config         func(*Inputs)
		cluster, local string
	}{
		{
			name:    "terminating ones stand in",
			lines:   []string{"10.244.1.11 node1 not-ready serving terminating", "10.244.2.12 node2 not-ready terminating"},
			cluster: "11", local: "11",
		},
		{
			name:  "not while one is ready",
			lines: []string{"10.244.1.11 node1 not-ready serving terminating", "10.244.2.12 node2"}, cluster: "12", local: "11",
		},
		{name: "serving alone does not help", lines: []string{"10.244.1.11 node1 not-ready serving"}, cluster: "", local: ""},
		{
			name:  "ready before terminating, locally",
			lines: []string{"10.244.1.11 node1 not-ready serving terminating", "10.244.1.12 node1"}, cluster: "12", local: "12",
		},
		{
			name: "gate off in 1.27", version: "v1.27.0", lines: []string{"10.244.1.11 node1 not-ready serving terminating"},
			config: func(in *Inputs) { in.Config.FeatureGates = map[string]bool{"ProxyTerminatingEndpoints": false} },
		},
		{name: "zone hints", lines: zones, cluster: "11 13", local: "11"},
		{
			name: "one without a hint", lines: append([]string{"10.244.1.10 node1"}, zones...), cluster: "10 11 12 13",
			local: "10 11",
		},
		{
			name: "one without a hint that is not ready", lines: append([]string{"10.244.1.10 node1 not-ready"}, zones...),
			cluster: "11 13", local: "11",
		},
		{name: "none for this zone", lines: zones[1:2], cluster: "12"},
		{
			name: "node without a zone", lines: zones, config: func(in *Inputs) { in.Node.Labels = nil },
			cluster: "11 12 13", local: "11",
		},
		{name: "node hints", lines: nodes, cluster: "11", local: "11"},
		{name: "node hints in 1.33", version: "v1.33.0", lines: nodes, cluster: "11 13", local: "11"},
		{
			name: "node hints in 1.33, gate on", version: "v1.33.0", lines: nodes,
			config: func(in *Inputs) { in.Config.FeatureGates = map[string]bool{"AllAlpha": true} }, cluster: "11", local: "11",
		},
		{
			name: "node hints in 1.34, gate off", version: "v1.34.0", lines: nodes,
			config:  func(in *Inputs) { in.Config.FeatureGates = map[string]bool{"PreferSameTrafficDistribution": false} },
			cluster: "11 13", local: "11",
		},
		{name: "no hint for this node", lines: nodes[1:], cluster: "13"},
		{name: "zone hints in 1.30 need the annotation", version: "v1.30.0", lines: zones, cluster: "11 12 13", local: "11"},
		{
			name: "zone hints in 1.30 with it", version: "v1.30.0", lines: zones,
			mods: []func(*corev1.Service){annotated(corev1.AnnotationTopologyMode, "Auto")}, cluster: "11 13", local: "11",
		},
		{
			name: "zone hints in 1.30 with it disabled", version: "v1.30.0", lines: zones,
			mods:    []func(*corev1.Service){annotated(corev1.AnnotationTopologyMode, "Disabled")},
			cluster: "11 12 13", local: "11",
		},
		{name: "zone hints in 1.31", version: "v1.31.0", lines: zones, cluster: "11 13", local: "11"},
		{
			name: "zone hints in 1.31 are not read without their gate", version: "v1.31.0", lines: zones,
			config:  func(in *Inputs) { in.Config.FeatureGates = map[string]bool{"TopologyAwareHints": false} },
			cluster: "11 12 13", local: "11",
		},
		{
			name: "zone hints in 1.26", version: "v1.26.0", lines: zones,
			mods:    []func(*corev1.Service){annotated(corev1.DeprecatedAnnotationTopologyAwareHints, "auto")},
			cluster: "11 13", local: "11",
		},
		{
			name: "the other annotation in 1.26", version: "v1.26.0", lines: zones,
			mods: []func(*corev1.Service){annotated(corev1.AnnotationTopologyMode, "Auto")}, cluster: "11 12 13", local: "11",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			mods := append([]func(*corev1.Service){loadBalancer, etpLocal}, c.mods...)
			in := testInputs(testService(mods...), testSlice("a", c.lines...))
			if in.Config.Version = c.version; c.version == "" {
				in.Config.Version = "v1.37.1"
			}
			if c.config != nil {
				c.config(&in)
			}
			n := New(in)
			if got := last(n.Path(clusterFrontend, aPod).Endpoints); got != c.cluster {
				t.Errorf("policy Cluster: got %q, want %q", got, c.cluster)
			}
			if got := last(n.Path(vipFrontend, outsider).Endpoints); got != c.local {
				t.Errorf("policy Local: got %q, want %q", got, c.local)
			}
		})
	}
}

func TestZoneNotKnown(t *testing.T) {
	in := testInputs(testService(), testSlice("a", "10.244.1.11 node1 zone=zone-a"))
	in.Node = nil
	if p := New(in).Path(clusterFrontend, aPod); p.Unsure == "" {
		t.Errorf("got %+v", p)
	}
}
