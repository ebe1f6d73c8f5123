// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// Where the helper's image is, unless --image says otherwise. Set at release by
// -ldflags "-X github.com/svcproxy/kubectl-svcproxy/plugin/launch.Repository=… -X ….Digest=sha256:…".
var (
	Repository = "ghcr.io/svcproxy/nodehelper"
	// Digest is that of the image of this release: whoever may write to the registry cannot put another one in its
	// place. Empty: the tag decides.
	Digest string
)

// A release has a version without anything behind it; any other build has no image of its own.
var release = lazyregexp.New(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.?\d+)?$`)

// DefaultImage is the image of a build of the plugin: plugin and helper of one release belong together.
func DefaultImage(build string) string {
	switch {
	case !release().MatchString(build):
		return Repository + ":dev"
	case Digest != "":
		return Repository + ":" + build + "@" + Digest
	}
	return Repository + ":" + build
}

// The labels of the pods.
const (
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelRun       = "svcproxy.dev/run-id"
	// labelKeep marks pods that were to stay: only a cleanup that is asked for removes them.
	labelKeep = "svcproxy.dev/keep"
	// labelProgram marks pods whose helpers program paths, so that people know them.
	labelProgram = "svcproxy.dev/program"

	nameHelper      = "svcproxy-nodehelper"
	managedBy       = "kubectl-svcproxy"
	componentDaemon = "daemon"
	containerName   = "nodehelper"
	helperBinary    = "/svcproxy-nodehelper"
)

// How long a pod may take to end: upper bounds, as a helper ends at once when there is nothing to undo.
const (
	grace = 10 * time.Second
	// programGrace is for pods that program paths: others may hold the lock of iptables for a while. The helper waits for
	// it 10 seconds at a time (waitSeconds of nodehelper/program), and ends 55 seconds after SIGTERM
	// (cmd/svcproxy-nodehelper), so that there is time for a message.
	programGrace = 60 * time.Second
)

// graceOf is how long a pod may take to end.
func graceOf(o Options) time.Duration {
	if o.Hold > 0 {
		return programGrace
	}
	return grace
}

// Profile says with which rights the helper runs.
type Profile string

// The profiles.
const (
	ProfilePrivileged Profile = "privileged"
	ProfileNetadmin   Profile = "netadmin"
)

// profiles is what each of them means for the container.
var profiles = map[Profile]func() *corev1.SecurityContext{
	ProfilePrivileged: func() *corev1.SecurityContext {
		return &corev1.SecurityContext{
			Privileged:             new(true),
			ReadOnlyRootFilesystem: new(true),
			RunAsUser:              new(int64(0)),
		}
	},
	// Not privileged; what each capability is for:
	//   NET_ADMIN        read iptables, nftables, ipset, conntrack and IPVS over netlink and getsockopt
	//   NET_RAW          iptables-legacy opens a raw socket
	//   SYS_ADMIN        enter the namespaces of a pod, and the node's cgroup namespace; load the BPF program of --live
	//   SYS_PTRACE       follow /proc/1/root and /proc/PID/fd of processes with more rights than these
	//   SYS_CHROOT       run the node's own iptables and nft in the node's file system
	//   DAC_READ_SEARCH  list /proc/PID/fd of processes of other users: who listens on a port
	// AppArmor's and seccomp's default profiles forbid just these. What it cannot do, and a privileged container can: pass
	// SELinux where that confines containers, so that on such a node what needs the node's file system stays unread.
	ProfileNetadmin: func() *corev1.SecurityContext {
		return &corev1.SecurityContext{
			Privileged:             new(false),
			ReadOnlyRootFilesystem: new(true),
			RunAsUser:              new(int64(0)),
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"},
				Add:  []corev1.Capability{"NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE", "SYS_CHROOT", "DAC_READ_SEARCH"},
			},
			SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
		}
	},
}

// Profiles names the profiles, in order.
func Profiles() []string {
	var names []string
	for p := range maps.Keys(profiles) {
		names = append(names, string(p))
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

// Pod is a node's helper as it is sent to the API server.
//
// It asks for next to nothing, so that it fits on a full node, and has no priority class: for a critical pod the
// kubelet ends others. Its name is the API server's choice, so that two runs never meet.
func Pod(o Options, node string) *corev1.Pod {
	o.fill()
	labels := map[string]string{labelName: nameHelper, labelManagedBy: managedBy, labelRun: o.Run}
	if o.Keep {
		labels[labelKeep] = "true"
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "svcproxy-",
			Namespace:    o.Namespace,
			Labels:       labels,
			// A pod without a controller keeps the autoscaler from removing its node; nobody needs this one afterwards.
			Annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
		},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			HostNetwork:                   true,
			HostPID:                       true,
			DNSPolicy:                     corev1.DNSDefault,
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         new(seconds(o.Timeout + o.Lifetime + o.Hold + graceOf(o))),
			TerminationGracePeriodSeconds: new(seconds(graceOf(o))),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			Containers: []corev1.Container{{
				Name:            containerName,
				Image:           o.Image,
				ImagePullPolicy: o.PullPolicy,
				Command:         serveCommand(o),
				Stdin:           true,
				// The container's standard input ends when the plugin goes, and with it the helper.
				StdinOnce: true,
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceCPU:    resource.MustParse("10m"),
						corev1.ResourceMemory: resource.MustParse("32Mi"),
					},
					Limits: corev1.ResourceList{
						corev1.ResourceCPU:    resource.MustParse("2"),
						corev1.ResourceMemory: resource.MustParse("1Gi"),
					},
				},
				SecurityContext: profiles[o.Profile](),
			}},
		},
	}
	if o.Hold > 0 {
		pod.Labels[labelProgram] = "true"
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	if o.PullSecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.PullSecret}}
	}
	return pod
}

// serveCommand is what runs in the container, and in that of a DaemonSet. The helper waits for its plugin as long as
// that tries.
func serveCommand(o Options) []string {
	deadline := o.Timeout + o.Lifetime + o.Hold
	command := []string{helperBinary, "serve", "--hello=" + o.Timeout.String(), "--deadline=" + deadline.String()}
	if o.Hold > 0 {
		command = append(command, "--run="+o.Run)
	}
	return command
}

func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

// selector is the label selector of the pods that runs made, or those of one run.
func selector(run string) string {
	terms := []string{labelName + "=" + nameHelper, labelManagedBy + "=" + managedBy}
	if run == "" {
		terms = append(terms, labelRun)
	} else {
		terms = append(terms, labelRun+"="+run)
	}
	return strings.Join(terms, ",")
}
