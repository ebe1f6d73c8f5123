// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// state is how far a helper's pod has come.
type state struct {
	what    string // for a person: what it is waiting for
	started bool   // the kubelet has taken it on
	running bool
	end     string // why it will never answer; "": it may
}

// fatalWaiting are the reasons for which a container waits in vain (kubelet, pkg/kubelet/images/types.go and
// pkg/kubelet/kuberuntime/kuberuntime_container.go), with what a person can do. The kubelet tries again; a person in a
// hurry does not wait.
var fatalWaiting = map[string]string{
	"ErrImagePull":               imageHint,
	"ImagePullBackOff":           imageHint,
	"ErrImageNeverPull":          "the node does not have the image, and --image-pull-policy Never forbids pulling it",
	"InvalidImageName":           "--image has to name an image",
	"ErrImageInspect":            imageHint,
	"RegistryUnavailable":        imageHint,
	"ImageInspectError":          imageHint,
	"SignatureValidationFailed":  "the node's policy does not accept the image's signature",
	"CreateContainerConfigError": "",
	"CreateContainerError":       "",
	"RunContainerError":          "",
	"PreStartHookError":          "",
	"PostStartHookError":         "",
	"CrashLoopBackOff":           "",
}

const imageHint = "name one that the node can pull with --image, and a pull secret with --image-pull-secret if its " +
	"registry requires one"

// refusedPods are reasons for which the kubelet does not take a pod (pkg/kubelet/lifecycle/predicate.go and others), or
// ends it. The hint is for those where a person can do something.
var refusedPods = map[string]string{
	"OutOfcpu":                 "the node has less than 10m of CPU available",
	"OutOfmemory":              "the node has less than 32Mi of memory available",
	"OutOfpods":                "the node already has the maximum number of pods",
	"NodeAffinity":             "",
	"UnexpectedAdmissionError": "",
	"Evicted":                  "the node lacks a resource",
	"DeadlineExceeded":         "its deadline has passed: try a longer --timeout",
	"Preempting":               "it was preempted by a pod of higher priority",
	"Terminated":               "the node is shutting down",
	"NodeShutdown":             "the node is shutting down",
}

// podState reads a pod's status.
func podState(pod *corev1.Pod) state {
	s := state{what: "scheduling", started: pod.Status.StartTime != nil}
	if t := ended(pod); t != "" {
		return state{end: t}
	}
	if pod.DeletionTimestamp != nil {
		return state{end: "its pod is being deleted"}
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		switch {
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable:
			return state{end: "its pod cannot be scheduled: " + safetext.Line(c.Message, 500)}
		case c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue:
			s.what = "getting the image"
		}
	}
	if s.started && s.what == "scheduling" {
		s.what = "starting"
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		if c.Name != containerName {
			continue
		}
		if c.State.Running != nil {
			s.running, s.what = true, "connecting"
		}
		if w := c.State.Waiting; w != nil {
			if hint, fatal := fatalWaiting[w.Reason]; fatal {
				s.end = sentence("its container cannot start", w.Reason, w.Message, hint)
			}
		}
	}
	return s
}

// ended says how a pod's container came to its end; "": it did not.
func ended(pod *corev1.Pod) string {
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		t := c.State.Terminated
		if c.Name != containerName || t == nil {
			continue
		}
		hint := ""
		if t.Reason == "OOMKilled" {
			hint = "it exceeded its memory limit of 1Gi"
		}
		if pod.Status.Reason != "" {
			return sentence("its pod was terminated", pod.Status.Reason, pod.Status.Message, refusedPods[pod.Status.Reason])
		}
		return sentence(fmt.Sprintf("it ended with exit code %d", t.ExitCode), t.Reason, t.Message, hint)
	}
	switch pod.Status.Phase {
	case corev1.PodFailed:
		reason := pod.Status.Reason
		return sentence("the node did not accept its pod", reason, pod.Status.Message, refusedPods[reason])
	case corev1.PodSucceeded:
		return "it ended before it answered"
	}
	return ""
}

// endedInOrder says that a pod's container ended by itself, with nothing to complain about.
func endedInOrder(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == containerName && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	})
}

// sentence puts together what is known.
func sentence(what, reason, message, hint string) string {
	var b strings.Builder
	b.WriteString(what)
	if reason != "" {
		b.WriteString(": " + safetext.Line(reason, 100))
	}
	if message != "" {
		b.WriteString(": " + safetext.Line(message, 700))
	}
	if hint != "" {
		b.WriteString("; " + hint)
	}
	return b.String()
}
