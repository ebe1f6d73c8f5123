// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestSharesAreSmall: what each of 1,000 nodes is sent of 5,000 Services with 4 endpoints each is not more than 420 KB,
// although addresses, nodes and names of EndpointSlices are random.
func TestSharesAreSmall(t *testing.T) {
	const nodes, services, endpoints, most = 1000, 5000, 4, 420 << 10
	random := rand.New(rand.NewPCG(1, 2))
	created := func() metav1.Time { return metav1.Unix(1_790_000_000+random.Int64N(86400*100), 0) }
	word := func(n int) string {
		out := make([]byte, n)
		for i := range out {
			out[i] = "bcdfghjklmnpqrstvwxz2456789"[random.IntN(27)]
		}
		return string(out)
	}
	c := &snapshot.Cluster{}
	for i := range nodes {
		c.Nodes = append(c.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("worker-%d", i), CreationTimestamp: created(),
				Labels: map[string]string{
					corev1.LabelTopologyZone: "zone-" + string(rune('a'+i%3)), corev1.LabelOSStable: "linux",
				},
			},
			Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", 130+i/250, i%250)}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.%d.%d", i/250, i%250)},
			}},
		})
	}
	yes, tcp, port, name := true, corev1.ProtocolTCP, int32(8080), "http"
	for i := range services {
		namespace, service := fmt.Sprintf("team-%d", i%50), fmt.Sprintf("service-%d", i)
		ip := fmt.Sprintf("10.96.%d.%d", random.IntN(250), random.IntN(250))
		at := created()
		c.Services = append(c.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service, CreationTimestamp: at},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
				SessionAffinity: corev1.ServiceAffinityNone,
				Ports:           []corev1.ServicePort{{Name: name, Protocol: tcp, Port: 80, TargetPort: intstr.FromInt32(port)}},
			},
		})
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: service + "-" + word(5), CreationTimestamp: at, Labels: map[string]string{
					discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
				},
				Annotations: map[string]string{
					corev1.EndpointsLastChangeTriggerTime: at.Add(time.Hour).Format(time.RFC3339Nano),
				},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}},
		}
		for range endpoints {
			on := random.IntN(nodes)
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", 130+on/250, on%250, 2+random.IntN(100))},
				Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: new(bool)},
				NodeName:   &c.Nodes[on].Name,
				TargetRef: &corev1.ObjectReference{
					Kind: "Pod", Namespace: namespace, Name: service + "-" + word(10) + "-" + word(5),
				},
			})
		}
		c.EndpointSlices = append(c.EndpointSlices, s)
	}
	shares := shareOut(c)
	all, err := snapshot.PackObjects(shares.all)
	if err != nil {
		t.Fatal(err)
	}
	own, err := snapshot.PackObjects(shares.own("worker-7"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KB for all, %d KB for one node", len(all)>>10, len(own)>>10)
	if len(all)+len(own) > most {
		t.Errorf("a node is sent %d bytes, and %d of its own: more than %d", len(all), len(own), most)
	}
}
