// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The shipped example shows what its README says, and nothing else.
func TestShippedExample(t *testing.T) {
	c, n := openSnapshot(t, "examples/broken-node", "worker-1")
	r := Files(c, n, Request{Backwards: true, PerPathService: true, Matching: true})
	var got []string
	for path, f := range facts(r) {
		if f != string(report.Match) && f != "" {
			got = append(got, path+" → "+f)
		}
	}
	slices.Sort(got)
	want := []string{
		"shop/admin NodePort 10.77.0.11:30083/TCP from external → ByDesign: NoLocalEndpoints",
		"shop/checkout ClusterIP 10.96.77.154:80/TCP from pod → Mismatch: Dropped 10.244.2.12:8080",
	}
	want = append(want, both("shop/batch ClusterIP 10.96.128.57:80/TCP from ", "ByDesign: NoEndpoints")...)
	want = append(
		want,
		both("shop/web ClusterIP 10.96.21.191:80/TCP from ", "Mismatch: MissingEndpoint 10.244.3.4:8080")...)
	for _, path := range []string{
		"ClusterIP 10.96.62.156:80/TCP from node", "ClusterIP 10.96.62.156:80/TCP from pod",
		"NodePort 10.77.0.11:30080/TCP from external",
		"NodePort 10.77.0.11:30080/TCP from node", "NodePort 127.0.0.1:30080/TCP from node",
	} {
		want = append(want, "shop/api "+path+" → Mismatch: MissingEndpoint 10.244.2.40:8080; StaleEndpoint 10.244.2.14:8080")
	}
	slices.Sort(want)
	compareChanges(t, want, got)
}
