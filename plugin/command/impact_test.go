// SPDX-License-Identifier: Apache-2.0

package command

import (
	"html"
	"strings"
	"testing"
)

// The impact says what clients see of what was judged, and no more.
func TestImpact(t *testing.T) {
	kinds := kindsOfServices(t)
	const forwardDrop = "../../testdata/endtoend/forward-drop.tar.gz"
	rejects := incident{name: "rejects", snapshot: forwardDrop, replaced: []replacement{{
		iptablesSave, "-A FORWARD -d 10.245.1.2/32 -j DROP",
		"-A FORWARD -d 10.245.1.2/32 -j REJECT --reject-with icmp-port-unreachable",
	}}}
	for _, tt := range []struct {
		args, snapshot string
		want           []string
		not            string
	}{
		{
			// 9 of 20 connections were accepted, to the endpoint on node1 alone: one finding, with what follows from it.
			"shop/web --from 10.79.0.1 --node node1 --end-to-end", "../../testdata/endtoend/outside-kept.tar.gz",
			[]string{
				"MISMATCH: 2 of 3 connections to shop/web from 10.79.0.1 fail: the answer does not come back",
				"MISMATCH  Shadowed  10.245.1.2:8080, 10.245.2.2:8080", "iptables-nft -t nat -S POSTROUTING",
			},
			"EndToEndAnswerLost",
		},
		{
			"shop/crash --from pod/shop/web-76bbf6d6cc-76zpd --end-to-end", "../../testdata/endtoend/crash-loop.tar.gz",
			[]string{"are refused: nothing listens at the endpoint", "> ss in the endpoint's network namespace: nothing has"},
			"> responsible",
		},
		{
			"shop/web --from pod/shop/web-76bbf6d6cc-m4dxw --end-to-end", forwardDrop,
			[]string{
				"hangs: the endpoint's node drops the packets",
				"on node1:\n           iptables-nft -t filter -S FORWARD",
			},
			"is affected",
		},
		{
			"shop/web --from pod/shop/web-76bbf6d6cc-m4dxw --end-to-end", rejects.dir(t),
			[]string{"is refused: the endpoint's node rejects the packets", "node node1: rejected by filter FORWARD rule"},
			"hang",
		},
		{
			"shop/redis", kinds,
			[]string{
				"BY DESIGN: DNS answers with the endpoints' addresses (headless); kube-proxy has nothing to do",
				"\nHeadless  (by DNS alone)",
				"\nBY DESIGN: kube-proxy has nothing to do for shop/redis on worker-1, and that is right",
			},
			"no endpoint",
		},
		{
			"shop/db", kinds,
			[]string{
				"BY DESIGN: DNS answers with the name db.example.com (ExternalName); kube-proxy has nothing to do",
				"\nBY DESIGN: kube-proxy has nothing to do for shop/db on worker-1, and that is right",
			},
			"no endpoint",
		},
		{
			"shop/lb", kinds,
			[]string{"are not refused at once, as they should be", "… and 1 more path: 0 right, 1 by design"},
			"expected reject, actual not translated",
		},
		{
			"svcproxy-e2e/faults --node node1", withoutHairpin(t),
			[]string{
				"MISMATCH: connections to svcproxy-e2e/faults at 2 of its 5 frontends from an endpoint's pod of node1 hang where " +
					"they are sent back to the pod itself (1 of 3)",
			},
			"PORT",
		},
	} {
		_, out, stderr := runPlugin(t, append(strings.Fields("trace "+tt.args), "--snapshot", tt.snapshot)...)
		findings, _, _ := strings.Cut(out, "end to end\n") // what is said of segments stands behind
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s%s", tt.args, want, out, stderr)
			}
		}
		if strings.Contains(strings.Split(findings, "  ENDPOINT ")[0], tt.not) {
			t.Errorf("%s: %q is in\n%s", tt.args, tt.not, findings)
		}
	}
}

// withoutHairpin is a healthy node on whose bridge no port is in hairpin mode.
func withoutHairpin(t *testing.T) string {
	t.Helper()
	for i := range allIncidents {
		if in := &allIncidents[i]; in.name == "own-service" {
			return in.dir(t)
		}
	}
	t.Fatal("no such incident")
	return ""
}

// What was found about all Services begins with a sentence, in every format for people.
func TestImpactOfVerify(t *testing.T) {
	for _, format := range []string{"table", "markdown", "html"} {
		_, out, _ := runPlugin(t, "verify", "-A", "--snapshot", broken, "-o", format)
		if format == "html" {
			out = html.UnescapeString(htmlTag.ReplaceAllString(out, ""))
		}
		want := "3 Services on worker-1 have connections that do not work as they should: " +
			"shop/api, shop/checkout and shop/web"
		if !strings.Contains(out, want) {
			t.Errorf("-o %s: no %q in\n%.2000s", format, want, out)
		}
	}
}

// A difference names each frontend with its Service, and rules that are not compared are not called equal.
func TestDifferencesSayOfWhat(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{
			"diff " + broken + " " + kindsOfServices(t),
			"  none → ByDesign  shop/db: ExternalName; shop/lb: LoadBalancerIP 203.0.113.9:443 from node; " +
				"shop/redis: Headless\n",
		},
		{
			"trace shop/web --compare node1,node3 --snapshot " + threeNodes,
			"\nSAME: no path differs (rules are not compared); 4 differences of settings, routes and the like, " +
				"1 part not compared\n",
		},
	} {
		if _, out, stderr := runPlugin(t, strings.Fields(tt.args)...); !strings.Contains(out, tt.want) {
			t.Errorf("%s: no %q in\n%s%s", tt.args, tt.want, out, stderr)
		}
	}
}
