// SPDX-License-Identifier: Apache-2.0

//go:build kubeproxy_v1.33

package oracle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	"k8s.io/kubernetes/pkg/proxy/ipvs"
	"k8s.io/kubernetes/pkg/proxy/nftables"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
)

// version is that of k8s.io/kubernetes in v1.33.mod.
const version = "v1.33.0"

// oneSelector: its informers ask for both labels on Services and on slices (gen.Cluster.Seen).
const oneSelector = true

// absent are the feature gates of the newest version that this one does not have; in nftables mode those of
// absentNFT, too.
var (
	absent    = []string{"PreferSameTrafficDistribution"}
	absentNFT []string
)

type nodeHandler interface{ OnNodeAdd(node *corev1.Node) }

func nodeSeen(p nodeHandler, w *gen.Cluster) { p.OnNodeAdd(w.Node) }

func newIPTables(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	c := &w.Config
	return iptables.NewProxier(context.Background(), family, f.tables, sysctls{}, time.Hour, time.Hour, c.MasqueradeAll,
		c.LocalhostNodePorts && at == 0,
		c.MasqueradeBit, detector(w, family), w.Node.Name, nodeIP(w, at), nil, nil, c.NodePortAddresses, false)
}

func newIPVS(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	c := &w.Config
	return ipvs.NewProxier(context.Background(), family, f.tables, f.servers, f.sets, sysctls{}, time.Hour, time.Hour, nil,
		false, 0, 0, 0, c.MasqueradeAll,
		c.MasqueradeBit, detector(w, family), w.Node.Name, nodeIP(w, at), nil, nil, c.Scheduler, c.NodePortAddresses, false)
}

func newNFTables(ctx context.Context, w *gen.Cluster, family corev1.IPFamily, at int) (proxier, error) {
	c := &w.Config
	return nftables.NewProxier(ctx, family, time.Hour, time.Hour, c.MasqueradeAll, c.MasqueradeBit,
		detector(w, family), w.Node.Name,
		nodeIP(w, at), nil, nil, w.NodePortAddresses(), false)
}

// restrict changes what this version cannot do: it asks for the prefix with iif, which nft takes for the name of
// one interface, and such a kube-proxy cannot write anything (fixed in 1.34).
func restrict(w *gen.Cluster) {
	if w.Config.DetectLocalMode == "InterfaceNamePrefix" {
		w.Config.DetectLocalMode = "BridgeInterface"
	}
}

// listeners: this version has none for NodePorts of nftables mode.
func listeners(proxier) func() { return func() {} }

func listening(context.Context) ([]byte, error) { return nil, nil }
