// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// proxyPod is a pod of kube-proxy's.
type proxyPod struct {
	namespace, name string
	owned           bool // a controller makes another one where it is deleted
	static          bool // of a manifest of the kubelet's; the API has a mirror of it
	live            bool // it runs, or is about to, and is not being deleted
	created         int64
	image           string // of kube-proxy's container
	object          *corev1.Pod
}

// proxyPodOf tells whether a pod is kube-proxy's; nil where it is not.
func proxyPodOf(p *corev1.Pod) *proxyPod {
	if !kubeproxy.RunsIn(p) || p.Spec.NodeName == "" {
		return nil
	}
	source := p.Annotations[snapshot.StaticPodAnnotations[0]]
	_, mirror := p.Annotations[snapshot.StaticPodAnnotations[1]]
	x := &proxyPod{
		namespace: p.Namespace, name: p.Name, static: mirror || source == "file" || source == "http", object: p,
	}
	for _, o := range p.OwnerReferences {
		x.static = x.static || o.Kind == "Node" // of mirrors, since 1.20
		x.owned = x.owned || o.Kind != "Node"
	}
	if _, labelled := p.Labels["controller-revision-hash"]; labelled { // of a DaemonSet; the owners may have been left out
		x.owned = true
	}
	x.live = p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
	x.created = p.CreationTimestamp.Unix()
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; x.image == "" || c.Name == kubeproxy.Process {
			x.image = c.Image
		}
	}
	return x
}

// better tells whether a pod rather than another one of the same node is kube-proxy's: while one is replaced, there are
// two.
func (x *proxyPod) better(than *proxyPod) bool {
	if than == nil || x.live != than.live {
		return than == nil || x.live
	}
	return cmp.Or(cmp.Compare(x.created, than.created), -cmp.Compare(x.name, than.name)) > 0
}

// running is how kube-proxy runs on a node. The zero running is one that is not known.
type running struct {
	pod     *proxyPod // its pod; nil where it has none, or that was not read
	inPod   bool      // it runs in a pod
	unit    string    // of systemd, that it or what contains it runs as
	program string    // that contains it: k3s, kubelite
	none    bool      // it does not run
}

// embedders are the programs that have kube-proxy within them, with their usual units of systemd.
var embedders = []struct{ process, name, unit string }{
	{"k3s-server", "k3s", "k3s.service"},
	{"k3s-agent", "k3s", "k3s-agent.service"},
	{"k3s", "k3s", ""},
	{"kubelite", "MicroK8s", "snap.microk8s.daemon-kubelite.service"},
}

// runsAs finds out how kube-proxy runs on the node. A process tells more than a pod, which may not be running, or be
// left over.
func (n *node) runsAs() running {
	p := &n.Proxy
	out := running{pod: n.cluster.proxyPods[n.Name]}
	if p.Processes[kubeproxy.Process] != 0 {
		cgroup := p.Cgroups[kubeproxy.Process]
		out.inPod = out.pod != nil && cgroup == "" || podCgroup().MatchString(cgroup)
		if !out.inPod {
			out.unit = unitOf(cgroup)
		}
		return out
	}
	for _, e := range embedders {
		if p.Processes[e.process] != 0 && !podCgroup().MatchString(p.Cgroups[e.process]) {
			return running{program: e.name, unit: cmp.Or(unitOf(p.Cgroups[e.process]), e.unit)}
		}
	}
	switch {
	case p.Down():
		out.none = true
	default:
		out.inPod = out.pod != nil && out.pod.live
	}
	return out
}

// podCgroup matches the control group of a container in a pod (pkg/kubelet/cm/cgroup_manager_linux.go,
// pkg/kubelet/cm/pod_container_manager_linux.go): kubepods[-burstable]-podUID.slice, or kubepods/burstable/podUID.
var podCgroup = lazyregexp.New(`(^|[-/])kubepods([-./]|$)|[-/]pod[0-9a-f]{8}[-_]?[0-9a-f]{4}`)

// unitName is a name of a service of systemd (systemd.unit(5)).
var unitName = lazyregexp.New(`^[A-Za-z0-9:_.\\@-]+\.service$`)

// unitOf returns the unit of systemd that a control group belongs to; "" where it belongs to none that could be
// restarted for it: containers of a runtime's have none of their own.
func unitOf(cgroup string) string {
	for group := range strings.SplitSeq(cgroup, ",") {
		fields := strings.SplitN(group, ":", 3) //nolint:mnd // hierarchy-ID:controllers:path, cgroups(7)
		if len(fields) != 3 || fields[1] != "" && fields[1] != "name=systemd" {
			continue
		}
		unit := ""
		for part := range strings.SplitSeq(fields[2], "/") {
			if strings.HasSuffix(part, ".scope") || part == "docker" {
				return ""
			}
			if unitName().MatchString(part) {
				unit = part
			}
		}
		switch unit {
		case "", "kubelet.service", "containerd.service", "docker.service", "crio.service":
			continue
		}
		return unit
	}
	return ""
}

// restart are the commands that make kube-proxy write every rule again; where it is not known how it runs, those that
// tell.
func (r running) restart(n *node) []report.Command {
	switch {
	case r.none:
		return []report.Command{r.find(n)}
	case r.inPod && r.pod != nil && r.pod.owned:
		return []report.Command{{Line: report.ShellLine("kubectl", "-n", r.pod.namespace, "delete", "pod/"+r.pod.name)}}
	case r.inPod: // the kubelet starts the container again
		return []report.Command{{Line: "pkill -x kube-proxy", Node: n.Name}}
	case r.unit != "":
		return []report.Command{{Line: report.ShellLine("systemctl", "restart", "--", r.unit), Node: n.Name}}
	case r.program != "":
		return []report.Command{{Line: "systemctl restart 'k3s*'", Node: n.Name}}
	}
	return []report.Command{
		{Line: podsOf(n.Name), When: "to see whether it is a pod"},
		{
			Line: `ps -e -o pid=,cgroup:512=,comm= | grep -E ' (kube-proxy|k3s.*|kubelite)$'`, Node: n.Name,
			When: "to see how else it runs",
		},
	}
}

func podsOf(node string) string {
	return report.ShellLine("kubectl", "get", "pods", "-A", "-o", "wide", "--field-selector", "spec.nodeName="+node)
}

// note is what is to be said of a restart besides; "" for nothing.
func (r running) note(n *node) string {
	switch {
	case r.none:
		return "no kube-proxy runs on " + n.Name + " now: find out why, and start it"
	case r.inPod && r.pod != nil && r.pod.static:
		return "its pod " + r.pod.namespace + "/" + r.pod.name + " is a static one, which the API only mirrors: to delete " +
			"that restarts nothing, while the kubelet starts a process that ends again"
	case r.inPod && r.pod != nil && !r.pod.owned:
		return "its pod " + r.pod.namespace + "/" + r.pod.name + " has no controller, and would not come back if it were " +
			"deleted: the kubelet starts a process that ends again"
	case r.inPod && r.pod == nil:
		return "it runs in a pod that was not read; the kubelet starts a process that ends again"
	case r.program != "":
		return "it is a part of " + r.program + ", which is restarted as a whole: the kubelet with it, and on a server the " +
			"API server; pods go on running"
	case !r.inPod && r.unit == "":
		return "how it runs there is not known"
	}
	return ""
}

// find is the command that shows why kube-proxy does not run.
func (r running) find(n *node) report.Command {
	if r.pod != nil {
		return report.Command{Line: report.ShellLine("kubectl", "-n", r.pod.namespace, "describe", "pod/"+r.pod.name)}
	}
	return report.Command{Line: podsOf(n.Name)}
}
