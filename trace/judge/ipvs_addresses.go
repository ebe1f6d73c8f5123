// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about addresses and ports that Services cannot have in ipvs mode without harm, as kube-proxy binds every
// address of a Service on every node.
const (
	NodeAddressCaptured = "NodeAddressCaptured"
	NodePortClash       = "NodePortClash"
)

var (
	_ = register(kind{
		code: NodeAddressCaptured, severity: warning, scope: onNode, by: capturedAddresses,
		remedy: advice("give the Service an address that no node has: in ipvs mode kube-proxy binds each address of a " +
			"Service on every node"),
		issues: []string{
			"kubernetes/kubernetes#127410", "kubernetes/kubernetes#104679", "kubernetes/kubernetes#75290",
		},
	})
	_ = register(kind{
		code: NodePortClash, severity: warning, scope: onPath, by: explanation,
		effect: map[string]string{"": "masqueraded"},
		remedy: advice("give the Service a port outside of the range of NodePorts, or the other Service another nodePort; " +
			"endpoints see the node's address until then"),
		issues: []string{"kubernetes/kubernetes#132068"},
	})
)

// capturedAddresses finds addresses of other nodes on the device of ipvs mode: what this node sends to them stays here
// (pkg/proxy/ipvs/proxier.go, syncService, binds every external and load-balancer IP).
var capturedAddresses = &detector{stage: stageRules, node: func(n *node) []issue {
	var out []issue
	for _, a := range n.net.AddressesOn(kubeproxy.IPVSDevice) {
		other := n.cluster.nodeWith(a)
		if other == "" || other == n.Name || n.hasNodeAddress(a) {
			continue
		}
		is := issue{
			code: NodeAddressCaptured, subject: a.String(), expected: "reached at " + other,
			actual: "on " + kubeproxy.IPVSDevice + " of " + n.Name,
			message: fmt.Sprintf("%s is the address of the node %s, and this node has it on %s: its packets to that address "+
				"do not leave it, whatever their port", a, other, kubeproxy.IPVSDevice),
			evidence: say(a.String() + " dev " + kubeproxy.IPVSDevice),
		}
		if svc := n.cluster.withExternalIP(a); svc != nil {
			is.message += fmt.Sprintf("; the Service %s has it as an external IP", expect.NameOf(svc))
			is.remedy = withoutExternalIP(svc, a)
		}
		out = append(out, is)
	}
	return out
}}

// hasNodeAddress tells whether the Node object of this node has an address, too.
func (n *node) hasNodeAddress(a netip.Addr) bool {
	return n.object != nil && slices.ContainsFunc(n.object.Status.Addresses, func(x corev1.NodeAddress) bool {
		return x.Address == a.String()
	})
}

// nodeWith returns the name of the Node whose InternalIP an address is; "" where none has it.
func (c *Cluster) nodeWith(a netip.Addr) string {
	for _, o := range c.Nodes {
		for _, x := range o.Status.Addresses {
			if ip, ok := kubeproxy.ParseAddr(x.Address); ok && ip == a && x.Type == corev1.NodeInternalIP {
				return o.Name
			}
		}
	}
	return ""
}

// withExternalIP returns the first Service that has an address among its externalIPs; nil where none has.
func (c *Cluster) withExternalIP(a netip.Addr) *corev1.Service {
	for _, svc := range c.Services {
		if slices.ContainsFunc(svc.Spec.ExternalIPs, isAddress(a)) {
			return svc
		}
	}
	return nil
}

// isAddress returns a function that tells whether a text is an address.
func isAddress(a netip.Addr) func(text string) bool {
	return func(text string) bool {
		ip, ok := kubeproxy.ParseAddr(text)
		return ok && ip == a
	}
}

// withoutExternalIP is the remedy that takes an address from a Service's externalIPs.
func withoutExternalIP(svc *corev1.Service, a netip.Addr) report.Remedy {
	rest := slices.DeleteFunc(slices.Clone(svc.Spec.ExternalIPs), isAddress(a))
	list, _ := json.Marshal(rest) // strings
	return report.Remedy{
		Text: "take the address from the Service's externalIPs: in ipvs mode kube-proxy binds it on every node",
		Commands: []report.Command{{Line: report.ShellLine("kubectl", "-n", svc.Namespace, "patch", "service", svc.Name,
			"--type=merge", "-p", `{"spec":{"externalIPs":`+string(list)+`}}`)}},
	}
}

// markedForNodePort tells whether a packet to another frontend than a NodePort is marked for masquerade by the chain of
// NodePorts alone, for a NodePort that some Service has. The chain is asked of every local address (pkg/proxy/ipvs/
// proxier.go, writeIptablesRules), and those of Services are local.
func (p *pathCase) markedForNodePort(w *walked) bool {
	f := &p.want.Frontend
	if f.Kind == expect.NodePort || !p.survey.frontends[frontendKey{proto: protocolNumber(f.Protocol), port: f.Port}] {
		return false
	}
	marked := false
	for i := range w.steps {
		s := &w.steps[i]
		if !w.masquerades(s) || s.Kind == netfilter.StepTranslate || s.Ref.Chain.Name == w.mode.names().MarkMasq {
			continue
		}
		if s.Ref.Chain.Name != kubeproxy.IPVSChainNodePort && s.Ref.Chain.Name != w.mode.names().Postrouting {
			return false
		}
		marked = marked || s.Ref.Chain.Name == kubeproxy.IPVSChainNodePort
	}
	return marked
}

// nodePortClash says of a needless masquerade that it is for a NodePort with the number of the frontend's port.
func (p *pathCase) nodePortClash(w *walked, was *issue) issue {
	f := &p.want.Frontend
	whose := "a Service"
	for _, svc := range p.cluster.Services {
		if slices.ContainsFunc(svc.Spec.Ports, func(x corev1.ServicePort) bool {
			return x.NodePort == int32(f.Port) && protocolNumber(x.Protocol) == protocolNumber(f.Protocol)
		}) {
			whose = expect.NameOf(svc).String()
			break
		}
	}
	return issue{
		code: NodePortClash, subject: serverName(*f), endpoints: was.endpoints, expected: was.expected, actual: was.actual,
		evidence: w.masquerading(),
		message: fmt.Sprintf("%d is also a NodePort, of %s: in ipvs mode kube-proxy's rules take every packet to this port "+
			"of a local address for one to the NodePort, and translate its source", f.Port, whose),
	}
}
