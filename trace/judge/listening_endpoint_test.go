// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// An endpoint whose address is the node's own was a Match whoever listened there. In a network namespace connections to
// it were refused where nothing did, from the node and from a pod.
func TestEndpointsOnTheNodeAtWhichNothingListens(t *testing.T) {
	socket := func(line string) func(string) string {
		return func(string) string { return line + "\n" }
	}
	for _, c := range []struct {
		name string
		do   func(line string) string // the line of the endpoint's socket
		code string                   // of both paths; "" for a Match
	}{
		{"any address of IPv4", socket("tcp LISTEN 0 128 0.0.0.0:9100 0.0.0.0:*"), ""},
		{"its address", socket("tcp LISTEN 0 128 10.77.0.11:9100 0.0.0.0:*"), ""},
		{"its address, of an interface", socket("tcp LISTEN 0 128 10.77.0.11%eth0:9100 0.0.0.0:*"), ""},
		{"any address of both families", socket("tcp LISTEN 0 128 *:9100 *:*"), ""},
		{"its address, by a socket of IPv6", socket("tcp LISTEN 0 128 [::ffff:10.77.0.11]:9100 *:*"), ""},
		{"IPv6, and perhaps IPv4: the helper cannot tell", socket("tcp LISTEN 0 0 [::]:9100 [::]:*"), ""},
		{"IPv6 alone", socket("tcp LISTEN 0 128 [::]:9100 [::]:*"), endtoend.EndpointListensElse},
		{"loopback", socket("tcp LISTEN 0 128 127.0.0.1:9100 0.0.0.0:*"), endtoend.EndpointListensElse},
		{"another protocol", socket("udp UNCONN 0 0 0.0.0.0:9100 0.0.0.0:*"), endtoend.EndpointNotListening},
		{"as captured: nothing", func(string) string { return "" }, endtoend.EndpointNotListening},
		{"a list that is cut off", func(string) string { return "tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\ntcp LIS" }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			was := string(w.files[snapshot.ListenFile])
			w.files[snapshot.ListenFile] = []byte(strings.Replace(was, hostNetwork, c.do(hostNetwork), 1))
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
	delete(w.files, snapshot.ListenFile)
	for _, p := range w.run().Paths {
		if p.Verdict == report.Mismatch {
			t.Errorf("without a list of sockets: %s %v", p.Service.Name, p.Codes())
		}
	}
}
