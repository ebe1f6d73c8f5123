// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestDuplicates(t *testing.T) {
	running, dying := "10.244.1.11 node1", "10.244.1.11 node2 not-ready terminating"
	for _, c := range []struct {
		name    string
		version string
		slices  []*discoveryv1.EndpointSlice
		ready   bool
		slice   int // how many slices the endpoint stands in
		unsure  bool
	}{
		{"running first", "v1.37.1", []*discoveryv1.EndpointSlice{testSlice("a", running, dying)}, true, 1, false},
		{"running last", "v1.37.1", []*discoveryv1.EndpointSlice{testSlice("a", dying, running)}, true, 1, false},
		{
			"two slices", "v1.37.1",
			[]*discoveryv1.EndpointSlice{testSlice("b", dying), testSlice("a", running)},
			true, 2, false,
		},
		{
			"both running, in other conditions", "v1.37.1",
			[]*discoveryv1.EndpointSlice{testSlice("b", running), testSlice("a", "10.244.1.11 node1 not-ready")},
			true, 2, true,
		},
		{
			"the same twice", "v1.37.1",
			[]*discoveryv1.EndpointSlice{testSlice("b", running), testSlice("a", running)},
			true, 2, false,
		},
		{
			"before 1.36 the local one", "v1.31.0", []*discoveryv1.EndpointSlice{testSlice("a", dying, running)}, true, 1, false,
		},
		{
			"before 1.36 the first", "v1.31.0",
			[]*discoveryv1.EndpointSlice{testSlice("a", "10.244.1.11 node2 not-ready", "10.244.1.11 node2")},
			false, 1, false,
		},
		{
			"a patch may have it", "v1.34.2",
			[]*discoveryv1.EndpointSlice{testSlice("a", "10.244.1.11 node2 not-ready terminating", "10.244.1.11 node2")},
			true, 1, true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := testInputs(testService(), c.slices...)
			in.Config.Version = c.version
			n := New(in)
			eps := n.Endpoints(clusterFrontend.Service, &in.Services[0].Spec.Ports[0], corev1.IPv4Protocol)
			if len(eps) != 1 || eps[0].Ready != c.ready || len(eps[0].Slices) != c.slice {
				t.Errorf("got %+v", eps)
			}
			if p := n.Path(clusterFrontend, aPod); (p.Unsure != "") != c.unsure {
				t.Errorf("unsure: %q", p.Unsure)
			}
		})
	}
}

func TestEndpointsOfOtherPortsAndFamilies(t *testing.T) {
	udp := testSlice("udp", "10.244.1.1 node1")
	udp.Ports[0].Protocol = new(corev1.ProtocolUDP)
	otherName := testSlice("name", "10.244.1.2 node1")
	otherName.Ports[0].Name = new("metrics")
	noPort := testSlice("none", "10.244.1.3 node1")
	noPort.Ports[0].Port = nil
	zero := testSlice("zero", "10.244.1.4 node1")
	zero.Ports[0].Port = new(int32(0))
	six := testSlice("six", "fd00::5 node1")
	six.AddressType = discoveryv1.AddressTypeIPv6
	unseen := testSlice("unseen", "10.244.1.6 node1")
	unseen.Labels[labelHeadless] = ""
	good := testSlice("good", "010.244.001.7 node1", "10.244.0.9 node1")
	in := testInputs(testService(), udp, otherName, noPort, zero, six, unseen, good)
	n := New(in)
	eps := n.Endpoints(clusterFrontend.Service, &in.Services[0].Spec.Ports[0], corev1.IPv4Protocol)
	if last(eps) != "9 7" || eps[0].Address.Port() != 8080 {
		t.Errorf("got %+v", eps)
	}
}

func TestEndpointsOfHeadless(t *testing.T) {
	slice := testSlice("a", "10.244.1.11 node1")
	slice.Labels[labelHeadless] = ""
	in := testInputs(testService(func(s *corev1.Service) { s.Spec.ClusterIP = "None" }), slice)
	if eps := New(in).Endpoints(clusterFrontend.Service, nil, corev1.IPv4Protocol); last(eps) != "11" ||
		eps[0].Address.Port() != 0 {
		t.Errorf("got %+v", eps)
	}
}
