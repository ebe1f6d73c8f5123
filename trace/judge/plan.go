// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Plan plans paths on a node: what kube-proxy should program there. left names what is left out. The Mode is the
// node's, as far as it is known. The error is a plan.RefusalError where programming would not be right.
func Plan(c *Cluster, s *nodestate.State, req plan.Request) (p *plan.Plan, left []string, mode report.Mode, err error) {
	n, err := newNode(c, s, nil)
	if err != nil {
		if _, ok := errors.AsType[replacedError](err); ok {
			err = plan.RefusalError(err.Error())
		}
		return nil, nil, n.shown, err
	}
	req.Mark = n.exp.MasqueradeMark()
	if on, _ := n.net.Sysctl("net/ipv4/conf/all/route_localnet"); on != "1" && req.NoLoopback == "" {
		req.NoLoopback = plan.NoLoopbackRoute
	}
	req.Bound = append(n.net.AddressesOn(kubeproxy.IPVSDevice), n.net.AddressesOn(kubeproxy.ProgramDevice)...)
	p, left, err = plan.For(n.exp, req)
	if err == nil {
		err = n.samePlan(p, req)
	}
	return p, left, n.shown, err
}

// samePlan refuses a plan that would be another one under a value that kube-proxy may have.
func (n *node) samePlan(p *plan.Plan, req plan.Request) error {
	for i := range n.values.open {
		q := &n.values.open[i]
		answers := make([]uint8, len(n.values.open))
		for a := 1; a < len(q.answers); a++ {
			answers[i] = uint8(a)
			w := n.world(answers)
			req.Mark = w.exp.MasqueradeMark()
			if other, _, err := plan.For(w.exp, req); err != nil || !reflect.DeepEqual(p, other) {
				return plan.RefusalError(fmt.Sprintf("kube-proxy's %s is not known (%s), and what should be programmed depends "+
					"on it: make its configuration and version known (curl http://127.0.0.1:10249/configz and /metrics on %s)",
					q.setting, q.texts(), n.Name))
			}
		}
	}
	return nil
}

// PlanFiles loads a node's files and plans paths on it, for one plan alone.
func PlanFiles(
	objects *snapshot.Cluster, files *snapshot.Node, req plan.Request,
) (p *plan.Plan, left []string, mode report.Mode, err error) {
	s, err := nodestate.Load(files)
	if err != nil {
		return nil, nil, mode, err
	}
	return Plan(NewCluster(objects), s, req)
}
