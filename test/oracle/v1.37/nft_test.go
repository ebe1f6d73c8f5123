// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeproxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	"k8s.io/kubernetes/pkg/proxy/conntrack"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	"k8s.io/kubernetes/pkg/proxy/localnodeportproxy"
	"k8s.io/kubernetes/pkg/proxy/nftables"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TestNFTOracle lets kube-proxy write into the kernel of a network namespace, and reads what nft lists there.
func TestNFTOracle(t *testing.T) {
	quiet(t)
	if gen.InNamespace(t) {
		gen.Run(t, "v1.37.1", kubeproxy.NFTables, writeNFT, "AllowServiceExternalIPs", "KubeProxyNFTablesLocalhostNodePorts")
	}
}

func writeNFT(w *gen.World) (r gen.Rules, err error) {
	ctx := context.Background()
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(w.Config.FeatureGates); err != nil {
		return r, err
	}
	if err := gen.Flush(ctx); err != nil {
		return r, err
	}
	for at, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		p, err := writeNFTFamily(ctx, w, family, at)
		if err != nil {
			return r, err
		}
		if listening, ok := place(p, "localhostNodePortProxy").Interface().(*localnodeportproxy.LocalNodePortProxy); ok && listening != nil {
			defer listening.Shutdown()
		}
	}
	if r.Listen, err = gen.Listeners(ctx); err != nil {
		return r, err
	}
	r.NFT, err = gen.Listing(ctx)
	return r, err
}

func writeNFTFamily(ctx context.Context, w *gen.World, family corev1.IPFamily, at int) (*nftables.Proxier, error) {
	c := &w.Config
	bit := int32(c.MasqueradeBit) //nolint:gosec // 0 to 31
	config := &kubeproxyconfig.KubeProxyConfiguration{
		NodePortAddresses: w.NodePortAddresses(),
		SyncPeriod:        metav1.Duration{Duration: time.Hour}, MinSyncPeriod: metav1.Duration{Duration: time.Hour},
		NFTables: kubeproxyconfig.KubeProxyNFTablesConfiguration{MasqueradeBit: &bit},
		Linux:    kubeproxyconfig.KubeProxyLinuxConfiguration{MasqueradeAll: c.MasqueradeAll},
	}
	p, err := nftables.NewProxier(ctx, config, family, detector(w, family), w.Node.Name, net.ParseIP(w.Node.Status.Addresses[at].Address), nil, nil, false)
	if err != nil {
		return nil, err
	}
	set(p, "networkInterfacer", network(w))
	set(p, "conntrack", conntrack.NewFake())
	set(p, "serviceHealthServer", healthcheck.NewFakeServiceHealthServer())

	p.OnTopologyChange(w.Node.Labels)
	p.OnServiceCIDRsChanged([]string{"10.96.0.0/16", "fd00:10:96::/112"})
	services, slices := w.Seen(false)
	for _, s := range services {
		p.OnServiceAdd(s)
	}
	for _, s := range slices {
		p.OnEndpointSliceAdd(s)
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	if place(p, "needFullSync").Bool() {
		return nil, errors.New("kube-proxy could not write its rules: run with klog's output to see why")
	}
	return p, nil
}
