// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// What security.md says of the helper's pod is what is launched.
func TestThePodIsAsDescribed(t *testing.T) {
	text := read(t, "security.md")
	sentences := strings.Join(strings.Fields(text), " ") // a sentence may go on in the next line
	pod := launch.Pod(launch.Options{Run: "run", Profile: launch.ProfileNetadmin}, "node")
	c := pod.Spec.Containers[0]

	var listed []corev1.Capability
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z_]+) \|`).FindAllStringSubmatch(text, -1) {
		listed = append(listed, corev1.Capability(m[1]))
	}
	if !slices.Equal(listed, c.SecurityContext.Capabilities.Add) {
		t.Errorf("it lists the capabilities %v, and the pod gets %v", listed, c.SecurityContext.Capabilities.Add)
	}
	requests, limits := c.Resources.Requests, c.Resources.Limits
	says := []string{
		"requests of " + requests.Cpu().String() + " CPU and " + requests.Memory().String() + " memory, and limits of " +
			limits.Cpu().String() + " CPUs and " + limits.Memory().String(),
	}
	deadline := time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second
	units := strings.NewReplacer("m", " minutes and ", "s", " seconds")
	says = append(says, "a deadline of its own: "+units.Replace(deadline.String())+" by default")
	for name, value := range pod.Labels {
		if name == "svcproxy.dev/run-id" {
			says = append(says, "`"+name+"`")
			continue
		}
		says = append(says, "`"+name+"="+value+"`")
	}
	for _, p := range launch.Profiles() {
		says = append(says, "**"+p+"**")
	}
	role := regexp.MustCompile(`(?m)^kind: ((?:Cluster)?Role)\nmetadata:\n {2}name: (\S+)$`)
	for _, m := range role.FindAllStringSubmatch(read(t, root+"/deploy/rbac.yaml"), -1) {
		says = append(says, "| `"+m[2]+"` ("+m[1]+") |")
	}
	if len(says) < 11 {
		t.Errorf("only this is looked for: %q", says)
	}
	for _, s := range says {
		if !strings.Contains(sentences, s) {
			t.Errorf("security.md does not say %s", s)
		}
	}
	// It has none of these.
	if len(pod.Spec.Volumes) > 0 || pod.Spec.PriorityClassName != "" || *pod.Spec.AutomountServiceAccountToken ||
		*pod.Spec.EnableServiceLinks || len(c.Ports) > 0 {
		t.Errorf("the pod has more than security.md says: %+v", pod.Spec)
	}
}
