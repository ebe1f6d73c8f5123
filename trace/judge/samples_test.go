// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// originsFound are the origins of a Service's paths: "KIND ADDRESS POD", with "sample" behind those that nobody asked
// for.
func (w *capturedNode) originsFound(service string, from *From) []string {
	w.t.Helper()
	r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{Matching: true, PerPathService: true, From: from})
	if r.Error != "" {
		w.t.Fatal(r.Error)
	}
	var out []string
	for i := range r.Paths {
		p := &r.Paths[i]
		o := &p.Origin
		if p.Service.Namespace+"/"+p.Service.Name != service || strings.Contains(p.Frontend.Address, ":") {
			continue
		}
		line := o.Kind + " " + o.Address
		if o.Pod != "" {
			line += " " + o.Pod
		}
		if o.Sample {
			line += " sample"
		}
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func TestASampleIsARealPodWhereOneIsKnown(t *testing.T) {
	node := "node 10.77.0.11"
	for _, c := range []struct {
		name string
		do   func(w *capturedNode)
		want []string
	}{
		{
			"a pod of pods.json that is not an endpoint", func(w *capturedNode) { w.withPods("10.244.1.200") },
			[]string{node, "pod 10.244.1.200 shop/client-a sample"},
		},
		{
			"of the pods of pods.json those that are not endpoints first",
			func(w *capturedNode) { w.withPods("10.244.1.16", "10.244.1.200") },
			[]string{node, "pod 10.244.1.200 shop/client-b sample"},
		},
		{
			"an endpoint of another Service, where it has the node's name", func(*capturedNode) {},
			[]string{node, "pod 10.244.1.16 shop/pod-11 sample"},
		},
		{
			"an address of the pod network, where none is known", func(w *capturedNode) { w.noPods() },
			[]string{node, "pod 10.244.1.254 sample"},
		},
		{
			"not the endpoint behind the frontend", func(w *capturedNode) {
				for _, s := range w.cluster.EndpointSlices {
					if s.Labels["kubernetes.io/service-name"] != "ep3" {
						for i := range s.Endpoints {
							s.Endpoints[i].NodeName = nil
						}
					}
				}
			},
			[]string{node, "pod 10.244.1.254 sample"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			c.do(w)
			if got := w.originsFound("shop/ep3", nil); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheOutsideSampleIsOutside(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *capturedNode)
		want string
	}{
		{"as it is", func(*capturedNode) {}, "external 192.0.2.77 sample"},
		{
			"a node has an address of the first network",
			func(w *capturedNode) {
				w.cluster.Nodes[1].Status.Addresses = append(w.cluster.Nodes[1].Status.Addresses,
					corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.77"})
			},
			"external 198.18.0.77 sample",
		},
		{
			"pods have addresses of the first two networks",
			func(w *capturedNode) {
				w.cluster.Nodes[1].Spec.PodCIDRs = append(w.cluster.Nodes[1].Spec.PodCIDRs, "198.18.0.0/16")
				w.cluster.Nodes[2].Spec.PodCIDRs = append(w.cluster.Nodes[2].Spec.PodCIDRs, "192.0.2.0/24")
			},
			"external 203.0.113.177 sample",
		},
		{
			"Services have cluster IPs of the first network",
			func(w *capturedNode) {
				w.service("shop/ep1").Spec.ClusterIP = "192.0.2.1"
				w.service("shop/ep1").Spec.ClusterIPs = []string{"192.0.2.1"}
			},
			"external 198.18.0.77 sample",
		},
		{
			"the Service allows the first network",
			func(w *capturedNode) { w.service("shop/np").Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
			"external 198.18.0.77 sample",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			c.do(w)
			got := w.originsFound("shop/np", nil)
			if !slices.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAFirewallThatDropsWhatNobodyCanHaveIsNoFault: lists of such networks have those for documentation. So it is where
// kube-proxy's version is not known, and what is expected is found anew once it has been read from the rules.
func TestAFirewallThatDropsWhatNobodyCanHaveIsNoFault(t *testing.T) {
	for _, version := range []string{"known", "not known"} {
		t.Run("the version is "+version, func(t *testing.T) {
			open := func() *capturedNode {
				w := openCaptured(t, "iptables")
				if version == "not known" {
					delete(w.files, snapshot.MetricsFile)
				}
				return w
			}
			before := facts(open().run())
			w := open()
			w.files["ipset-save.txt"] = []byte("create bogons hash:net family inet hashsize 1024 maxelem 65536\n" +
				"add bogons 192.0.2.0/24\nadd bogons 198.18.0.0/15\nadd bogons 198.51.100.0/24\nadd bogons 203.0.113.0/24\n")
			w.addTable(v4, "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"+
				"-A PREROUTING -m set --match-set bogons src -j DROP\nCOMMIT\n")
			for path, is := range facts(w.run()) {
				if strings.HasPrefix(is, "Mismatch") && !strings.Contains(path, " LoadBalancerIP ") { // that has ranges
					t.Errorf("%s: %s, was %q", path, is, before[path])
				}
			}
			if got := w.originsFound("shop/np", nil); !slices.Contains(got, "external 192.31.196.77 sample") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestRangesThatTogetherAllowEverybodyHaveNoOutsider(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.service("shop/lb-ranges").Spec.LoadBalancerSourceRanges = []string{"0.0.0.0/1", "128.0.0.0/1"}
	r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{Matching: true, PerPathService: true})
	for _, p := range r.Paths {
		if p.Service.Name == "lb-ranges" && p.Origin.Address == "" {
			t.Errorf("%+v: %s %+v", p.Origin, p.Verdict, p.Findings)
		}
	}
}

// TestNoHostHasABroadcastAddress: the last address of a source range that is a subnet of the node stood for a host.
func TestNoHostHasABroadcastAddress(t *testing.T) {
	for _, c := range []struct{ ranges, last string }{
		{"10.77.0.0/24", "10.77.0.254"},
		{"10.77.0.128/25", "10.77.0.254"},
		{"10.77.0.255/32", "10.77.0.255"}, // no other is allowed
		{"10.77.1.0/24", "10.77.1.255"},   // none that the node has a broadcast address of
	} {
		w := openCaptured(t, "iptables")
		svc := w.service("shop/kitchen-sink")
		svc.Spec.LoadBalancerSourceRanges = []string{c.ranges}
		n, err := newNode(NewCluster(w.cluster), loadCaptured(t, snapshot.NewNode("node1", w.files)), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range n.exp.Frontends(svc) {
			if f.Kind != expect.LoadBalancerIP || !f.Address.Is4() {
				continue
			}
			for _, o := range n.originsOf(svc, f, nil) {
				got = append(got, o.Address.String())
			}
		}
		if has := slices.Contains(got, "10.77.0.255"); !slices.Contains(got, c.last) || has && c.last != "10.77.0.255" {
			t.Errorf("%s: %q", c.ranges, got)
		}
	}
}

func TestAnAddressOfThePodNetworkIsAPod(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *capturedNode)
		from string
		want string
	}{
		{"of the node's pod network", func(*capturedNode) {}, "10.244.1.233", "pod 10.244.1.233"},
		{
			"of the cluster CIDR, and no Node tells of a pod network",
			func(w *capturedNode) {
				for _, o := range w.cluster.Nodes {
					o.Spec.PodCIDR, o.Spec.PodCIDRs = "", nil
				}
				delete(w.files, "ip-route.json")
			},
			"10.244.9.9", "pod 10.244.9.9",
		},
		{
			"an endpoint of the node", func(w *capturedNode) {
				for _, o := range w.cluster.Nodes {
					o.Spec.PodCIDR, o.Spec.PodCIDRs = "", nil
				}
			},
			"10.244.1.16", "pod 10.244.1.16 shop/pod-11",
		},
		{
			"a pod that is known", func(w *capturedNode) { w.withPods("10.244.1.9") },
			"10.244.1.9", "pod 10.244.1.9 shop/client-a",
		},
		{"of another node's pod network", func(*capturedNode) {}, "10.244.2.233", "external 10.244.2.233"},
		{"from elsewhere", func(*capturedNode) {}, "172.16.0.9", "external 172.16.0.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			c.do(w)
			from := &From{Kind: expect.FromExternal, Address: netip.MustParseAddr(c.from)}
			if got := w.originsFound("shop/ep3", from); !slices.Equal(got, []string{c.want}) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAnEndpointIsAClientOfItsOwnService: by default, where the node has such a pod.
func TestAnEndpointIsAClientOfItsOwnService(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.first(v4, "filter", "FORWARD", "-s 10.244.1.19/32 -d 10.244.1.19/32 -j DROP")
	before := facts(openCaptured(t, "iptables").run())
	want := []string{ep3 + "pod 10.244.1.19 → Mismatch: Dropped 10.244.1.19:8080"}
	compareChanges(t, want, changes(before, facts(w.run())))

	// Where the node has none of the Service's endpoints, there is no such client, and the sample of pods is not one.
	w = openCaptured(t, "iptables")
	w.first(v4, "filter", "FORWARD", "-s 10.244.2.20/32 -d 10.244.2.20/32 -j DROP")
	compareChanges(t, nil, changes(before, facts(w.run())))
}

// TestNoConnectionIsMadeFromAPodThatNobodyNamed: a sample is a real pod, and --live leaves it alone.
func TestNoConnectionIsMadeFromAPodThatNobodyNamed(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.withPods("10.244.1.200")
	r := w.run()
	targets, _ := ProbeTargets(&r, Probing{Probes: 1}, 1000)
	if len(targets) == 0 {
		t.Fatal("nothing is tried at all")
	}
	for _, x := range targets {
		if x.From.IsValid() {
			t.Errorf("%+v", x)
		}
	}
}

// TestTheNumberOfPathsStaysWhatItIs: where nothing tells pods apart, one pod stands for all.
func TestTheNumberOfPathsStaysWhatItIs(t *testing.T) {
	w := openCaptured(t, "iptables")
	few := len(w.run().Paths)
	w = openCaptured(t, "iptables")
	w.withPods("10.244.1.200", "10.244.1.201", "10.244.1.202", "10.244.1.203")
	r := w.run()
	if len(r.Paths) != few || r.Verdict == report.Mismatch {
		t.Errorf("%d paths with 4 pods, %d without", len(r.Paths), few)
	}
}
