// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	"k8s.io/kubernetes/pkg/proxy/ipvs"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
)

// The proxiers' constructors of 1.28, which has no nftables mode.

func newIPTables(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	c := &w.Config
	return iptables.NewProxier(family, f.tables, sysctls{}, noPrograms, time.Hour, time.Hour, c.MasqueradeAll,
		c.LocalhostNodePorts && at == 0, c.MasqueradeBit, detector(w, at), w.Node.Name, nodeIP(w, at), nil, nil,
		c.NodePortAddresses)
}

func newIPVS(w *gen.Cluster, family corev1.IPFamily, at int, f *fakes) (proxier, error) {
	c := &w.Config
	return ipvs.NewProxier(family, f.tables, f.servers, f.sets, sysctls{}, noPrograms, time.Hour, time.Hour, nil, false,
		0, 0, 0, c.MasqueradeAll, c.MasqueradeBit, detector(w, at), w.Node.Name, nodeIP(w, at), nil, nil, c.Scheduler,
		c.NodePortAddresses, kernel{})
}

// kernel is one on which kube-proxy changes no setting.
type kernel struct{}

func (kernel) GetKernelVersion() (string, error) { return "6.1.0", nil }
