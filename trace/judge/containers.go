// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// containers says of each container of a pod that is not ready, by the API, in what state it is: waiting (why, and how
// it ended before), ended, or running. It is empty where all are ready, and where the API does not tell.
func containers(p *corev1.Pod) (out []string) {
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if c.Ready {
			continue
		}
		text := "container " + c.Name
		switch {
		case c.State.Waiting != nil:
			text += " does not run: " + c.State.Waiting.Reason + endedBefore(c.LastTerminationState.Terminated)
		case c.State.Terminated != nil:
			text += " has ended" + endedBefore(c.State.Terminated)
		case c.State.Running != nil:
			text += " runs, and is not ready"
		default:
			continue
		}
		if c.RestartCount > 0 {
			text += fmt.Sprintf(", %s", number(int(c.RestartCount), "restart"))
		}
		out = append(out, text)
	}
	return out
}

// endedBefore says how a container has ended; "" where it has not.
func endedBefore(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" (exit code %d, %s)", t.ExitCode, t.Reason)
}

// withContainers adds to the segments of endpoints' pods what the API says of containers that are not ready: the cause
// where nobody listens; where somebody does, that the pod is an endpoint all the same (publishNotReadyAddresses).
func (t *tour) withContainers(p *report.Path) {
	for i := range p.Segments {
		s := &p.Segments[i]
		pod := t.cluster.podObject(strings.TrimPrefix(s.Place, "pod "))
		if s.Segment != report.SegmentEndpointPod || pod == nil {
			continue
		}
		said := containers(pod)
		if len(said) == 0 {
			continue
		}
		s.Message += "; " + cut(said, 4)
	}
}

// podCommands are what tells why nobody listens in a pod.
func podCommands(pod *corev1.Pod, ns, name string) []report.Command {
	logs := report.Command{
		Line: report.ShellLine("kubectl", "logs", "-n", ns, "pod/"+name, "--all-containers", "--tail=50"),
	}
	describe := report.Command{Line: report.ShellLine("kubectl", "describe", "-n", ns, "pod/"+name)}
	if pod == nil {
		return []report.Command{logs}
	}
	// Of a container that never ran there is no log.
	never := func(c corev1.ContainerStatus) bool { return c.State.Waiting != nil && c.RestartCount == 0 }
	switch {
	case slices.ContainsFunc(pod.Status.ContainerStatuses, never):
		return []report.Command{describe}
	case len(containers(pod)) > 0:
		return []report.Command{logs, describe}
	}
	return []report.Command{logs}
}

// ofWorkload are the commands for what is wrong in an endpoint's pod.
func (t *tour) ofWorkload(code, ns, name string) []report.Command {
	switch code {
	case endtoend.EndpointNotListening:
		return podCommands(t.cluster.podObject(ns+"/"+name), ns, name)
	case endtoend.BacklogFull:
		return append(podCommands(t.cluster.podObject(ns+"/"+name), ns, name), deletePod(ns, name))
	case endtoend.ProcessStopped:
		return []report.Command{deletePod(ns, name)}
	}
	return nil
}

// deletePod is the command that ends a pod, so that its controller creates another one.
func deletePod(ns, name string) report.Command {
	return report.Command{
		Line: report.ShellLine("kubectl", "delete", "-n", ns, "pod/"+name), When: "to have its controller create another pod",
	}
}
