// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// began is when the first node of a test was made.
var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// cluster makes nodes worker-1, worker-2, …, each an hour older than the next, of one kernel and in three zones. The
// first of them have the finding.
func cluster(
	nodes, bad int, change func(i int, n *corev1.Node, r *report.NodeReport),
) ([]report.NodeReport, []*corev1.Node) {
	reports, objects := make([]report.NodeReport, nodes), make([]*corev1.Node, nodes)
	for i := range nodes {
		name := fmt.Sprintf("worker-%d", i+1)
		// In an order that has nothing to do with the finding.
		made := began.Add(time.Duration(i*37%101) * time.Hour)
		objects[i] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, CreationTimestamp: metav1.NewTime(made),
				Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "abc"[i%3 : i%3+1]},
			},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0", OSImage: "Debian 12"}},
		}
		reports[i] = report.NodeReport{
			Node: name, Mode: &report.Mode{Actual: "iptables", Backend: "nft", KubeProxyVersion: "v1.37.2"},
			Paths: []report.Path{{Service: &report.ObjectRef{Namespace: "shop", Name: "web"}, Verdict: report.Match}},
		}
		if i < bad {
			reports[i].Paths[0].Verdict = report.Mismatch
			reports[i].Paths[0].Findings = []report.Finding{{Code: "NotProgrammed", Severity: report.Error}}
		}
		if change != nil {
			change(i, objects[i], &reports[i])
		}
	}
	return reports, objects
}

// TestShared: what separates the nodes with a finding is named, and nothing else.
func TestShared(t *testing.T) {
	pool := "cloud.google.com/gke-nodepool"
	for _, c := range []struct {
		name       string
		nodes, bad int
		change     func(i int, n *corev1.Node, r *report.NodeReport)
		want       string
	}{
		{"nothing", 1000, 37, nil, ""},
		{"the kernel", 1000, 37, func(i int, n *corev1.Node, _ *report.NodeReport) {
			if i < 37 {
				n.Status.NodeInfo.KernelVersion = "6.18.0"
			}
		}, "kernel is 6.18.0 37/37 0/963"},
		{
			"the kernel, which one good node has, too, is not a separation of few", 6, 3,
			func(i int, n *corev1.Node, _ *report.NodeReport) {
				if i < 4 {
					n.Status.NodeInfo.KernelVersion = "6.18.0"
				}
			}, "",
		},
		{"the kernel of nearly all", 1000, 40, func(i int, n *corev1.Node, _ *report.NodeReport) {
			if i > 0 && i < 42 {
				n.Status.NodeInfo.KernelVersion = "6.18.0"
			}
		}, "kernel is 6.18.0 39/40 2/960"},
		{"all but one kernel", 30, 20, func(i int, n *corev1.Node, _ *report.NodeReport) {
			if i < 20 {
				n.Status.NodeInfo.KernelVersion = fmt.Sprintf("5.%d", i%4)
			}
		}, "kernel isNot 6.1.0 20/20 0/10"},
		{"a label that the others have", 30, 5, func(i int, n *corev1.Node, _ *report.NodeReport) {
			if i >= 5 {
				n.Labels[pool] = "new"
			}
		}, "label " + pool + " is  5/5 0/25"},
		{"a pool", 30, 5, func(i int, n *corev1.Node, _ *report.NodeReport) {
			n.Labels[pool] = map[bool]string{true: "spot", false: "big"}[i < 5]
		}, "label " + pool + " is spot 5/5 0/25"},
		{"a pool, behind hundreds of labels of the hardware", 30, 5, func(i int, n *corev1.Node, _ *report.NodeReport) {
			for k := range 200 {
				n.Labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-%03d", k)] = fmt.Sprint((i + k) % 3)
			}
			n.Labels["my.example/nodegroup"] = map[bool]string{true: "spot", false: "big"}[i < 5]
		}, "label my.example/nodegroup is spot 5/5 0/25"},
		{
			"a label that all have, and some have so many that not all are compared", 30, 5,
			func(i int, n *corev1.Node, _ *report.NodeReport) {
				n.Labels["x"] = map[bool]string{true: "a", false: "b"}[i%2 == 0]
				for k := range 200 {
					if i < 5 {
						n.Labels[fmt.Sprintf("a-%d-%03d", i, k)] = ""
					}
				}
			}, "",
		},
		{"a zone that the others have", 30, 5, func(i int, n *corev1.Node, _ *report.NodeReport) {
			if n.Labels[corev1.LabelTopologyZone] = "a"; i < 5 {
				delete(n.Labels, corev1.LabelTopologyZone)
			}
		}, "zone is  5/5 0/25"},
		{"a mode that was configured, and does not run", 30, 5, func(i int, _ *corev1.Node, r *report.NodeReport) {
			r.Mode.Configured = map[bool]string{true: "nftables", false: "iptables"}[i < 5]
		}, "configured proxy mode is nftables 5/5 0/25"},
		{"a value that the rules alone show", 30, 5, func(i int, _ *corev1.Node, r *report.NodeReport) {
			v := report.Value{Name: "detectLocalMode", Value: "ClusterCIDR 10.245.0.0/16,fd00::/56", Source: "configz"}
			if i < 5 {
				v.Value, v.Source = "ClusterCIDR 10.245.0.0/16", "rules"
			}
			r.Mode.Values = []report.Value{v}
		}, ""},
		{"a value that is too long", 30, 5, func(i int, n *corev1.Node, _ *report.NodeReport) {
			n.Labels["x"] = map[bool]string{true: strings.Repeat("a", 300), false: "b"}[i < 5]
		}, ""},
		{"the age", 30, 5, func(i int, n *corev1.Node, _ *report.NodeReport) {
			n.CreationTimestamp = metav1.NewTime(began.Add(-time.Duration(i) * time.Hour))
		}, "creation of the Node since 2026-11-20T08:00:00Z 5/5 0/25"},
		{"kube-proxy stands still", 30, 5, func(i int, _ *corev1.Node, r *report.NodeReport) {
			at := began.Add(time.Duration(i*11%30) * time.Second)
			if i < 5 {
				at = at.Add(-time.Hour)
			}
			r.Mode.LastSync = at.Format(time.RFC3339)
		}, "last sync of kube-proxy until 2026-11-20T11:00:22Z 5/5 0/25"},
		{"version, and a value of the configuration", 12, 2, func(i int, _ *corev1.Node, r *report.NodeReport) {
			if i < 2 {
				r.Mode.KubeProxyVersion = "v1.36.4"
				r.Mode.Values = []report.Value{{Name: "masqueradeAll", Value: "true"}}
			} else {
				r.Mode.Values = []report.Value{{Name: "masqueradeAll", Value: "false"}}
			}
		}, "kube-proxy version is v1.36.4 2/2 0/10; kube-proxy's masqueradeAll is true 2/2 0/10"},
		{"one node of three, and a name of its own", 3, 1, func(_ int, n *corev1.Node, _ *report.NodeReport) {
			n.Labels["name"] = n.Name
		}, ""},
		{"one node of four with a kernel of its own", 4, 1, func(i int, n *corev1.Node, _ *report.NodeReport) {
			if i == 0 {
				n.Status.NodeInfo.KernelVersion = "6.18.0"
			}
		}, "kernel is 6.18.0 1/1 0/3"},
		{"two nodes", 2, 1, func(_ int, n *corev1.Node, _ *report.NodeReport) {
			n.Status.NodeInfo.KernelVersion = n.Name
		}, ""},
		{"all nodes", 5, 5, func(_ int, n *corev1.Node, _ *report.NodeReport) {
			n.Status.NodeInfo.KernelVersion = "6.18.0"
		}, ""},
		{"the version is not known of a node with the finding", 12, 2, func(i int, _ *corev1.Node, r *report.NodeReport) {
			r.Mode.KubeProxyVersion = []string{"", "v1.36.4", "v1.37.2"}[min(i, 2)]
		}, ""},
		{"the version is not known of some of the others", 12, 2, func(i int, _ *corev1.Node, r *report.NodeReport) {
			r.Mode.KubeProxyVersion = []string{"v1.36.4", "v1.36.4", "", "v1.37.2"}[min(i, 3)]
		}, "kube-proxy version is v1.36.4 2/2 0/9"},
		{"the version is not known of most of the others", 12, 2, func(i int, _ *corev1.Node, r *report.NodeReport) {
			r.Mode.KubeProxyVersion = ""
			if i < 3 {
				r.Mode.KubeProxyVersion = []string{"v1.36.4", "v1.36.4", "v1.37.2"}[i]
			}
		}, ""},
	} {
		reports, objects := cluster(c.nodes, c.bad, c.change)
		got := Patterns(reports, objects)
		if len(got) != 1 || len(got[0].Nodes) != c.bad || got[0].Without != c.nodes-c.bad || got[0].NotKnown != 0 {
			t.Errorf("%s: %+v", c.name, got)
			continue
		}
		var said []string
		for _, s := range got[0].Shared {
			said = append(said, fmt.Sprintf("%s %s %s %d/%d %d/%d", s.Property, s.Relation, s.Value, s.With, s.OfWith, s.Without,
				s.OfWithout))
		}
		if strings.Join(said, "; ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, said, c.want)
		}
	}
}

// TestPatterns: groups by finding and Service, with nodes that are not known of, in an order for people.
func TestPatterns(t *testing.T) {
	reports, objects := cluster(12, 11, func(i int, _ *corev1.Node, r *report.NodeReport) {
		switch i {
		case 3:
			r.Error, r.Paths = "no answer", nil
		case 4:
			r.Paths[0].Verdict, r.Paths[0].Findings = report.Unknown, []report.Finding{{Code: "Opaque", Severity: report.Info}}
		case 5:
			r.Findings = []report.Finding{{Code: "Behind", Severity: report.Warn}}
			r.Paths = append(r.Paths, report.Path{
				Service: &report.ObjectRef{Namespace: "shop", Name: "db"}, Verdict: report.Mismatch,
				Findings: []report.Finding{{Code: "NotProgrammed", Severity: report.Error}},
			})
		}
	})
	var said []string
	for _, p := range Patterns(reports, objects) {
		said = append(said,
			fmt.Sprintf("%s %s %q without %d not known %d", p.Code, nameOf(p.Service), p.Nodes, p.Without, p.NotKnown))
	}
	want := []string{
		`NotProgrammed shop/web ["worker-1" "worker-2" "worker-3" "worker-6" "worker-7" "worker-8" "worker-9" "worker-10" ` +
			`"worker-11"] without 1 not known 2`,
		`NotProgrammed shop/db ["worker-6"] without 10 not known 1`,
		`Behind  ["worker-6"] without 10 not known 1`,
	}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	if got := Patterns(reports[:1], objects); got != nil {
		t.Errorf("one node: %+v", got)
	}
	if got := Patterns(reports, nil); len(got) != 3 {
		t.Errorf("without Node objects: %+v", got)
	}
}

// Nodes with hundreds of labels once took a minute to compare: each comparison looks at all of them.
func TestComparisonsAreBoundedByWhatTheyLookAt(t *testing.T) {
	testutil.Long(t)
	const nodes, labels = 1000, 300
	var fleet []Node
	var objects []*corev1.Node
	for i := range nodes {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w-%d", i), Labels: map[string]string{}}}
		for k := range labels {
			o.Labels[fmt.Sprintf("l-%d", k)] = strconv.Itoa(i % (k + 2))
		}
		objects = append(objects, o)
		fleet = append(fleet, Node{Name: o.Name, Known: true, Mode: &report.Mode{}, Findings: slices.Values([]Finding{
			{"C" + strconv.Itoa(i%maxCompared), report.Error, report.ObjectRef{Namespace: "shop", Name: "web"}},
		})})
	}
	out, _, _ := Group(fleet, objects, 0)
	compared := 0
	for _, p := range out {
		if !p.NotCompared {
			compared++
		}
	}
	// Of so many labels not all are looked at.
	if len(out) != maxCompared || compared == 0 || compared > maxCompared/2 {
		t.Errorf("%d of %d groups were compared", compared, len(out))
	}
}
