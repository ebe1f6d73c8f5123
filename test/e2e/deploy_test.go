// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// deployed is the namespace of deploy/.
const deployed = "svcproxy"

// kubectl runs it with a standard input, and returns what it prints.
type kubectl func(stdin string, args ...string) (string, error)

// deploy applies deploy/ with the image of the tests, waits until its policy is in force, and removes it after the
// test. It returns what runs kubectl.
func deploy(t *testing.T) kubectl {
	t.Helper()
	program, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed:", err)
	}
	// Without the test's context: the cleanup runs it too, when that has ended.
	kubectl := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return string(out), nil
	}
	t.Cleanup(func() {
		// The namespace takes the DaemonSet with it.
		_, err := kubectl("", "delete", "-k", "../../deploy", "--ignore-not-found", "--wait", "--timeout=90s")
		if err != nil {
			t.Error(err)
		}
	})
	if _, err := kubectl("", "apply", "-k", "../../deploy"); err != nil {
		t.Fatal(err)
	}
	patchImages(t, kubectl, `{"image.release":"`+image+`"}`)
	wait(t, "the policy is in force", func() (bool, error) {
		bad := helperPod(t, launch.Options{})
		bad.Spec.HostIPC = true
		if err := dryCreate(t, bad); !apierrors.IsForbidden(err) {
			return false, fmt.Errorf("hostIPC: %w", err)
		}
		err := dryCreate(t, helperPod(t, launch.Options{}))
		return err == nil, err
	})
	return kubectl
}

// The API server takes what deploy/ has, and a user who has no other rights can run the plugin with it: by a pod of the
// run, and by the DaemonSet's.
func TestDeploy(t *testing.T) {
	run := deploy(t)
	must := func(stdin string, args ...string) string {
		t.Helper()
		out, err := run(stdin, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if r := svcproxy(t, append([]string{"trace", app, "--node", nodes[0]}, asOperator...)...); r.code != 0 {
		t.Errorf("with a pod of its own: %s", r)
	}
	noHelperPods(t)

	daemon := must("", "kustomize", "../../deploy/daemonset")
	const placeholder = "image: ghcr.io/svcproxy/nodehelper:dev\n"
	if strings.Count(daemon, placeholder) != 1 {
		t.Fatalf("there is no %q in\n%s", placeholder, daemon)
	}
	must(strings.Replace(daemon, placeholder, "image: "+image+"\n", 1), "apply", "-f", "-")
	wait(t, "the DaemonSet's pods are ready", func() (bool, error) {
		ds, err := client.AppsV1().DaemonSets(deployed).Get(t.Context(), "svcproxy-nodehelper", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		s := ds.Status
		return s.ObservedGeneration == ds.Generation && s.DesiredNumberScheduled >= int32(len(nodes)) &&
				s.NumberReady == s.DesiredNumberScheduled,
			fmt.Errorf("%d of %d are ready", s.NumberReady, s.DesiredNumberScheduled)
	})
	// A pod of its own could not start with this image.
	r := svcproxy(t, append([]string{
		"trace", app, "--node", nodes[1], "--image", "svcproxy.test/none:none", "--image-pull-policy", "Never",
	}, asOperator...)...)
	if r.code != 0 {
		t.Errorf("with the DaemonSet's pod: %s", r)
	}
	noHelperPods(t)
}
