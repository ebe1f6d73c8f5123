// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e runs the plugin against a real cluster, as a user would, and breaks things on its nodes. What it does
// to a node it does from a privileged pod of its own, so that any cluster will do (make e2e KUBECONFIG=…); that of
// test/cluster has everything that these tests need (make e2e).
//
// Environment:
//
//	KUBECONFIG        the cluster
//	E2E_PLUGIN        the plugin's binary; bin/kubectl-svcproxy of this repository by default
//	E2E_IMAGE         the helper's image, on every node already or to be pulled
//	E2E_ECHO_IMAGE    the image of test/cluster's echo server, likewise
//	E2E_DNS           the address that kubelets write into pods as the name server's, where no Service has it: the
//	                  tests make one; without it such tests are skipped
//	E2E_CLUSTER       the program that runs the cluster (test/cluster), for what Kubernetes itself cannot do; without it
//	                  such tests are skipped
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

const (
	namespace = "svcproxy-e2e"
	patience  = 90 * time.Second // for the cluster to do what was asked
)

// the cluster under test, set by TestMain.
var (
	client    kubernetes.Interface
	config    *rest.Config
	plugin    string
	image     = os.Getenv("E2E_IMAGE")
	echoImage = os.Getenv("E2E_ECHO_IMAGE")
	nodes     []string // those that the tests use, in order: two, or three
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	for name, value := range map[string]string{
		"KUBECONFIG": os.Getenv("KUBECONFIG"), "E2E_IMAGE": image,
		"E2E_ECHO_IMAGE": echoImage,
	} {
		if value == "" {
			return 1, fmt.Errorf("%s is not set (see test/e2e/main_test.go)", name)
		}
	}
	if plugin = os.Getenv("E2E_PLUGIN"); plugin == "" {
		plugin = filepath.Join("..", "..", "bin", "kubectl-svcproxy")
	}
	if plugin, err = filepath.Abs(plugin); err != nil {
		return 1, err
	}
	if _, err := os.Stat(plugin); err != nil {
		return 1, fmt.Errorf("the plugin is not built: %w", err)
	}
	if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return 1, err
	}
	config.QPS, config.Burst = 100, 200
	config.WarningHandler = rest.NoWarnings{}
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return 1, err
	}
	ctx := context.Background()
	all, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 1, err
	}
	for i := range all.Items {
		if n := &all.Items[i]; ready(n.Status.Conditions) && !n.Spec.Unschedulable && len(nodes) < 3 {
			nodes = append(nodes, n.Name)
		}
	}
	if len(nodes) < 2 {
		return 1, fmt.Errorf("the tests need two nodes that are ready, and found %v", nodes)
	}
	if err := setUp(ctx); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, tearDown(ctx)) }()
	return m.Run(), nil
}

func ready(conditions []corev1.NodeCondition) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// result is what the plugin did.
type result struct {
	code        int
	out, errOut string
	report      report.Report // with -o json
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s--- found\n%s\n", r.code, r.out, r.errOut,
		strings.Join(said(&r.report), "\n"))
}

// said is what a report found, short, as the end of a failed test's output is what is read of it.
func said(r *report.Report) []string {
	var out []string
	say := func(findings []report.Finding) {
		for _, f := range findings {
			out = append(out, fmt.Sprintf("%s %s: %s; expected %s, is %s", f.Code, f.Subject, f.Message, f.Expected, f.Actual))
		}
	}
	for i := range r.Nodes {
		say(r.Nodes[i].Findings)
		for k := range r.Nodes[i].Paths {
			say(r.Nodes[i].Paths[k].Findings)
		}
	}
	return out
}

// command is the plugin, ready to be started.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, plugin, args...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	return cmd
}

// svcproxy runs the plugin in the tests' namespace.
func svcproxy(t testing.TB, args ...string) result {
	t.Helper()
	if slices.Contains([]string{"trace", "verify", "dump", "program"}, args[0]) && !slices.Contains(args, "--image") &&
		!slices.Contains(args, "--snapshot") {
		args = append(args, "--image", image)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := command(ctx, append(args, "-n", namespace)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	r := result{code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
	if strings.Contains(strings.Join(args, " "), "-o json") && out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &r.report); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, r)
		}
	}
	return r
}

// onNode runs a program on a node, from the tests' own pod there, and returns what it prints.
func onNode(t testing.TB, node string, stdin io.Reader, argv ...string) string {
	t.Helper()
	out, errOut, err := execIn(t.Context(), operator(node), stdin, argv...)
	if err != nil {
		t.Fatalf("%s on %s: %v: %s", strings.Join(argv, " "), node, err, errOut)
	}
	return out
}

func execIn(ctx context.Context, pod string, stdin io.Reader, argv ...string) (stdout, stderr string, err error) {
	req := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: argv, Stdin: stdin != nil, Stdout: true, Stderr: true},
			scheme.ParameterCodec)
	e, err := remotecommand.NewSPDYExecutor(config, "POST", req.URL())
	if err != nil {
		return "", "", err
	}
	var out, errOut bytes.Buffer
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &errOut})
	return out.String(), errOut.String(), err
}

// eventually waits until a condition holds.
func eventually(ctx context.Context, what string, condition func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := condition()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v (%w)", what, patience, errors.Join(err, ctx.Err()))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func wait(t testing.TB, what string, condition func() (bool, error)) {
	t.Helper()
	if err := eventually(t.Context(), what, condition); err != nil {
		t.Fatal(err)
	}
}

// helperPods lists the helper pods that there are.
func helperPods(ctx context.Context) ([]string, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kubectl-svcproxy"})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return names, nil
}

// noHelperPods waits until no helper pod is left.
func noHelperPods(t testing.TB) {
	t.Helper()
	wait(t, "no helper pod is left", func() (bool, error) {
		names, err := helperPods(t.Context())
		if len(names) > 0 {
			err = fmt.Errorf("there is %v", names)
		}
		return err == nil, err
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
