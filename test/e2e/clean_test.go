// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// However a run ends, no pod is left, and the node is as before.
func TestNothingIsLeft(t *testing.T) {
	node := nodes[0]
	noHelperPods(t)
	before := settledState(t, node)
	traceArgs := []string{"trace", app, "--node", node, "--image", image, "-n", namespace}
	for _, tt := range []struct {
		name string
		args []string
		end  func(cmd *exec.Cmd) error // while a helper is at work; nil lets the run end by itself
		code int                       // -1: killed
	}{
		{"success", traceArgs, nil, 0},
		{"a wrong argument", []string{"trace", "no-such-service", "--node", node, "--image", image, "-n", namespace}, nil, 2},
		{"SIGINT", traceArgs, func(cmd *exec.Cmd) error { return cmd.Process.Signal(os.Interrupt) }, 130},
		{"SIGTERM", traceArgs, func(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) }, 130},
		{"SIGKILL of the plugin", traceArgs, func(cmd *exec.Cmd) error { return cmd.Process.Kill() }, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := command(t.Context(), tt.args...)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.end != nil {
				awaitHelper(t)
				if err := tt.end(cmd); err != nil {
					t.Fatal(err)
				}
			}
			err := cmd.Wait()
			if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
				t.Fatal(err)
			}
			if tt.code == -1 {
				helpersEnd(t)
			}
			// A run may have been done before the signal came.
			if got := cmd.ProcessState.ExitCode(); got != tt.code && (tt.end == nil || got != 0) {
				t.Errorf("exit code %d, want %d\n%s", got, tt.code, out.String())
			}
			noHelperPods(t)
		})
	}
	t.Run("SIGKILL of the helper", func(t *testing.T) {
		done := make(chan result, 1)
		go func() { done <- svcproxy(t, "trace", app, "--node", node) }()
		awaitHelper(t)
		killHelper(t, node)
		r := <-done
		if r.code != 0 && r.code != 3 {
			t.Errorf("want the whole answer, or none and exit code 3\n%s", r)
		}
		if r.code == 3 && strings.Contains(r.out, "MATCH:") {
			t.Errorf("something is claimed of half an answer\n%s", r)
		}
		noHelperPods(t)
	})
	settledState(t, node).same(t, before)
}

// SIGKILL at any moment of a run: no helper stays, and cleanup removes the pods that have ended.
func TestKilledAtRandomMoments(t *testing.T) {
	for range testutil.Count(t, testutil.Kills, 5) {
		cmd := command(t.Context(), "trace", app, "--node", nodes[0], "--image", image, "-n", namespace)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(1200 * time.Millisecond))
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed: that is the point
	}
	helpersEnd(t)
	noHelperPods(t)
}

// helpersEnd waits until the helpers of plugins that were killed have ended by themselves, and removes their pods.
func helpersEnd(t *testing.T) {
	t.Helper()
	wait(t, "no helper runs", func() (bool, error) {
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/managed-by=kubectl-svcproxy",
		})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				return false, fmt.Errorf("%s/%s is %s", p.Namespace, p.Name, p.Status.Phase)
			}
		}
		return true, nil
	})
	wait(t, "cleanup removes what has ended", func() (bool, error) {
		r := svcproxy(t, "cleanup")
		names, err := helperPods(t.Context())
		return r.code == 0 && len(names) == 0, errors.Join(err, fmt.Errorf("%v is left: %s", names, r))
	})
}

// Runs on one node at the same time do not disturb one another.
func TestSeveralAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	results := make([]result, 4)
	for i := range results {
		wg.Go(func() { results[i] = svcproxy(t, "trace", app, "--node", nodes[0]) })
	}
	wg.Wait()
	for _, r := range results {
		if r.code != 0 {
			t.Error(r)
		}
	}
	noHelperPods(t)
}

// A pod that a dead run has left is found by cleanup, and one that is in use is not touched.
func TestCleanup(t *testing.T) {
	r := svcproxy(t, "trace", app, "--node", nodes[0], "--keep", "--timeout", "5s")
	if r.code != 0 || !strings.Contains(r.errOut, "kubectl delete pod -n kube-system svcproxy-") {
		t.Fatalf("--keep does not say how to remove the pod\n%s", r)
	}
	if r := svcproxy(t, "cleanup"); r.code != 0 || !strings.Contains(r.out, "no helper pod") {
		t.Errorf("a pod that was to stay was removed\n%s", r)
	}
	if r := svcproxy(t, "cleanup", "--running"); r.code != 0 || !strings.Contains(r.out, "removed") {
		t.Error(r)
	}
	noHelperPods(t)
}

// awaitHelper waits until a helper pod is there.
func awaitHelper(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		names, err := helperPods(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("no helper pod appeared")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// killHelper kills the helper's container, as the kernel does when memory runs out: the pod is deleted without grace.
func killHelper(t *testing.T, node string) {
	t.Helper()
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/managed-by=kubectl-svcproxy", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if err := ignoreNotFound(client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})); err != nil {
			t.Fatal(err)
		}
	}
}

// No connection of other clients fails while a Service is traced.
func TestTrafficIsNotDisturbed(t *testing.T) {
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), app, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	type connected struct {
		out, errOut string
		err         error
	}
	done := make(chan connected, 1)
	go func() {
		out, errOut, err := execIn(ctx, "client", nil, "/echo", "connect", "-for", "12s", svc.Spec.ClusterIP+":80")
		done <- connected{out, errOut, err}
	}()
	defer stop()
	for range 5 {
		if r := svcproxy(t, "trace", app, "--from", "pod/client"); r.code != 0 {
			t.Error(r)
		}
	}
	c := <-done
	var ok, failed int
	if _, err := fmt.Sscanf(c.out, "%d connected, %d failed", &ok, &failed); err != nil || c.err != nil {
		t.Fatalf("the client said %q, %q: %v", c.out, c.errOut, errors.Join(err, c.err))
	}
	t.Logf("%d connections during 5 traces, %d failed", ok, failed)
	if ok < 100 || failed > 0 {
		t.Errorf("%d connections, %d failed", ok, failed)
	}
}

// An API server that restarts in the middle of runs makes them fail with one sentence, or not at all, and leaves
// nothing behind.
func TestAPIServerRestarts(t *testing.T) {
	if os.Getenv("E2E_CLUSTER") == "" {
		t.Skip("E2E_CLUSTER is not set: only the API server of test/cluster can be restarted")
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	results := make(chan result, 1000)
	var came atomic.Int32
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case results <- svcproxy(t, "trace", app, "--node", nodes[0], "--timeout", "20s"):
					came.Add(1)
					time.Sleep(200 * time.Millisecond) // a refused connection is told at once
				}
			}
		})
	}
	wait(t, "a run comes to its end", func() (bool, error) { return came.Load() > 0, errors.New("none yet") })
	time.Sleep(300 * time.Millisecond) // some are in the middle of it
	harness(t, "restart", "kube-apiserver")
	close(stop)
	wg.Wait()
	close(results)
	var right, failed int
	for r := range results {
		switch r.code {
		case 0:
			right++
		case 3:
			failed++
			if strings.Contains(r.out, "MATCH:") || !strings.HasPrefix(lastLine(r.errOut), "error: ") {
				t.Errorf("want one sentence, and no claim\n%s", r)
			}
		default:
			t.Error(r)
		}
	}
	t.Logf("%d runs were right, %d failed", right, failed)
	if right == 0 {
		t.Error("no run came through, not even before the restart")
	}
	wait(t, "runs come through again", func() (bool, error) {
		r := svcproxy(t, "trace", app, "--node", nodes[0])
		return r.code == 0, fmt.Errorf("%s", r)
	})
	noHelperPods(t)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
