// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Faults made for real on a node in nftables mode, as TestFaults makes them in iptables mode.
func TestNFTFaults(t *testing.T) {
	i := slices.IndexFunc(nodes, func(n string) bool { return modeOf(t, n) == "nftables" })
	if i < 0 {
		t.Skip("no node runs kube-proxy in nftables mode")
	}
	node := nodes[i]
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), app, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "all is right", func() (bool, error) {
		r := svcproxy(t, "trace", app, "--node", node)
		return r.code == 0, fmt.Errorf("%s", r)
	})
	for _, tt := range []struct {
		name string
		make func(at nftSite) (repair func())
		code string
	}{
		{"the Service is not in the map", func(at nftSite) func() {
			at.nft("delete element ip kube-proxy service-ips { " + svc.Spec.ClusterIP + " . tcp . 80 }")
			return func() { restartKubeProxy(at.T, node) }
		}, judge.ServiceNotProgrammed},
		{"a table of others drops what goes to an endpoint", func(at nftSite) func() {
			at.nft("add table inet guard")
			at.nft("add chain inet guard forward { type filter hook forward priority -5 ; }")
			at.nft("add rule inet guard forward ip daddr " + endpointOf(at.T) + " drop")
			return func() { at.nft("delete table inet guard") }
		}, judge.Dropped},
		{"kube-proxy is gone, and the endpoints have moved", func(at nftSite) func() {
			stopKubeProxy(at.T, node)
			moveEndpoints(at.T)
			return func() { startKubeProxy(at.T, node) }
		}, judge.StaleEndpoint},
		{"the table was deleted", func(at nftSite) func() {
			stopKubeProxy(at.T, node)
			at.nft("delete table ip kube-proxy")
			return func() { startKubeProxy(at.T, node) }
		}, judge.FamilyMissing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			repair := sync.OnceFunc(tt.make(nftSite{t, node}))
			defer repair()
			r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
			if r.report.Verdict != report.Mismatch || !slices.Contains(codes(&r.report), tt.code) {
				t.Errorf("%s with %v, want Mismatch with %s\n%s", r.report.Verdict, codes(&r.report), tt.code, r)
			}
			repair()
			wait(t, "all is right again", func() (bool, error) {
				r = svcproxy(t, "trace", app, "--node", node, "-o", "json")
				return r.code == 0 && r.report.Verdict == report.Match, fmt.Errorf("%s", r)
			})
		})
	}
}

// nftSite is a node in nftables mode to make a fault on.
type nftSite struct {
	*testing.T

	node string
}

// nft runs nft on the node, with these words.
func (s nftSite) nft(words string) {
	s.Helper()
	onNode(s.T, s.node, nil, append([]string{"/usr/sbin/nft"}, strings.Fields(words)...)...)
}
