// SPDX-License-Identifier: Apache-2.0

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

// The proxiers' constructors of 1.33 to 1.36.

func newIPTables(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	c := &w.Config
	return iptables.NewProxier(context.Background(), family, f.tables, sysctls{}, time.Hour, time.Hour, c.MasqueradeAll,
		c.LocalhostNodePorts && at == 0, c.MasqueradeBit, detector(w, at), w.Node.Name, nodeIP(w, at), nil, nil,
		c.NodePortAddresses, false)
}

func newIPVS(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	c := &w.Config
	return ipvs.NewProxier(context.Background(), family, f.tables, f.servers, f.sets, sysctls{}, time.Hour, time.Hour, nil,
		false, 0, 0, 0, c.MasqueradeAll, c.MasqueradeBit, detector(w, at), w.Node.Name, nodeIP(w, at), nil, nil, c.Scheduler,
		c.NodePortAddresses, false)
}

func newNFTables(ctx context.Context, w *gen.Cluster, family corev1.IPFamily, at int) (proxier, error) {
	c := &w.Config
	return nftables.NewProxier(ctx, family, time.Hour, time.Hour, c.MasqueradeAll, c.MasqueradeBit, detector(w, at),
		w.Node.Name, nodeIP(w, at), nil, nil, w.NodePortAddresses(), false)
}
