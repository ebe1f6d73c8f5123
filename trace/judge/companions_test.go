// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// codesOn judges Services from pods and the node, and returns the codes of errors on each path, by frontend kind and
// origin.
func codesOn(t *testing.T, w *capturedNode, services ...string) []report.Path {
	t.Helper()
	req := Request{Matching: true, PerPathService: true}
	for _, s := range services {
		ns, name, _ := strings.Cut(s, "/")
		req.Services = append(req.Services, types.NamespacedName{Namespace: ns, Name: name})
	}
	r := Files(w.cluster, snapshot.NewNode("node1", w.files), req)
	if r.Error != "" || len(r.Paths) == 0 {
		t.Fatalf("%q, %d paths", r.Error, len(r.Paths))
	}
	return r.Paths
}

// A rule that drops at random had AffinityMissing beside it: what is dropped is sent to no other endpoint.
func TestARandomDropIsNoMissingAffinity(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.first(v4, "filter", "FORWARD", "-m statistic --mode random --probability 0.3 -j DROP")
	dropped := 0
	for _, p := range codesOn(t, w, "shop/affinity", "shop/ep3") {
		codes := codesOf(p.Findings)
		if slices.Contains(codes, Dropped) {
			dropped++
		}
		if len(codes) > 0 && !slices.Equal(codes, []string{Dropped}) {
			t.Errorf("%s %s from %s: %q", p.Service.Name, p.Frontend.Address, p.Origin.Kind, codes)
		}
	}
	if dropped < 2 {
		t.Errorf("%d paths are dropped", dropped)
	}
}

// A CNI's chain for masquerade, which stands behind kube-proxy's, was cited for a hairpin that kube-proxy's own rules
// no longer masquerade.
func TestNoCNIRuleBehindKubeProxysIsCitedForHairpin(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.table(v4, "nat", func(l string) []string {
		switch {
		case strings.HasPrefix(l, ":KUBE-POSTROUTING "):
			return []string{l, ":CNI-0123456789abcdef - [0:0]"}
		case has(l, "-A KUBE-POSTROUTING", "-j MASQUERADE"):
			return nil
		case l == "COMMIT":
			return []string{
				"-A POSTROUTING -s 10.244.1.0/24 -j CNI-0123456789abcdef",
				"-A CNI-0123456789abcdef -d 10.244.0.0/16 -j ACCEPT",
				"-A CNI-0123456789abcdef ! -d 224.0.0.0/4 -j MASQUERADE",
				l,
			}
		}
		return []string{l}
	})
	found := 0
	for _, p := range codesOn(t, w, "shop/ep3") {
		for _, f := range p.Findings {
			if f.Code == Shadowed {
				t.Errorf("from %s: %+v", p.Origin.Kind, f)
			}
			if f.Code != WrongMasquerade {
				continue
			}
			found++
			for _, e := range f.Evidence {
				if strings.HasPrefix(e.Where.Chain, "CNI-") {
					t.Errorf("from %s: %s", p.Origin.Kind, e)
				}
			}
		}
	}
	if found == 0 {
		t.Errorf("the hairpin that is not masqueraded was not found: %+v", codesOn(t, w, "shop/ep3"))
	}
}
