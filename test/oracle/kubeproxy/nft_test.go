// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TestNFTOracle lets kube-proxy write into the kernel of a network namespace, and reads what nft lists there.
func TestNFTOracle(t *testing.T) {
	quiet(t)
	if gen.InNamespace(t) {
		gen.Run(t, version, kubeproxy.NFTables, writeNFT, slices.Concat(absent, absentNFT)...)
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
	for at, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		p, err := newNFTables(ctx, w, family, at)
		if err != nil {
			return r, err
		}
		isolate(p, w)
		p.(interface{ OnServiceCIDRsChanged(cidrs []string) }).OnServiceCIDRsChanged([]string{
			"10.96.0.0/16", "fd00:10:96::/112",
		})
		feed(p, w)
		defer listeners(p)()
		if place(p, "needFullSync").Bool() {
			return r, errors.New("kube-proxy could not write its rules: run with klog's output to see why")
		}
	}
	if r.Listen, err = listening(ctx); err != nil {
		return r, err
	}
	r.NFT, err = gen.Listing(ctx)
	return r, err
}
