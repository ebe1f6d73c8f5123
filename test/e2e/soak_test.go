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

// soakClient is what the names of its client pods begin with; the node's follows.
const soakClient = "soak-"

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
	for _, n := range nodes {
		clientOn(t, n, soakClient+n)
	}
	wait(t, "the clients run", func() (bool, error) {
		for _, n := range nodes {
			p, err := client.CoreV1().Pods(namespace).Get(t.Context(), soakClient+n, metav1.GetOptions{})
			if err != nil || p.Status.Phase != corev1.PodRunning {
				return false, err
			}
		}
		return true, nil
	})
	type origin struct{ node, name string }
	var origins []origin
	for _, n := range nodes {
		origins = append(origins, origin{n, "node"}, origin{n, "pod/" + soakClient + n})
	}
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		origins = append(origins, origin{pod.Spec.NodeName, "pod/" + pod.Name})
	}
	if len(pods.Items) != replicas {
		t.Fatalf("%d pods, want %d", len(pods.Items), replicas)
	}
	// app-dual has TCP and UDP, IPv4 and IPv6.
	names := []string{app, affinity.Name, app + "-nodeport", app + "-dual"}
	for _, service := range names {
		wait(t, service+" is right on all nodes", func() (bool, error) {
			r := svcproxy(t, "trace", service, "--all-nodes")
			return r.code == 0, fmt.Errorf("%s", r)
		})
	}
	t.Run("nodes", func(t *testing.T) {
		for _, n := range nodes {
			t.Run(n, func(t *testing.T) {
				t.Parallel()
				for _, from := range origins {
					if from.node == n {
						for _, service := range names {
							soak(t, runs, "trace", service, "--node", n, "--from", from.name, "--live", "-o", "json")
						}
					}
				}
			})
		}
	})
	noHelperPods(t)
}

// soak runs the plugin so often, and counts what it must not say.
func soak(t *testing.T, runs int, args ...string) {
	t.Helper()
	paths, wrong := 0, 0
	for run := range runs {
		r := svcproxy(t, args...)
		problems := soaked(&r.report)
		if r.code != 0 || len(problems) > 0 {
			wrong++
			t.Errorf("%s: run %d: exit code %d: %s\n%s\n%s", strings.Join(args, " "), run, r.code,
				strings.Join(problems, "; "), strings.Join(said(&r.report), "\n"), r.errOut)
		}
		for i := range r.report.Nodes {
			paths += len(r.report.Nodes[i].Paths)
		}
	}
	t.Logf("%s: %d runs, %d paths, %d runs wrong", strings.Join(args, " "), runs, paths, wrong)
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
				// An answer over UDP may be late where the machine is busy; a segment of TCP is sent again.
				if p.Frontend.Protocol == "TCP" && o.Connected != o.Probes || o.Error != "" {
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
