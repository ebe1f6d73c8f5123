// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
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
	if len(says) < 10 {
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

// Every test that security.md names for what an attacker cannot do is there, in the package that it names.
func TestNamedTestsExist(t *testing.T) {
	there := map[string][]string{} // folders of a test
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(data), -1) {
			folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+string(filepath.Separator)))
			there[m[1]] = append(there[m[1]], folder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`(?: \\(([a-z0-9/]+)\\))?").FindAllStringSubmatch(read(t, "security.md"), -1)
	if len(named) < 15 {
		t.Errorf("only these are found: %q", named)
	}
	for _, m := range named {
		if len(there[m[1]]) == 0 || m[2] != "" && !slices.Contains(there[m[1]], m[2]) {
			t.Errorf("security.md names %s, and that is in %q", m[0], there[m[1]])
		}
	}
}
