// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TestNFTOracle lets kube-proxy write into the kernel of a network namespace, and reads what nft lists there.
func TestNFTOracle(t *testing.T) {
	quiet(t)
	if gen.InNamespace(t) {
		gen.Run(t, version(), kubeproxy.NFTables, writeNFT, gates()...)
	}
}

func writeNFT(w *gen.Cluster) (r gen.Rules, err error) {
	ctx := context.Background()
	restrict(w)
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(w.Config.FeatureGates); err != nil {
		return r, err
	}
	if err := gen.Flush(ctx); err != nil {
		return r, err
	}
	for at, family := range families {
		p, err := newNFTables(ctx, w, family, at)
		if err != nil {
			return r, err
		}
		isolate(p, w)
		if p, ok := p.(interface{ OnServiceCIDRsChanged(cidrs []string) }); ok { // from 1.30 on
			p.OnServiceCIDRsChanged([]string{"10.96.0.0/16", "fd00:10:96::/112"})
		}
		feed(p, w)
		defer listeners(p)()
	}
	if r.Listen, err = gen.Listeners(ctx); err != nil {
		return r, err
	}
	if r.NFT, err = gen.Listing(ctx); err != nil {
		return r, err
	}
	// The whole table is one transaction.
	if n := strings.Count(string(r.NFT), `"name": "nat-prerouting"`); n != len(families) {
		return r, fmt.Errorf("kube-proxy wrote the tables of %d families: run with klog's output to see why", n)
	}
	return r, nil
}

// restrict changes what this version cannot do. Up to patch releases of 1.33 and 1.34 it asks for the prefix with iif,
// which nft takes for the name of one interface; in 1.29 it has source ranges in one set, where none may overlap. Such a
// kube-proxy cannot write anything.
func restrict(w *gen.Cluster) {
	if w.Config.DetectLocalMode == kubeproxy.DetectNamePrefix && detector(w, 0).IfLocalNFT()[0] == "iif" {
		w.Config.DetectLocalMode = kubeproxy.DetectBridge
	}
	if !strings.HasPrefix(version(), "v1.29.") {
		return
	}
	for _, s := range w.Services {
		var kept []string
		var have [2]bool // a range of the family
		for _, r := range s.Spec.LoadBalancerSourceRanges {
			p := netip.MustParsePrefix(strings.TrimSpace(r))
			if at := p.Addr().BitLen() / 128; p.Bits() > 0 && !have[at] {
				kept, have[at] = append(kept, r), true
			}
		}
		s.Spec.LoadBalancerSourceRanges = kept
	}
}

// listeners returns what ends the proxy that listens for NodePorts on localhost, if there is one (from 1.37 on).
func listeners(p proxier) func() {
	const field = "localhostNodePortProxy"
	if !has(p, field) || place(p, field).IsNil() {
		return func() {}
	}
	return place(p, field).Interface().(interface{ Shutdown() }).Shutdown //nolint:forcetypeassert // or this is to change
}
