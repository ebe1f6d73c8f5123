// SPDX-License-Identifier: Apache-2.0

//go:build !kubeproxy_v1.33

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

// version is that of k8s.io/kubernetes in go.mod.
const version = "v1.37.1"

// oneSelector: its informers ask for one label on Services and one on slices (gen.Cluster.Seen).
const oneSelector = false

// absent are the feature gates of other versions that this one does not have; in nftables mode those of absentNFT,
// too.
var (
	absent    = []string{"AllowServiceExternalIPs"}
	absentNFT = []string{"KubeProxyNFTablesLocalhostNodePorts"}
)

type nodeHandler interface {
	OnTopologyChange(labels map[string]string)
}

func nodeSeen(p nodeHandler, w *gen.Cluster) { p.OnTopologyChange(w.Node.Labels) }

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
	return iptables.NewProxier(context.Background(), configuration(w), family, f.tables, sysctls{}, detector(w, family),
		w.Node.Name, nodeIP(w, at), nil, nil, false)
}

func newIPVS(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	return ipvs.NewProxier(context.Background(), configuration(w), family, f.tables, f.servers, f.sets, sysctls{},
		detector(w, family), w.Node.Name,
		nodeIP(w, at), nil, nil, false)
}

func newNFTables(ctx context.Context, w *gen.Cluster, family corev1.IPFamily, at int) (proxier, error) {
	config := configuration(w)
	config.NodePortAddresses = w.NodePortAddresses()
	return nftables.NewProxier(ctx, config, family, detector(w, family), w.Node.Name, nodeIP(w, at), nil, nil, false)
}

// restrict changes what a version cannot do; this one can do it all.
func restrict(*gen.Cluster) {}

// listeners returns what ends the proxy that listens for NodePorts on localhost, if there is one.
func listeners(p proxier) func() {
	if f := place(p, "localhostNodePortProxy"); !f.IsNil() {
		return f.Interface().(interface{ Shutdown() }).Shutdown //nolint:forcetypeassert // or this test has to be changed
	}
	return func() {}
}

func listening(ctx context.Context) ([]byte, error) { return gen.Listeners(ctx) }
