// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Two running pods with one address: connections reach whichever was found last. A pod that has ended, one that is
// being removed, and those that share the node's address have none of their own.
func TestAddressOfTwoPods(t *testing.T) {
	const has = "faults-54ff54844f-gm94n" // on node1, 10.245.1.5
	ips := []corev1.PodIP{{IP: "10.245.1.5"}, {IP: "fd00:10:245:1::5"}}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		listed bool // the twin has another address by the API, and that one by its own listing
		found  bool
	}{
		"on another node":  {change: func(p *corev1.Pod) { p.Spec.NodeName = "node2" }, found: true},
		"on the same node": {change: func(*corev1.Pod) {}, found: true},
		"it has ended":     {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"it is being removed": {change: func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}},
		"it has the node's address":  {change: func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		"by the pod's own listing":   {listed: true, found: true, change: otherAddress},
		"another address, not asked": {change: otherAddress},
	} {
		t.Run(name, func(t *testing.T) {
			c, files := openSnapshot(t, "testdata/faults/iptables-neighbours/healthy", "node1")
			changed := *c
			changed.Pods = slices.Clone(c.Pods)
			for _, p := range c.Pods {
				if p.Name == has {
					twin := p.DeepCopy()
					twin.Name, twin.Status.PodIPs = "twin", ips
					tt.change(twin)
					changed.Pods = append(changed.Pods, twin)
				}
			}
			req := Request{Services: []types.NamespacedName{{Namespace: "svcproxy-e2e", Name: "faults"}}, Matching: true}
			if tt.listed {
				req.Others = func(of Owner) (*snapshot.Node, error) {
					if of.Pod != "svcproxy-e2e/twin" {
						return nil, nil
					}
					return snapshot.NewNode(of.Node, map[string][]byte{
						snapshot.AddrFile: []byte(`[{"ifindex":2,"ifname":"eth0","flags":["UP"],"addr_info":[{"family":"inet",` +
							`"local":"10.245.1.5","prefixlen":24},{"family":"inet6","local":"fd00:10:245:1::5","prefixlen":64}]}]`),
						snapshot.LinkFile: []byte(`[{"ifindex":2,"ifname":"eth0","flags":["UP"],"address":"02:00:00:00:00:01"}]`),
					}), nil
				}
			}
			got := Files(&changed, files, req)
			if len(got.Paths) == 0 {
				t.Fatal("no paths", got.Error)
			}
			for i := range got.Paths {
				p := &got.Paths[i]
				found := slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == AddressOfTwoPods })
				if found != tt.found || tt.found == (p.Verdict == report.Match) {
					t.Errorf("%s from %s is %s, found %v: %+v", p.Frontend.Address, p.Origin.Kind, p.Verdict, found, p.Findings)
				}
			}
		})
	}
}

func otherAddress(p *corev1.Pod) {
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.245.1.200"}, {IP: "fd00:10:245:1::200"}}
}
