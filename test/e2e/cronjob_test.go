// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCronJob runs the Job of deploy/cronjob with an image made as its manifest says: it succeeds where all is right,
// and fails with the plugin's exit code, and the report in its log, where a rule is missing.
func TestCronJob(t *testing.T) {
	cluster := os.Getenv("E2E_CLUSTER")
	if cluster == "" {
		t.Skip("E2E_CLUSTER is not set: only on the nodes of test/cluster is the plugin's image loaded")
	}
	const pluginImage, placeholder = "svcproxy.test/plugin:dev", "image: registry.example.com/kubectl-svcproxy:v1.2.3\n"
	archive := filepath.Join(t.TempDir(), "plugin.tar")
	maker := exec.CommandContext(t.Context(), "go", "run", ".", "-o", archive, "-t", pluginImage, "-arch", runtime.GOARCH,
		"-add", plugin+":/kubectl-svcproxy")
	maker.Dir = filepath.Join("..", "..", "deploy", "image")
	for _, cmd := range []*exec.Cmd{maker, exec.CommandContext(t.Context(), cluster, "load", archive)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	run := deploy(t)
	manifest, err := run("", "kustomize", "../../deploy/cronjob")
	if err != nil || strings.Count(manifest, placeholder) != 1 {
		t.Fatalf("there is no %q: %v\n%s", placeholder, err, manifest)
	}
	manifest = strings.Replace(manifest, placeholder, "image: "+pluginImage+"\n", 1)
	t.Cleanup(func() {
		if _, err := run(manifest, "delete", "-f", "-", "--ignore-not-found", "--wait", "--timeout=90s"); err != nil {
			t.Error(err)
		}
	})
	if _, err := run(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	const job = "svcproxy-verify" // its namespace has the same name
	if _, err := run("", "-n", job, "set", "env", "cronjob/"+job, "SVCPROXY_IMAGE="+image); err != nil {
		t.Fatal(err)
	}
	// verified runs the Job, and returns its exit code and its log.
	verified := func(name string) (code int32, log string) {
		t.Helper()
		if _, err := run("", "-n", job, "create", "job", name, "--from=cronjob/"+job); err != nil {
			t.Fatal(err)
		}
		wait(t, "the Job "+name+" ends", func() (bool, error) {
			pods, err := client.CoreV1().Pods(job).List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + name})
			if err != nil || len(pods.Items) != 1 {
				return false, fmt.Errorf("%d pods: %w", len(pods.Items), err)
			}
			for _, c := range pods.Items[0].Status.ContainerStatuses {
				if end := c.State.Terminated; end != nil {
					code = end.ExitCode
					return true, nil
				}
			}
			return false, fmt.Errorf("its pod is %s: %v", pods.Items[0].Status.Phase, pods.Items[0].Status.Conditions)
		})
		if log, err = run("", "-n", job, "logs", "job/"+name); err != nil {
			t.Fatal(err)
		}
		return code, log
	}
	wait(t, "all is right", func() (bool, error) {
		r := svcproxy(t, "verify", "-A", "--all-nodes")
		return r.code == 0, fmt.Errorf("%s", r)
	})
	if code, log := verified("right"); code != 0 || !strings.Contains(log, "\nMATCH: ") {
		t.Errorf("where all is right the exit code is %d\n%s", code, log)
	}
	at := siteOf(t, nodes[0])
	chain, rules := at.endpointRules()
	at.run(at.program, "-t", "nat", "-D", chain, "1")
	code, log := verified("wrong")
	restartKubeProxy(t, nodes[0])
	if code != 1 || !strings.Contains(log, "\nMISMATCH: ") || !strings.Contains(log, namespace+"/"+app) {
		t.Errorf("without 1 of %d endpoints' rules the exit code is %d\n%s", len(rules), code, log)
	}
	wait(t, "all is right again", func() (bool, error) {
		r := svcproxy(t, "trace", app, "--node", nodes[0])
		return r.code == 0, fmt.Errorf("%s", r)
	})
	noHelperPods(t)
	if got, err := client.BatchV1().Jobs(job).Get(t.Context(), "wrong", metav1.GetOptions{}); err != nil ||
		got.Status.Failed != 1 {
		t.Errorf("the Job did not fail: %v %v", got.Status, err)
	}
}
