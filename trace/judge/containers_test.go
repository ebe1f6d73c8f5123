// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What the API says of containers is said of those that are not ready alone, with the command that tells why.
func TestContainers(t *testing.T) {
	ended := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
	for _, c := range []struct {
		name    string
		status  corev1.ContainerStatus
		want    string
		command string // the last
	}{
		{
			"crash", corev1.ContainerStatus{
				RestartCount: 9, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: ended},
			}, "container echo does not run: CrashLoopBackOff (exit code 1, Error), 9 restarts", "kubectl describe",
		},
		{
			"no image", corev1.ContainerStatus{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
			}, "container echo does not run: ErrImagePull", "kubectl describe",
		},
		{
			"ended",
			corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended}},
			"container echo has ended (exit code 1, Error)", "kubectl describe",
		},
		{
			"the probe fails", corev1.ContainerStatus{
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}, "container echo runs, and is not ready", "kubectl describe",
		},
		{
			"trap: ready", corev1.ContainerStatus{
				Ready: true, RestartCount: 3, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}, "", "kubectl logs",
		},
		{"trap: the API does not tell", corev1.ContainerStatus{}, "", "kubectl logs"},
	} {
		c.status.Name = "echo"
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c.status}}}
		if got := strings.Join(containers(pod), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		list := podCommands(pod, "shop", "web-1")
		if last := list[len(list)-1].Line; !strings.HasPrefix(last, c.command) {
			t.Errorf("%s: %s, want %s", c.name, last, c.command)
		}
	}
}
