// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// soakRuns is the environment variable with the number of times that TestHealthyNodesSoak traces each Service from
// each origin.
const soakRuns = "SVCPROXY_SOAK"

// TestHealthyNodesSoak runs trace --live again and again on nodes where nothing is wrong: each time every path is a
// match, every connection succeeds, and nothing is found. A plain Service, one with session affinity, NodePorts, UDP
// and IPv6, from the node, from a pod of the node, and from an endpoint's own pod; on nodes of every mode.
func TestHealthyNodesSoak(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(soakRuns))
	if err != nil || runs < 1 {
		t.Skipf("%s is not set to a number of runs: shard live of the nightly list sets it", soakRuns)
	}
	affinity := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: app + "-affinity"},
		Spec: corev1.ServiceSpec{
			Selector:        map[string]string{"app": app},
			Ports:           []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
			SessionAffinity: corev1.ServiceAffinityClientIP,
		},
	}
	if _, err := client.CoreV1().Services(namespace).Create(t.Context(), affinity, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.CoreV1().Services(namespace).Delete(context.Background(), affinity.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	type origin struct {
		name string
		args []string
	}
	origins := []origin{
		{"node", []string{"--all-nodes", "--from", "node"}},
		{"pod", []string{"--all-nodes", "--from", "pod"}},
	}
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		origins = append(origins, origin{"endpoint on " + pod.Spec.NodeName, []string{
			"--from", "pod/" + pod.Name,
			"--node", pod.Spec.NodeName,
		}})
	}
	if len(origins) != 2+replicas {
		t.Fatalf("%d pods, want %d", len(origins)-2, replicas)
	}
	// app-dual has TCP and UDP, IPv4 and IPv6.
	for _, service := range []string{app, affinity.Name, app + "-nodeport", app + "-dual"} {
		wait(t, service+" is right on all nodes", func() (bool, error) {
			r := svcproxy(t, "trace", service, "--all-nodes")
			return r.code == 0, fmt.Errorf("%s", r)
		})
		for _, from := range origins {
			t.Run(service+" from "+from.name, func(t *testing.T) {
				args := append([]string{"trace", service, "--live", "-o", "json"}, from.args...)
				paths, wrong := 0, 0
				for run := range runs {
					r := svcproxy(t, args...)
					problems := soaked(&r.report)
					if r.code != 0 || len(problems) > 0 {
						wrong++
						t.Errorf("run %d: exit code %d: %s\n%s", run, r.code, strings.Join(problems, "; "),
							strings.Join(said(&r.report), "\n"))
					}
					for i := range r.report.Nodes {
						paths += len(r.report.Nodes[i].Paths)
					}
				}
				t.Logf("%d runs, %d paths, %d runs wrong", runs, paths, wrong)
			})
		}
	}
	noHelperPods(t)
}

// soaked says what a report of healthy nodes has that it must not have. What cannot be probed, as connections from
// outside, is judged by the rules alone.
func soaked(r *report.Report) (problems []string) {
	probed := 0
	for i := range r.Nodes {
		for _, f := range r.Nodes[i].Findings {
			if f.Severity != report.Info {
				problems = append(problems, f.Code)
			}
		}
		for k := range r.Nodes[i].Paths {
			p := &r.Nodes[i].Paths[k]
			if p.Verdict != report.Match {
				problems = append(problems, fmt.Sprintf("%s %s from %s: %s", p.Frontend.Kind, p.Frontend.Address,
					p.Origin.Kind, p.Verdict))
			}
			for _, f := range p.Findings {
				if f.Severity != report.Info {
					problems = append(problems, f.Code)
				}
			}
			if o := p.Observed; o != nil {
				probed += o.Probes
				if o.Connected != o.Probes || o.Error != "" {
					problems = append(problems, fmt.Sprintf("%s %s: %d of %d connected %s", p.Frontend.Kind, p.Frontend.Address,
						o.Connected, o.Probes, o.Error))
				}
			}
		}
	}
	if probed == 0 {
		problems = append(problems, "nothing was probed")
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}
