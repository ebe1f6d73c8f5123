// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// BenchmarkPass shows where the time of a pass goes, on a captured node with 5,000 Services: loading its files,
// indexing the objects, judging, and judging again with what the judgement before has
// left, after a change of one endpoint.
func BenchmarkPass(b *testing.B) {
	c, of := capture(b, "scale-iptables", "node1"), capture(b, "iptables", "node1")
	for _, name := range []string{snapshot.AddrFile, snapshot.RouteFile, snapshot.Route6File} { // of the same machine
		data, _, err := of.node.File(name)
		if err != nil {
			b.Fatal(err)
		}
		c.node = c.node.With(name, data)
	}
	state, err := nodestate.LoadToCompare(c.node)
	if err != nil {
		b.Fatal(err)
	}
	index := judge.NewCluster(c.cluster)
	request := judge.Request{Backwards: true, PerPathService: true}
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if _, err := nodestate.Load(c.node); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			judge.NewCluster(c.cluster)
		}
	})
	b.Run("judge", func(b *testing.B) {
		for b.Loop() {
			judge.Node(index, state, request)
		}
	})
	// One endpoint of one Service is another one each time, in the API and in the rules.
	type reading struct {
		index *judge.Cluster
		state *nodestate.State
	}
	readings := []reading{{index, state}, {}}
	objects, files := withOtherEndpoint(b, c)
	if readings[1].state, err = nodestate.LoadToCompare(files); err != nil {
		b.Fatal(err)
	}
	readings[1].index = judge.NewCluster(objects)
	b.Run("judge again", func(b *testing.B) {
		memory := judge.Memory{}
		request := request
		request.Memory = &memory
		judge.Node(index, state, request)
		i := 0
		for b.Loop() {
			i++
			r := readings[i%2]
			judge.Node(r.index, r.state, request)
		}
		if memory.Reused == 0 {
			b.Fatal("nothing is reused")
		}
		b.ReportMetric(float64(memory.Anew), "anew")
		b.ReportMetric(float64(memory.Reused), "reused")
	})
}

// withOtherEndpoint returns the objects and files of a node of which one Service has another endpoint.
func withOtherEndpoint(b *testing.B, c *captured) (*snapshot.Cluster, *snapshot.Node) {
	b.Helper()
	objects := *c.cluster
	objects.EndpointSlices = slices.Clone(objects.EndpointSlices)
	i := slices.IndexFunc(objects.EndpointSlices, func(s *discoveryv1.EndpointSlice) bool {
		return len(s.Endpoints) > 0 && s.Labels[discoveryv1.LabelServiceName] != "kubernetes"
	})
	s := objects.EndpointSlices[i].DeepCopy()
	before, after := s.Endpoints[0].Addresses[0], "10.255.255.7"
	s.Endpoints[0].Addresses[0] = after
	objects.EndpointSlices[i] = s
	rules, _, err := c.node.File(snapshot.IPTablesFile)
	if err != nil {
		b.Fatal(err)
	}
	other := bytes.ReplaceAll(rules, []byte(before+":"), []byte(after+":"))
	other = bytes.ReplaceAll(other, []byte(before+"/32"), []byte(after+"/32"))
	if bytes.Equal(rules, other) {
		b.Fatalf("no rule has %s", before)
	}
	return &objects, c.node.With(snapshot.IPTablesFile, other)
}
