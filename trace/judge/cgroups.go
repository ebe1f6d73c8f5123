// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
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
			code: ProgramOnClient, subject: groupText(g),
			message: "the client is in a control group with a program of BPF that decides at " + g.Hook +
				" about its connections, and cannot be evaluated",
			evidence: say(groupText(g) + ": " + g.Text), remedy: p.askLive(),
		}
		is.remedy.Commands = append(is.remedy.Commands, report.Command{
			Line: showGroup(g),
			Node: p.Name, When: "to see it",
		})
		out = append(out, is)
	}
	if len(out) > 0 {
		p.verdict = report.Unknown
	}
	return out[:min(len(out), maxEvidence)]
}}

// withPrograms makes a segment of an endpoint's pod unknown whose control groups have programs that see its packets: as
// programsOfClient for the client. Those at connect see no connection that comes in.
func (t *tour) withPrograms(p *report.Path, conn *endtoend.Connection) {
	packet := &conn.Start.Packet
	for i := range p.Segments {
		s := &p.Segments[i]
		at := slices.IndexFunc(conn.Endpoints, func(e endtoend.Endpoint) bool { return e.At.String() == s.Endpoint })
		if s.Segment != report.SegmentEndpointPod || s.Verdict != report.SegmentRight || at < 0 {
			continue
		}
		e := &conn.Endpoints[at]
		if t.nodes[e.Node] == nil {
			continue
		}
		pod := t.cluster.podObject(e.Pod)
		programs := t.nodes[e.Node].GroupPrograms
		for k := range programs {
			g := &programs[k]
			if strings.HasPrefix(g.Hook, "connect") || !g.Sees(packet.Family, packet.Proto) || !groupOf(g, pod) {
				continue
			}
			s.Verdict, s.Node = report.SegmentUnknown, e.Node
			s.Message = "the pod is in a control group with a program of BPF that decides at " + g.Hook +
				" about its packets, and cannot be evaluated; " + s.Message
			s.Command = showGroup(g)
			s.Evidence = append(say(groupText(g)+": "+g.Text), s.Evidence...)
			break
		}
	}
}

func groupText(g *nodestate.GroupProgram) string { return "cgroup " + g.Group + " " + g.Hook }

// showGroup lists the programs of a group.
func showGroup(g *nodestate.GroupProgram) string {
	return report.ShellLine("bpftool", "cgroup", "show", "/sys/fs/cgroup"+strings.TrimSuffix(g.Group, "/"))
}

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
