// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// some are Services of a namespace, each with so many external IPs.
func some(namespace string, count, externalIPs int) (out []*corev1.Service) {
	for i := range count {
		svc := testService()
		svc.Namespace, svc.Name = namespace, fmt.Sprintf("s%05d", i)
		for k := range externalIPs {
			svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, fmt.Sprintf("198.18.%d.%d", k/256, k%256))
		}
		out = append(out, svc)
	}
	return out
}

// What the Services of a namespace take beyond its share is left out, the dearest of them first, and of no other
// namespace anything.
func TestANamespaceHasItsShare(t *testing.T) {
	with, _ := costOf(some("a", 1, 1)[0], nil)
	without, _ := costOf(some("a", 1, 0)[0], nil)
	dear := bounds.Work / 100 / (with - without) // external IPs: a hundred such Services take all
	services := slices.Concat(some("tenant", 300, dear), some("shop", 20, dear), some("web", 500, 0))
	cheap := some("tenant", 1, 0)[0]
	cheap.Name = "cheap"
	services = append(services, cheap)
	l := loadsOf(services, nil, nil)
	left := map[string]int{}
	for name := range l.beyond {
		left[name.Namespace]++
	}
	total := 0
	for name, cost := range l.cost {
		if l.beyond[name] == "" {
			total += cost
		}
	}
	if len(left) != 1 || left["tenant"] < 220 || left["tenant"] > 230 || l.beyond[NameOf(cheap)] != "" {
		t.Errorf("left out: %v", left)
	}
	if total > bounds.Work || total < bounds.Work*9/10 {
		t.Errorf("%d is judged of %d", total, bounds.Work)
	}
	if l := loadsOf(services[300:], nil, nil); len(l.beyond) > 0 {
		t.Errorf("without the tenant %d are left out", len(l.beyond))
	}
	// Two that need more than there is have the same.
	l = loadsOf(slices.Concat(some("a", 300, dear), some("b", 200, dear)), nil, nil)
	left = map[string]int{}
	for name := range l.beyond {
		left[name.Namespace]++
	}
	if a, b := 300-left["a"], 200-left["b"]; a != b {
		t.Errorf("%d Services of one are judged, and %d of the other", a, b)
	}
}

// The endpoints of a namespace's Services take their share of memory, and of no other namespace any.
func TestANamespaceHasItsShareOfMemory(t *testing.T) {
	const size = 20_000
	slice := testSlice("s")
	for i := range size {
		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", i/250, i%250)}})
	}
	services := slices.Concat(some("tenant", 30, 0), some("shop", 3, 0))
	index := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, svc := range services {
		index[NameOf(svc)] = []*discoveryv1.EndpointSlice{slice}
	}
	l := loadsOf(services, index, nil)
	total := 0
	for _, svc := range services {
		_, takes := costOf(svc, index[NameOf(svc)])
		if takes < size*len(svc.Spec.Ports)*(endpointMemory+reportMemory) {
			t.Fatalf("%d bytes for %d endpoints", takes, size)
		}
		switch why := l.beyond[NameOf(svc)]; {
		case why == "":
			total += takes
		case svc.Namespace != "tenant" || !strings.Contains(why, "take more than "+bounds.Bytes(bounds.Endpoints)):
			t.Errorf("%s: %s", NameOf(svc), why)
		}
	}
	if total > bounds.Endpoints || total < bounds.Endpoints*9/10 {
		t.Errorf("those that are judged take %d bytes of %d", total, bounds.Endpoints)
	}
	plain, local := testService(), testService()
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	_, less := costOf(plain, index[NameOf(services[0])])
	_, more := costOf(local, index[NameOf(services[0])])
	if more < less*3/2 {
		t.Errorf("with a list of endpoints of the node it takes %d bytes, without %d", more, less)
	}
}

// Lists of endpoints of which chance decides which one kube-proxy has are counted before they are made, and are not
// made where they would be many endpoints together.
func TestListsOfDuplicatesAreCounted(t *testing.T) {
	for _, size := range []int{20, 2000} {
		svc := testService()
		in := testInputs(svc)
		in.Slices = nil
		for k := range 4 {
			s := testSlice(fmt.Sprintf("web-%d", k))
			for i := range size {
				ready := i > 3 || i == k
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
					Addresses:  []string{fmt.Sprintf("10.244.%d.%d", i/250, i%250)},
					Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: new(k == 0)},
				})
			}
			in.Slices = append(in.Slices, s)
		}
		c := New(in).collect(NameOf(svc), &svc.Spec.Ports[0], 0, false)
		if c.unsure == "" || len(c.allowed) > 1 != (size == 20) {
			t.Errorf("of %d endpoints there are %d lists: %q", size, len(c.allowed), c.unsure)
		}
		_, takes := costOf(svc, in.Slices)
		if least := (len(c.allowed) + 1) * size * endpointMemory; takes < least {
			t.Errorf("counted as %d bytes, and are %d", takes, least)
		}
	}
}

// Of many Services at one address those are asked that have the endpoint which packets come to; it is not found by
// comparing each with each.
func TestManyServicesAtOneAddress(t *testing.T) {
	const count = 200
	services := some("tenant", count, 1)
	own := services[0]
	in := testInputs(own)
	in.Services, in.Slices = services, nil
	for i, svc := range services {
		s := testSlice("s", fmt.Sprintf("10.244.%d.%d node1", i/100+1, i%100+1))
		s.Namespace, s.Name, s.Labels = svc.Namespace, svc.Name, map[string]string{discoveryv1.LabelServiceName: svc.Name}
		in.Slices = append(in.Slices, s)
	}
	n := New(in)
	f := n.Frontends(own)
	i := slices.IndexFunc(f, func(f Frontend) bool { return f.Kind == ExternalIP })
	if i < 0 {
		t.Fatal(f)
	}
	of := services[150]
	port := n.Endpoints(NameOf(of), &of.Spec.Ports[0], corev1.IPv4Protocol)
	if len(port) != 1 {
		t.Fatal(port)
	}
	got := n.Answers(f[i], outsider, port[0].Address)
	if len(got) != 2 || got[0].Frontend.Service != NameOf(own) || got[1].Frontend.Service != NameOf(of) {
		t.Errorf("got %q", answersText(got))
	}
	if got := n.Answers(f[i], outsider, netip.AddrPort{}); len(got) != 1 {
		t.Errorf("nothing is translated: got %q", answersText(got))
	}
	for _, s := range in.Slices { // all have the same endpoint
		s.Endpoints = in.Slices[0].Endpoints
	}
	in.Index = nil
	n = New(in)
	got = n.Answers(f[i], outsider, n.Endpoints(NameOf(of), &of.Spec.Ports[0], corev1.IPv4Protocol)[0].Address)
	if last := got[len(got)-1]; len(got) > bounds.Claimants+2 || last.Unsure == "" {
		t.Errorf("%d answers, the last of which is %q", len(got), last.Unsure)
	}
}

// A Service that is not judged still claims its addresses and ports: of who shares one it is not known who is served.
func TestAServiceThatIsNotJudgedHasItsClaims(t *testing.T) {
	large, small := some("tenant", 1, 5000)[0], some("shop", 1, 1)[0]
	large.Spec.ClusterIP, large.Spec.ClusterIPs, large.Spec.Ports = "10.96.99.99", []string{"10.96.99.99"}, nil
	for i := range 100 {
		large.Spec.Ports = append(large.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprint("p", i), Port: int32(80 + i), Protocol: corev1.ProtocolTCP,
		})
	}
	in := testInputs(small)
	in.Services = []*corev1.Service{large, small}
	n := New(in)
	if n.Beyond(large) == "" || n.Beyond(small) != "" || len(n.Frontends(large)) > 0 {
		t.Fatalf("%q, %q, %d frontends", n.Beyond(large), n.Beyond(small), len(n.Frontends(large)))
	}
	a := netip.MustParseAddr("198.18.0.0")
	if !n.Claimed(a, 179, corev1.ProtocolTCP) || n.Claimed(a, 180, corev1.ProtocolTCP) ||
		n.Claimed(a, 80, corev1.ProtocolUDP) || n.Claimed(netip.MustParseAddr("198.19.0.0"), 80, corev1.ProtocolTCP) ||
		!n.ClaimsAddress(a) {
		t.Error("its claims are others")
	}
	for _, f := range n.Frontends(small) {
		p := n.Path(f, outsider)
		if shared := f.Kind == ExternalIP; shared != (p.Unsure != "") {
			t.Errorf("%v: %q", f, p.Unsure)
		}
		if f.Kind != ExternalIP {
			continue
		}
		if got := n.Answers(f, outsider, netip.AddrPort{}); len(got) != 2 || got[0].Unsure != "" || got[1].Unsure == "" {
			t.Errorf("answers: %q", answersText(got))
		}
	}
}
