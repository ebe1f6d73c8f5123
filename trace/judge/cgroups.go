// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ProgramOnClient says that a program of BPF is attached to a control group of the client.
const ProgramOnClient = "ProgramOnClient"

var _ = register(kind{code: ProgramOnClient, severity: note, scope: onPath, by: programsOfClient})

// programsOfClient makes the path of a pod Unknown whose control groups have programs that see its connections. Those
// of the root, which see the node's own packets, too, are on the path of these as tables (trace/nodestate); what is
// attached to the groups of single services of the node is not: nobody said which of them the client is.
var programsOfClient = &detector{stage: stageOnward, path: func(p *pathCase) []issue {
	o := &p.want.Origin
	if o.Kind != expect.FromPod || p.want.Action != expect.DNAT || p.verdict == report.Mismatch ||
		p.verdict == report.Unknown {
		return nil
	}
	client := p.cluster.podObject(o.Pod)
	family, proto := netfilter.FamilyOf(p.want.Frontend.Address), protocolNumber(p.want.Frontend.Protocol)
	var out []issue
	for i := range p.GroupPrograms {
		g := &p.GroupPrograms[i]
		if !g.Sees(family, proto) || !groupOf(g, client) {
			continue
		}
		is := issue{
			code: ProgramOnClient, subject: "cgroup " + g.Group + " " + g.Hook,
			message: "the client is in a control group with a program of BPF that decides at " + g.Hook +
				" about its connections, and cannot be evaluated",
			evidence: say("cgroup " + g.Group + " " + g.Hook + ": " + g.Text), remedy: p.askLive(),
		}
		is.remedy.Commands = append(is.remedy.Commands, report.Command{
			Line: report.ShellLine("bpftool", "cgroup", "show", "/sys/fs/cgroup"+strings.TrimSuffix(g.Group, "/")),
			Node: p.Name, When: "to see it",
		})
		out = append(out, is)
	}
	if len(out) > 0 {
		p.verdict = report.Unknown
	}
	return out[:min(len(out), maxEvidence)]
}}

// podObject returns a pod by namespace and name; nil where it is not known.
func (c *Cluster) podObject(name string) *corev1.Pod { return c.podsByName[name] }

// kubepods is what the names of kubelet's groups for pods begin with (pkg/kubelet/cm/node_container_manager_linux.go).
const kubepods = "kubepods"

// groupOf tells whether a group is one that a pod's processes are in, or may be in: the root, one that holds all pods
// or those of the pod's class, or one of the pod itself. Of a pod that is not known those of all pods count alone.
func groupOf(g *nodestate.GroupProgram, pod *corev1.Pod) bool {
	if g.Group == "/" {
		return true
	}
	within := false
	for part := range strings.SplitSeq(strings.Trim(g.Group, "/"), "/") {
		name := strings.TrimSuffix(part, ".slice")
		switch {
		case uidOf(name) != "":
			return pod != nil && (uidOf(name) == string(pod.UID) || uidOf(name) == pod.Annotations[configHash])
		case name == kubepods:
			within = true
		case name == kubepods+"-besteffort", within && name == "besteffort":
			return inClass(g.Group, pod, corev1.PodQOSBestEffort)
		case name == kubepods+"-burstable", within && name == "burstable":
			return inClass(g.Group, pod, corev1.PodQOSBurstable)
		}
	}
	return within
}

// configHash is the annotation of a static pod that its groups are named after.
const configHash = "kubernetes.io/config.hash"

// inClass tells whether a group of a class, which may be that of one pod, is one of a pod's.
func inClass(group string, pod *corev1.Pod, class corev1.PodQOSClass) bool {
	for part := range strings.SplitSeq(group, "/") {
		if uid := uidOf(strings.TrimSuffix(part, ".slice")); uid != "" {
			return pod != nil && (uid == string(pod.UID) || uid == pod.Annotations[configHash])
		}
	}
	return pod != nil && (pod.Status.QOSClass == class || pod.Status.QOSClass == "")
}

// uidOf returns the UID in the name of a pod's group: "pod1234-…" of cgroupfs, "kubepods-besteffort-pod1234_…" of
// systemd; "" for other groups.
func uidOf(name string) string {
	at := strings.LastIndex(name, "pod")
	if at < 0 || at > 0 && name[at-1] != '-' || !strings.HasPrefix(name, kubepods) && at > 0 {
		return ""
	}
	uid := strings.ReplaceAll(name[at+len("pod"):], "_", "-")
	if len(uid) < 32 { // a UID has 36 characters, a hash of a static pod 32
		return ""
	}
	return uid
}
