// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// deviation is a helper pod with one difference, and a part of what is said of it.
type deviation struct {
	name   string
	change func(*corev1.Pod)
	want   string
}

// container makes a change of the container.
func container(change func(*corev1.Container)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
}

// security makes a change of the container's rights.
func security(change func(*corev1.SecurityContext)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { change(p.Spec.Containers[0].SecurityContext) }
}

// word changes a word of the command.
func word(at int, text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command[at] = text }
}

func label(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if value == "" {
			delete(p.Labels, name)
			return
		}
		p.Labels[name] = value
	}
}

const (
	badImage    = "is not allowed; allow it with: kubectl -n svcproxy patch configmap svcproxy-helper --type merge"
	badCommand  = "the command is not /svcproxy-nodehelper serve"
	badLabels   = "the labels are not those of a helper pod"
	badProfile  = "securityContext is that of none of the profiles"
	badOutside  = "nothing in its own securityContext"
	badVolume   = "a helper pod has no volumes"
	badAccount  = "automountServiceAccountToken: false"
	badEnv      = "has no environment"
	badHooks    = "no lifecycle hooks and no probes"
	badDeadline = "an activeDeadlineSeconds of at most 90000"
	badLimits   = "limits of at most 2 CPUs and 1Gi of memory"
	badStreams  = "none of ports, workingDir, tty"
	badNames    = "none of dnsConfig, hostAliases, hostname"
	badRest     = "none of runtimeClassName, resourceClaims"
	badIPC      = "none of hostIPC, shareProcessNamespace"
	badNetwork  = "has hostNetwork: true and hostPID: true"
)

// tagged is an image of the parameter, by its digest.
const tagged = "registry.example/nodehelper:v1@sha256:0000000000000000000000000000000000000000000000000000000000000001"

func hostPath(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/"},
	}}}
}

// deviations are pods that a person who may make pods would make in place of a helper's.
var deviations = []deviation{
	{"another image", container(func(c *corev1.Container) { c.Image = "docker.io/library/busybox:1" }), badImage},
	{"a tag in place of the digest", container(func(c *corev1.Container) {
		c.Image, _, _ = strings.Cut(tagged, "@")
	}), badImage},
	{"another digest", container(func(c *corev1.Container) {
		c.Image = strings.TrimSuffix(tagged, "1") + "2"
	}), badImage},
	{"an image that begins as one", container(func(c *corev1.Container) { c.Image = tagged[:len(tagged)-30] }), badImage},
	{"an image that is a key", container(func(c *corev1.Container) { c.Image = "image.release" }), badImage},
	{"an image that is an annotation", container(func(c *corev1.Container) { c.Image = "openshift.io/scc" }), badImage},
	{"a second container", func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more", Image: "busybox"})
	}, "has one container"},
	{"a second container of the same image", func(p *corev1.Pod) {
		c := p.Spec.Containers[0].DeepCopy()
		c.Name = "more"
		p.Spec.Containers = append(p.Spec.Containers, *c)
	}, "has one container"},
	{"a container of another name", container(func(c *corev1.Container) { c.Name = "shell" }), "has one container"},
	{"an init container", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox"}}
	}, "no init containers"},
	{"a hostPath", hostPath, badVolume},
	{"an emptyDir", func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "x"}} }, badVolume},
	{"the token of a service account", func(p *corev1.Pod) {
		p.Spec.AutomountServiceAccountToken = new(true)
	}, badAccount},
	{"a token by default", func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, badAccount},
	{"a projected token", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"},
			}}},
		}}}
	}, badVolume},
	{"no node network", func(p *corev1.Pod) { p.Spec.HostNetwork = false }, badNetwork},
	{"no node processes", func(p *corev1.Pod) { p.Spec.HostPID = false }, badNetwork},
	{"hostIPC", func(p *corev1.Pod) { p.Spec.HostIPC = true }, badIPC},
	{"a shell", word(0, "/bin/sh"), badCommand},
	{"nft of the image", container(func(c *corev1.Container) {
		c.Command = []string{"/usr/sbin/nft", "flush", "ruleset"}
	}), badCommand},
	{"the image's own command", container(func(c *corev1.Container) { c.Command = nil }), badCommand},
	{"another subcommand", word(1, "version"), badCommand},
	{"a command that waits", container(func(c *corev1.Container) {
		c.Command = []string{"/svcproxy-nodehelper", "wait"}
	}), badCommand},
	{"another root", word(2, "--root=/"), badCommand},
	{"a flag of two lines", word(2, "--hello=1s\n--root=/"), badCommand},
	{"args", container(func(c *corev1.Container) { c.Args = []string{"--root=/"} }), badCommand},
	{"a library to load", container(func(c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "/proc/1/root/tmp/x.so"}}
	}), badEnv},
	{"the environment of a ConfigMap", container(func(c *corev1.Container) {
		c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "x"},
		}}}
	}), badEnv},
	{"a hook", container(func(c *corev1.Container) {
		c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"/usr/sbin/nft", "flush", "ruleset"}},
		}}
	}), badHooks},
	{"a probe", func(p *corev1.Pod) {
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"/usr/bin/ip", "link"}},
		}}
	}, badHooks},
	{"a port of the node", container(func(c *corev1.Container) {
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80}}
	}), badStreams},
	{"a terminal", container(func(c *corev1.Container) { c.TTY = true }), badStreams},
	{"no standard input", container(func(c *corev1.Container) { c.Stdin, c.StdinOnce = false, false }), badStreams},
	{"a standard input that stays open", container(func(c *corev1.Container) { c.StdinOnce = false }), badStreams},
	{"another folder", container(func(c *corev1.Container) { c.WorkingDir = "/proc/1/root" }), badStreams},
	{"another message file", container(func(c *corev1.Container) {
		c.TerminationMessagePath = "/usr/sbin/nft"
	}), badStreams},
	{"a file system to write to", security(func(s *corev1.SecurityContext) {
		s.ReadOnlyRootFilesystem = nil
	}), badProfile},
	{"another user", security(func(s *corev1.SecurityContext) { s.RunAsUser = new(int64(1000)) }), badProfile},
	{"another group", security(func(s *corev1.SecurityContext) { s.RunAsGroup = new(int64(6)) }), badProfile},
	{"no rights named", container(func(c *corev1.Container) { c.SecurityContext = nil }), badProfile},
	{"SELinux's own word", security(func(s *corev1.SecurityContext) {
		s.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	}), badProfile},
	{"another capability", func(p *corev1.Pod) {
		s := helperPodOf(p, launch.ProfileNetadmin)
		s.Capabilities.Add = append(s.Capabilities.Add, "SYS_MODULE")
	}, badProfile},
	{"all capabilities", func(p *corev1.Pod) {
		helperPodOf(p, launch.ProfileNetadmin).Capabilities.Add = []corev1.Capability{"ALL"}
	}, badProfile},
	{"capabilities not dropped", func(p *corev1.Pod) {
		helperPodOf(p, launch.ProfileNetadmin).Capabilities.Drop = nil
	}, badProfile},
	{"a system setting", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{
			Sysctls: []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}},
		}
	}, badOutside},
	{"a group of the pod", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: []int64{6}}
	}, badOutside},
	{"no end", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }, badDeadline},
	{"an end in a week", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(7 * 86400)) }, badDeadline},
	{"for ever again", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }, badDeadline},
	{"a grace of an hour", func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	}, "terminationGracePeriodSeconds of at most 300"},
	{"no limits", container(func(c *corev1.Container) { c.Resources = corev1.ResourceRequirements{} }), badLimits},
	{"all memory", container(func(c *corev1.Container) {
		c.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("64Gi")
	}), badLimits},
	{"all processors", container(func(c *corev1.Container) {
		c.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2001m")
	}), badLimits},
	{"a device", container(func(c *corev1.Container) {
		c.Resources.Limits["vendor.example/disk"] = resource.MustParse("1")
	}), badLimits},
	{"another host's name", func(p *corev1.Pod) { p.Spec.Hostname = "x" }, badNames},
	{"another address for a name", func(p *corev1.Pod) {
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"x"}}}
	}, badNames},
	{"the cluster's resolver", func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet }, badNames},
	{"the Services in its environment", func(p *corev1.Pod) { p.Spec.EnableServiceLinks = new(true) }, badNames},
	{"the priority of the system", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }, badRest},
	{"a gate", func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x.example/y"}}
	}, badRest},
	{"no name", label("app.kubernetes.io/name", ""), badLabels},
	{"another name", label("app.kubernetes.io/name", "web"), badLabels},
	{"nobody's", label("app.kubernetes.io/managed-by", ""), badLabels},
	{"of no run", label("svcproxy.dev/run-id", ""), badLabels},
	{"of another part", label("app.kubernetes.io/component", "proxy"), badLabels},
	{"an agent's without a DaemonSet", label("app.kubernetes.io/component", "watch"), "this pod has no DaemonSet"},
	{"a DaemonSet's without one", func(p *corev1.Pod) {
		asDaemons(p)
		p.OwnerReferences = nil
	}, "this pod has no DaemonSet"},
	{"a DaemonSet's that serves", func(p *corev1.Pod) {
		command := p.Spec.Containers[0].Command
		asDaemons(p)
		p.Spec.Containers[0].Command = command
	}, "the command is not /svcproxy-nodehelper wait"},
	{"a DaemonSet's of another image", func(p *corev1.Pod) {
		asDaemons(p)
		p.Spec.Containers[0].Image = "busybox"
	}, badImage},
	{"a DaemonSet's with a hostPath", func(p *corev1.Pod) {
		asDaemons(p)
		hostPath(p)
	}, badVolume},
	{"a DaemonSet's with the capability to load modules", func(p *corev1.Pod) {
		asDaemons(p)
		helperPodOf(p, launch.ProfileNetadmin).Capabilities.Add = []corev1.Capability{"SYS_MODULE"}
	}, badProfile},
	{"a word for the runtime", func(p *corev1.Pod) {
		p.Annotations["io.kubernetes.cri-o.Devices"] = "/dev/vda:/dev/vda:rwm"
	}, "has no annotation"},
}

// helperPodOf gives the container the rights of a profile.
func helperPodOf(p *corev1.Pod, profile launch.Profile) *corev1.SecurityContext {
	rights := launch.Pod(launch.Options{Run: "x", Profile: profile}, "").Spec.Containers[0].SecurityContext
	p.Spec.Containers[0].SecurityContext = rights
	return rights
}

// asDaemons makes a pod as the DaemonSet's controller would.
func asDaemons(p *corev1.Pod) {
	p.Labels = map[string]string{
		"app.kubernetes.io/name": "svcproxy-nodehelper", "app.kubernetes.io/component": "daemon",
	}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "DaemonSet", Name: "svcproxy-nodehelper", UID: "1", Controller: new(true),
	}}
	p.Spec.ActiveDeadlineSeconds, p.Spec.RestartPolicy = nil, corev1.RestartPolicyAlways
	c := &p.Spec.Containers[0]
	c.Command, c.Stdin, c.StdinOnce = []string{"/svcproxy-nodehelper", "wait"}, false, false
}
