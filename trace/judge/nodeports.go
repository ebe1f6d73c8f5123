// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about NodePorts that the API and the node's configuration show, whatever the rules are.
const (
	NodePortEphemeral = "NodePortEphemeral"
	NodePortsExposed  = "NodePortsExposed"
)

var (
	_ = register(kind{
		code: NodePortEphemeral, severity: warning, scope: onNode, by: ephemeralNodePorts,
		issues: []string{
			"kubernetes/kubernetes#111823", "kubernetes/kubernetes#111682", "kubernetes/kops#6342",
			"awslabs/amazon-eks-ami#1307",
		},
	})
	_ = register(kind{
		code: NodePortsExposed, severity: warning, scope: onNode, by: exposedNodePorts,
		remedy: advice("add ranges of the other family to nodePortAddresses in kube-proxy's configuration, or set it to "+
			"[\"primary\"] (since 1.31), then restart kube-proxy on {node}", restartProxy),
		issues: []string{"kubernetes/kubernetes#122899", "kubernetes/kubernetes#111863"},
	})
)

// ports is a range of port numbers, both ends included.
type ports struct{ first, last uint16 }

func (p ports) String() string {
	if p.first == p.last {
		return strconv.Itoa(int(p.first))
	}
	return fmt.Sprintf("%d-%d", p.first, p.last)
}

// nodePortsOf are the NodePorts of a Service, that of its health check among them.
func nodePortsOf(svc *corev1.Service) []uint16 {
	var out []uint16
	take := func(port int32) {
		if port > 0 && port <= 65535 {
			out = append(out, uint16(port))
		}
	}
	for i := range svc.Spec.Ports {
		take(svc.Spec.Ports[i].NodePort)
	}
	take(svc.Spec.HealthCheckNodePort)
	return out
}

// ephemeralNodePorts finds NodePorts that the kernel may give to sockets of the node's own. A process that gets one
// listens in vain, for the rules take what comes for it; where it is the source of the node's own connection, IPVS
// takes the answers. kube-proxy binds NodePorts no more, so that nothing keeps them free.
var ephemeralNodePorts = &detector{stage: stageAsked, asked: func(n *node, req *Request) []issue {
	in, known := n.net.Ephemeral()
	if !known {
		return nil
	}
	var found []uint16
	for _, svc := range n.asked(req) {
		if reason, _ := n.exp.Ignored(svc); reason == "" {
			found = append(found, slices.DeleteFunc(nodePortsOf(svc), func(p uint16) bool { return !in(p) })...)
		}
	}
	if len(found) == 0 {
		return nil
	}
	given, _ := n.net.Sysctl(host.LocalPortRange)
	reserved, _ := n.net.Sysctl(host.LocalReservedPorts)
	var all []uint16
	for _, svc := range n.cluster.Services {
		all = append(all, slices.DeleteFunc(nodePortsOf(svc), func(p uint16) bool { return !in(p) })...)
	}
	reserve := joinPorts(all, len(all))
	if reserved != "" {
		reserve = strings.Join(strings.Fields(reserved), "") + "," + reserve
	}
	given = strings.Join(strings.Fields(given), "-")
	return []issue{{
		code: NodePortEphemeral, subject: joinPorts(found, 4), expected: "outside of " + given,
		actual: number(len(slices.Compact(slices.Sorted(slices.Values(found)))), "NodePort"),
		message: "the node's kernel may give the ports to its own connections and sockets, which then collide with the " +
			"NodePorts",
		evidence: say(host.LocalPortRange+"="+given, host.LocalReservedPorts+"="+reserved),
		remedy: report.Remedy{
			Text: "reserve the NodePorts on every node, and make it last (/etc/sysctl.d)",
			Commands: []report.Command{{
				Line: "sysctl -w " + report.ShellWord("net.ipv4.ip_local_reserved_ports="+reserve), Node: n.Name,
			}},
		},
	}}
}}

// joinPorts writes a list of ports as the kernel does, neighbours as a range; at most some items, the rest is counted.
func joinPorts(list []uint16, most int) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	var ranges []ports
	for _, p := range list {
		if k := len(ranges) - 1; k >= 0 && ranges[k].last+1 == p {
			ranges[k].last = p
			continue
		}
		ranges = append(ranges, ports{p, p})
	}
	texts := make([]string, len(ranges))
	for i := range ranges {
		texts[i] = ranges[i].String()
	}
	if len(texts) > most {
		return cut(texts, most)
	}
	return strings.Join(texts, ",")
}

// exposedNodePorts finds that nodePortAddresses limits NodePorts in one family, while Services have them in the other
// one: there kube-proxy takes an empty list for all addresses (pkg/proxy/util/nodeport_addresses.go,
// NewNodePortAddresses), which it warns of itself (cmd/kube-proxy/app/server.go, checkBadConfig). What is only inferred
// from the rules is not taken for a wish.
var exposedNodePorts = &detector{stage: stageAsked, asked: func(n *node, req *Request) []issue {
	from := n.values.sources[kubeproxy.NodePortRanges]
	if from.source == kubeproxy.NotKnown || from.source == kubeproxy.FromRules || len(n.config.NodePortAddresses) == 0 {
		return nil
	}
	var limited [2]bool
	for _, text := range n.config.NodePortAddresses {
		p, ok := kubeproxy.ParsePrefix(text)
		if !ok {
			return nil // a keyword, which stands for both families
		}
		limited[familyIndex(p.Addr().Is4())] = true
	}
	open := familyIndex(!limited[0])
	if limited[0] == limited[1] || !n.exp.NodePortsEverywhere(open == 1) {
		return nil
	}
	var services []string
	n.eachFrontend(req, func(svc *corev1.Service, f *expect.Frontend) {
		name := expect.NameOf(svc).String()
		if f.Kind == expect.NodePort && familyIndex(f.Address.Is4()) == open && !f.Address.IsLoopback() &&
			!slices.Contains(services, name) {
			services = append(services, name)
		}
	})
	if len(services) == 0 {
		return nil
	}
	family := nodestate.Families[open].String()
	return []issue{{
		code: NodePortsExposed, subject: family, expected: "limited in both families", actual: "every " + family + " address",
		message: "nodePortAddresses limits NodePorts in one family alone: those of " + cut(services, 3) +
			" are open at every " + family + " address of the node",
		evidence: say(
			strings.TrimSpace(from.detail + " nodePortAddresses: " + strings.Join(n.config.NodePortAddresses, ", ")),
		),
	}}
}}
