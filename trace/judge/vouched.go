// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// ProcessNotTaken says that a process has the name of kube-proxy, or of another program that serves Services, and that
// nothing vouches for it.
const ProcessNotTaken = "ProcessNotTaken"

var _ = register(kind{code: ProcessNotTaken, severity: note, scope: onNode, by: notTaken, remedy: advice(
	"find out what it is; nothing that it says is used", command{line: "ps -e -o pid,user,comm,args", onNode: true})})

// notTaken lists the processes that merely have such a name.
var notTaken = &detector{stage: stageCoverage, node: func(n *node) []issue {
	out := make([]issue, 0, len(n.Proxy.NotTaken))
	for _, x := range n.Proxy.NotTaken {
		out = append(out, issue{
			code: ProcessNotTaken, subject: x.Name, expected: "a process that root vouches for", actual: "its name alone",
			message: fmt.Sprintf("a process goes by the name %s and is not taken for it, as %s: "+
				"what it says and has is left out", x.Name, x.Why),
			evidence: say(fmt.Sprintf("%s: process %d", snapshot.ProcessesFile, x.PID)),
		})
	}
	return out
}}

// podUID matches the UID of a pod in the name of a control group that the kubelet has made for it
// (pkg/kubelet/cm/pod_container_manager_linux.go); of a static pod it is the hash of its manifest.
var podUID = lazyregexp.New(`[-/]pod([0-9a-f][0-9a-f_-]{14,35})(?:\.slice)?(?:[/,]|$)`)

// confirmed checks the processes in pods against the API: kube-proxy's has to be in a pod that the API knows on this
// node and that may write its rules. What another one says is not used, as if it had not been collected: whether a
// kube-proxy runs is then not known. Where pods were not read, or not those of the node, nothing is checked.
func confirmed(c *Cluster, s *nodestate.State) *nodestate.State {
	if slices.Contains(c.Missing, "pods") || len(c.podSpaces[s.Name]) == 0 {
		return s
	}
	var out *nodestate.State
	for _, name := range slices.Sorted(maps.Keys(s.Proxy.Processes)) {
		match := podUID().FindStringSubmatch(s.Proxy.Cgroups[name])
		if match == nil {
			continue
		}
		uid := strings.ReplaceAll(match[1], "_", "-")
		var why string
		switch p := c.podOf(s.Name, uid); {
		case p == nil && c.proxyPods[s.Name] == nil:
			continue // the list may be of some namespaces alone: it is not confirmed
		case p == nil:
			why = "the API has no pod " + uid + " on this node"
		case name == kubeproxy.Process && !kubeproxy.RunsIn(p):
			why = "its pod " + p.Namespace + "/" + p.Name + " is none that runs kube-proxy with the right to write rules"
		default:
			continue
		}
		if out == nil {
			x := *s
			x.Proxy.Processes, x.Proxy.Cgroups = maps.Clone(s.Proxy.Processes), maps.Clone(s.Proxy.Cgroups)
			x.Proxy.NotTaken = slices.Clone(s.Proxy.NotTaken)
			out = &x
		}
		p := &out.Proxy
		p.NotTaken = append(p.NotTaken, kubeproxy.NotTaken{PID: p.Processes[name], Name: name, Why: why})
		delete(p.Processes, name)
		delete(p.Cgroups, name)
		if name == kubeproxy.Process {
			out.Proxy = kubeproxy.Status{
				NotTaken: p.NotTaken, Processes: p.Processes, Cgroups: p.Cgroups, Failures: -1, Pending: -1,
			}
			out.Config, out.Flags = nil, nil
		}
	}
	if out == nil {
		return s
	}
	return out
}

// podOf returns the pod of a node with a UID, or with a manifest of that hash; nil where there is none.
func (c *Cluster) podOf(node, uid string) *corev1.Pod {
	for _, p := range c.Pods {
		if p.Spec.NodeName == node && (string(p.UID) == uid || p.Annotations[snapshot.StaticPodAnnotations[1]] == uid) {
			return p
		}
	}
	return nil
}

// vouchedBy says what vouches for kube-proxy's process; "" where there is none, or its control group is not known.
func (n *node) vouchedBy() report.Voucher {
	group, runs := n.Proxy.Cgroups[kubeproxy.Process]
	switch {
	case !runs || group == "":
		return ""
	case !podUID().MatchString(group):
		return report.VouchedByNode
	}
	uid := strings.ReplaceAll(podUID().FindStringSubmatch(group)[1], "_", "-")
	if n.cluster.podOf(n.Name, uid) == nil {
		return report.VouchedByKubelet
	}
	return report.VouchedByAPI
}

// isProxy reports whether a socket is kube-proxy's, or that of a program which contains it. It is not known where whose
// it is was not collected, or which processes are what they are named could not be read. Of a snapshot by hand without
// a list of processes the name counts, for which whoever made it vouches.
func (n *node) isProxy(s *host.Socket) (is, known bool) {
	switch {
	case s.Process == "":
		return false, false
	case n.Has(snapshot.ProcessesFile) && (n.Proxy.Listed || len(n.Proxy.Processes) > 0):
		return slices.Contains(slices.Collect(maps.Values(n.Proxy.Processes)), s.PID), true
	case n.Has(snapshot.ProcessesFile), n.ListsUnread():
		return false, false
	}
	return s.Process == kubeproxy.Process || slices.Contains(kubeproxy.Embedding, s.Process), true
}

// isOther reports whether a socket is known to be neither.
func (n *node) isOther(s *host.Socket) bool {
	is, known := n.isProxy(s)
	return known && !is
}
