// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// threeNodes are captured with the network namespace of a pod on each.
const threeNodes = "endtoend/vxlan.tar.gz"

// podsOf are the pods of node1 and node3.
var podsOf = map[string]string{
	"node1": "shop/web-76bbf6d6cc-rjf7z", "node3": "shop/web-76bbf6d6cc-m4dxw",
}

// factsOf judges a node with its pods, after a change.
func factsOf(t *testing.T, node string, change func(*snapshot.Node) *snapshot.Node, r judge.Request) *compare.Facts {
	t.Helper()
	objects, n := snap.Node(t, filepath.Join(testdata, threeNodes), node)
	if change != nil {
		n = change(n)
	}
	state, err := nodestate.Load(n)
	if err != nil {
		t.Fatal(err)
	}
	return compare.Of(n, state, objects, judge.Node(judge.NewCluster(objects), state, r))
}

// A pod that one capture lacks is named, and is no difference.
func TestAPodThatOneCaptureLacks(t *testing.T) {
	without := func(n *snapshot.Node) *snapshot.Node { return n.Only(snapshot.NodeFiles...) }
	healthy := factsOf(t, "node3", nil, all)
	d := compare.Captures(healthy, factsOf(t, "node3", without, all))
	want := []string{"not compared: pods: " + podsOf["node3"] + ": after: not collected"}
	if got := lines(&d); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	d = compare.Captures(healthy, factsOf(t, "node3", nil, all))
	if got := lines(&d); len(got) > 0 {
		t.Errorf("it differs from itself: %q", got)
	}
}

// Two nodes: the pods of a Service are compared with one another, and so are tunnels; what each node and pod has for
// itself is no difference.
func TestPodsOfTwoNodes(t *testing.T) {
	web := judge.Request{
		Services: []types.NamespacedName{{Namespace: "shop", Name: "web"}}, Matching: true, Steps: true,
	}
	file := func(name string, do func(string) string) func(*snapshot.Node) *snapshot.Node {
		return func(n *snapshot.Node) *snapshot.Node {
			data, _, err := n.File(name)
			if err != nil {
				t.Fatal(err)
			}
			return n.With(name, []byte(do(string(data))))
		}
	}
	inPod := func(name string) string {
		return "pods/" + strings.Replace(podsOf["node3"], "/", "_", 1) + "/" + name
	}
	pair := "pod " + podsOf["node1"] + ", " + podsOf["node3"] + " "
	for _, c := range []struct {
		name   string
		change func(*snapshot.Node) *snapshot.Node
		want   []string
	}{
		{"nothing", nil, nil},
		{"a socket of the pod", file(inPod(snapshot.ListenFile), other("")), []string{
			"listeners removed " + pair + "tcp: *:8080 process echo →",
			"listeners removed " + pair + "udp: *:8080 process echo →",
		}},
		{"the tunnel's address", file(snapshot.LinkFile, replaced(`"local":"10.79.0.13"`, `"local":"192.0.2.9"`)), []string{
			"tunnels changed flannel.1: vxlan id 1 port 8472 local 10.79.0.11 on eth0 → " +
				"vxlan id 1 port 8472 local 192.0.2.9 on eth0",
		}},
	} {
		d := compare.Nodes(factsOf(t, "node1", nil, web), factsOf(t, "node3", c.change, web))
		var got []string
		for _, line := range lines(&d) {
			if strings.Contains(line, pair) || strings.HasPrefix(line, "tunnels ") {
				got = append(got, line)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A container of an endpoint that does not run is said; Pods that are no endpoint are not.
func TestPodsOfEndpoints(t *testing.T) {
	pod := func(name, ip string, s ...corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, ContainerStatuses: s},
		}
	}
	crash := corev1.ContainerStatus{
		Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	}
	crash.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}
	before := &snapshot.Cluster{Pods: []*corev1.Pod{
		pod("web-1", "10.244.1.1"), pod("job-1", "10.244.1.9"), pod("old", "10.244.1.2"),
	}}
	before.EndpointSlices = append(before.EndpointSlices, slice("web-1", "web", true, "10.244.1.1", "10.244.1.2"))
	after := *before
	after.Pods = []*corev1.Pod{pod("web-1", "10.244.1.1", crash), pod("job-1", "10.244.1.9", crash)}
	got, _, _ := compare.Objects(before, &after)
	if len(got) != 1 || got[0].Part != compare.PartPodObjects || got[0].Place != "shop/web-1" ||
		got[0].After != "container web not ready, waiting: CrashLoopBackOff, before that ended: Error 1" {
		t.Errorf("%+v", got)
	}
}
