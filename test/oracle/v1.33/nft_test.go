// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/proxy/conntrack"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	"k8s.io/kubernetes/pkg/proxy/nftables"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TestNFTOracle lets kube-proxy write into the kernel of a network namespace, and reads what nft lists there.
func TestNFTOracle(t *testing.T) {
	quiet(t)
	if gen.InNamespace(t) {
		gen.Run(t, "v1.33.0", kubeproxy.NFTables, writeNFT, "PreferSameTrafficDistribution")
	}
}

func writeNFT(w *gen.World) (r gen.Rules, err error) {
	ctx := context.Background()
	// This version asks for the prefix with iif, which nft takes for the name of one interface: such a kube-proxy cannot write
	// anything (mended in 1.34).
	if w.Config.DetectLocalMode == "InterfaceNamePrefix" {
		w.Config.DetectLocalMode = "BridgeInterface"
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(w.Config.FeatureGates); err != nil {
		return r, err
	}
	if err := gen.Flush(ctx); err != nil {
		return r, err
	}
	for at, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if err := writeNFTFamily(ctx, w, family, at); err != nil {
			return r, err
		}
	}
	r.NFT, err = gen.Listing(ctx)
	return r, err
}

func writeNFTFamily(ctx context.Context, w *gen.World, family corev1.IPFamily, at int) error {
	c := &w.Config
	p, err := nftables.NewProxier(ctx, family, time.Hour, time.Hour, c.MasqueradeAll, c.MasqueradeBit, detector(w, family), w.Node.Name,
		net.ParseIP(w.Node.Status.Addresses[at].Address), nil, nil, w.NodePortAddresses(), false)
	if err != nil {
		return err
	}
	set(p, "networkInterfacer", network(w))
	set(p, "conntrack", conntrack.NewFake())
	set(p, "serviceHealthServer", healthcheck.NewFakeServiceHealthServer())

	p.OnNodeAdd(w.Node)
	p.OnServiceCIDRsChanged([]string{"10.96.0.0/16", "fd00:10:96::/112"})
	services, slices := w.Seen(true)
	for _, s := range services {
		p.OnServiceAdd(s)
	}
	for _, s := range slices {
		p.OnEndpointSliceAdd(s)
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	if place(p, "needFullSync").Bool() {
		return errors.New("kube-proxy could not write its rules: run with klog's output to see why")
	}
	return nil
}
