// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// A trace of one node takes hardly longer than kubectl takes to run a pod of the same image that does nothing: both
// side by side, in one run, so that the machine's speed is no matter.
func TestLatencyAgainstKubectlRun(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed: there is nothing to compare with")
	}
	const rounds, most = 5, 1.3
	var ours, theirs []time.Duration
	for i := range rounds {
		start := time.Now()
		if r := svcproxy(t, "trace", app, "--node", nodes[0]); r.code != 0 {
			t.Fatal(r)
		}
		ours = append(ours, time.Since(start))
		start = time.Now()
		name := fmt.Sprintf("nothing-%d", i)
		cmd := exec.CommandContext(t.Context(), kubectl, "run", name, "-n", namespace, "--rm", "-i", "--quiet",
			"--restart=Never",
			"--image="+image, "--image-pull-policy=IfNotPresent", `--overrides={"spec":{"nodeName":"`+nodes[0]+`"}}`,
			"--command", "--", "/svcproxy-nodehelper", "version")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		theirs = append(theirs, time.Since(start))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	a, b := ours[rounds/2], theirs[rounds/2]
	ratio := a.Seconds() / b.Seconds()
	t.Logf("trace %.2f s (%.2f to %.2f), kubectl run --rm %.2f s (%.2f to %.2f): %.2f times", a.Seconds(),
		ours[0].Seconds(), ours[rounds-1].Seconds(),
		b.Seconds(), theirs[0].Seconds(), theirs[rounds-1].Seconds(), ratio)
	if ratio > most {
		t.Errorf("a trace takes %.2f times as long, want at most %.1f", ratio, most)
	}
}
