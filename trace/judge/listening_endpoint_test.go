// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// hostNetwork is the pod of shop/hostnet on node1. The captures have objects alone: no pod, and nothing listens
// (testdata/snapshots/README.md).
var hostNetwork = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-107"},
	Spec:       corev1.PodSpec{NodeName: "node1", HostNetwork: true},
	Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.77.0.11"}}},
}

// An endpoint whose address is the node's own was a Match whoever listened there. In a network namespace connections to
// it were refused where nothing did, from the node and from a pod.
func TestEndpointsOnTheNodeAtWhichNothingListens(t *testing.T) {
	for _, c := range []struct {
		name, socket string // the line of ss
		code         string // of both paths; "" for a Match
	}{
		{"any address of IPv4", "tcp LISTEN 0 128 0.0.0.0:9100 0.0.0.0:*\n", ""},
		{"its address", "tcp LISTEN 0 128 10.77.0.11:9100 0.0.0.0:*\n", ""},
		{"its address, of an interface", "tcp LISTEN 0 128 10.77.0.11%eth0:9100 0.0.0.0:*\n", ""},
		{"any address of both families", "tcp LISTEN 0 128 *:9100 *:*\n", ""},
		{"its address, by a socket of IPv6", "tcp LISTEN 0 128 [::ffff:10.77.0.11]:9100 *:*\n", ""},
		{"IPv6, and perhaps IPv4: the helper cannot tell", "tcp LISTEN 0 0 [::]:9100 [::]:*\n", ""},
		{"IPv6 alone", "tcp LISTEN 0 128 [::]:9100 [::]:*\n", endtoend.EndpointListensElse},
		{"loopback", "tcp LISTEN 0 128 127.0.0.1:9100 0.0.0.0:*\n", endtoend.EndpointListensElse},
		{"another protocol", "udp UNCONN 0 0 0.0.0.0:9100 0.0.0.0:*\n", endtoend.EndpointNotListening},
		{"nothing", "", endtoend.EndpointNotListening},
		{"a full queue", "tcp LISTEN 129 128 0.0.0.0:9100 0.0.0.0:*\n", endtoend.BacklogFull},
		{"a queue with room", "tcp LISTEN 128 128 0.0.0.0:9100 0.0.0.0:*\n", ""},
		{
			"a process that is stopped", "tcp LISTEN 0 128 0.0.0.0:9100 0.0.0.0:* users:((\"x\",pid=4711,fd=3))\n",
			endtoend.ProcessStopped,
		},
		{
			"a process that is frozen", "tcp LISTEN 0 128 0.0.0.0:9100 0.0.0.0:* users:((\"x\",pid=4713,fd=3))\n",
			endtoend.ProcessStopped,
		},
		{"a process that runs", "tcp LISTEN 0 128 0.0.0.0:9100 0.0.0.0:* users:((\"x\",pid=4712,fd=3))\n", ""},
		{"a list that is cut off", "tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\ntcp LIS", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.cluster.Pods = append(w.cluster.Pods, hostNetwork)
			w.files[snapshot.ListenFile] = append(w.files[snapshot.ListenFile], c.socket...)
			if strings.Contains(c.socket, "LISTEN 0 0") { // a list of /proc has no limit of any queue
				list := regexp.MustCompile(`LISTEN\s+(\d+)\s+\d+`).ReplaceAll(w.files[snapshot.ListenFile], []byte("LISTEN $1 0"))
				w.files[snapshot.ListenFile] = list
			}
			w.files[snapshot.StoppedFile] = []byte("4711 T\n4712 S\n4713 F\n")
			r := w.run()
			var wrong []string
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Verdict == report.Mismatch {
					wrong = append(wrong, p.Service.Name+" "+p.Origin.Kind+" "+strings.Join(p.Codes(), ","))
				}
			}
			slices.Sort(wrong)
			var want []string
			if c.code != "" {
				want = []string{"hostnet node " + c.code, "hostnet pod " + c.code}
			}
			if !slices.Equal(wrong, want) {
				t.Errorf("%q, want %q", wrong, want)
			}
		})
	}
	w := openCaptured(t, "iptables")
	for _, p := range w.run().Paths {
		if p.Verdict == report.Mismatch {
			t.Errorf("of objects alone: %s %v", p.Service.Name, p.Codes())
		}
	}
	w.cluster.Pods = append(w.cluster.Pods, hostNetwork)
	delete(w.files, snapshot.ListenFile)
	for _, p := range w.run().Paths {
		if p.Verdict == report.Mismatch {
			t.Errorf("without a list of sockets: %s %v", p.Service.Name, p.Codes())
		}
	}
}
