// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// Paths from inside to a load balancer that adds something are warned of, those from outside are not.
func TestLoadBalancersThatAreBypassed(t *testing.T) {
	const path = "shop/lb LoadBalancerIP 203.0.113.10:80/TCP from "
	for _, tt := range []struct {
		name, key, value string
		from             expect.OriginKind
		found            bool
	}{
		{"Hetzner", "load-balancer.hetzner.cloud/uses-proxyprotocol", "true", expect.FromNode, true},
		{"from a pod", "load-balancer.hetzner.cloud/uses-proxyprotocol", "true", expect.FromPod, true},
		{"from outside", "load-balancer.hetzner.cloud/uses-proxyprotocol", "true", expect.FromExternal, false},
		{"turned off", "load-balancer.hetzner.cloud/uses-proxyprotocol", "false", expect.FromNode, false},
		{"AWS", "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol", "*", expect.FromNode, true},
		{
			"AWS, target groups", "service.beta.kubernetes.io/aws-load-balancer-target-group-attributes",
			"preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true", expect.FromNode, true,
		},
		{
			"AWS, target groups, off", "service.beta.kubernetes.io/aws-load-balancer-target-group-attributes",
			"proxy_protocol_v2.enabled=false", expect.FromNode, false,
		},
		{"TLS", "service.beta.kubernetes.io/aws-load-balancer-ssl-cert", "arn:aws:acm:1", expect.FromNode, true},
		{"another annotation", "metallb.universe.tf/address-pool", "production", expect.FromNode, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.service("shop/lb").Annotations = map[string]string{tt.key: tt.value}
			r := Files(w.cluster, w.node(), Request{Matching: true, PerPathService: true, From: &From{Kind: tt.from}})
			got := facts(r)
			want := "Match"
			if tt.found {
				want = "Warning: LoadBalancerBypassed 203.0.113.10"
			}
			for key, fact := range got {
				if len(key) > len(path) && key[:len(path)] == path && fact != want {
					t.Errorf("%s: %s, want %s", key, fact, want)
				}
			}
		})
	}
}
