// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Plan plans paths on a node that was read: what kube-proxy should program there. left names what is left out. The Mode is the node's, as far as it is
// known. The error is a plan.RefusalError where programming would not be right.
func (r *Reading) Plan(cluster *snapshot.Cluster, req plan.Request) (p *plan.Plan, left []string, mode report.Mode, err error) {
	n, err := r.load(cluster)
	if err != nil {
		if r.node.mode.ReplacedBy != "" {
			err = plan.RefusalError(err.Error())
		}
		return nil, nil, r.node.mode, err
	}
	req.Mark = n.exp.MasqueradeMark()
	if on, _ := n.net.Sysctl("net/ipv4/conf/all/route_localnet"); on != "1" && req.NoLoopback == "" {
		req.NoLoopback = plan.NoLoopbackRoute
	}
	req.Bound = append(n.net.AddressesOn(ipvsDevice), n.net.AddressesOn(programDevice)...)
	p, left, err = plan.For(n.exp, req)
	return p, left, n.mode, err
}
