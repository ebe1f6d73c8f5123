// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	"k8s.io/kubernetes/pkg/proxy/ipvs"
	"k8s.io/kubernetes/pkg/proxy/nftables"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
)

// The proxiers' constructors from 1.37 on take kube-proxy's configuration.

func configuration(w *gen.Cluster) *kubeproxyconfig.KubeProxyConfiguration {
	c := &w.Config
	bit := int32(c.MasqueradeBit) //nolint:gosec // 0 to 31
	return &kubeproxyconfig.KubeProxyConfiguration{
		NodePortAddresses: c.NodePortAddresses,
		SyncPeriod:        metav1.Duration{Duration: time.Hour}, MinSyncPeriod: metav1.Duration{Duration: time.Hour},
		IPTables: kubeproxyconfig.KubeProxyIPTablesConfiguration{
			MasqueradeBit:      &bit,
			LocalhostNodePorts: &c.LocalhostNodePorts,
		},
		IPVS:     kubeproxyconfig.KubeProxyIPVSConfiguration{Scheduler: c.Scheduler},
		NFTables: kubeproxyconfig.KubeProxyNFTablesConfiguration{MasqueradeBit: &bit},
		Linux:    kubeproxyconfig.KubeProxyLinuxConfiguration{MasqueradeAll: c.MasqueradeAll},
	}
}

func newIPTables(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	return iptables.NewProxier(context.Background(), configuration(w), family, f.tables, sysctls{}, detector(w, at),
		w.Node.Name, nodeIP(w, at), nil, nil, false)
}

func newIPVS(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	return ipvs.NewProxier(context.Background(), configuration(w), family, f.tables, f.servers, f.sets, sysctls{},
		detector(w, at), w.Node.Name, nodeIP(w, at), nil, nil, false)
}

func newNFTables(ctx context.Context, w *gen.Cluster, family corev1.IPFamily, at int) (proxier, error) {
	config := configuration(w)
	config.NodePortAddresses = w.NodePortAddresses()
	return nftables.NewProxier(ctx, config, family, detector(w, at), w.Node.Name, nodeIP(w, at), nil, nil, false)
}
