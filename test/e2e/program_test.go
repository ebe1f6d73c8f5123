// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// withoutKubeProxy stops kube-proxy on a node, and takes its rules away: nothing works there any more, until it is
// started again.
func withoutKubeProxy(t *testing.T, node string) {
	t.Helper()
	mode := modeOf(t, node)
	stopKubeProxy(t, node)
	if mode == "nftables" {
		for _, family := range []string{"ip", "ip6"} {
			onNode(t, node, nil, "/usr/sbin/nft", "delete", "table", family, "kube-proxy")
		}
		return
	}
	at := siteOf(t, node)
	for _, chain := range []string{"KUBE-SERVICES", "KUBE-POSTROUTING"} {
		at.run(at.program, "-t", "nat", "-F", chain)
	}
	at.run(at.program, "-t", "filter", "-F", "KUBE-FORWARD")
}

// forget has a node forget connections to a Service that began when no rule was there: they stay so for two minutes,
// and verify tells of them.
func forget(t *testing.T, node, service string) {
	t.Helper()
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), service, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range svc.Spec.ClusterIPs {
		family := "ipv4"
		if strings.Contains(ip, ":") {
			family = "ipv6"
		}
		out, errOut, err := execIn(t.Context(), operator(node), nil, "/usr/sbin/conntrack", "-D", "-f", family, "-p", "tcp",
			"--orig-dst", ip)
		if err != nil && !strings.Contains(errOut, "0 flow entries have been deleted") {
			t.Fatalf("%v: %s%s", err, out, errOut)
		}
	}
}

// On a node without kube-proxy nothing works, then it does, and after its time the node is as before.
func TestProgram(t *testing.T) {
	t.Run("on", func(t *testing.T) {
		for _, node := range nodes {
			t.Run(node, func(t *testing.T) {
				t.Parallel()
				programFor(t, node)
			})
		}
	})
	svcproxy(t, "cleanup", "--running")
	wait(t, "the helpers are gone", func() (bool, error) {
		pods, err := helperPods(t.Context())
		return len(pods) == 0, fmt.Errorf("%v %w", pods, err)
	})
}

// programFor programs a NodePort on a node, for a time.
func programFor(t *testing.T, node string) {
	t.Helper()
	defer startKubeProxy(t, node)
	withoutKubeProxy(t, node)
	before := settledState(t, node)
	if r := svcproxy(t, "trace", app+"-nodeport", "--node", node, "--from", "node", "--live", "-o", "json"); r.code != 1 ||
		r.report.Summary.Mismatched == 0 {
		t.Fatalf("it works without kube-proxy: %s", r)
	}
	forget(t, node, app+"-nodeport")
	dry := svcproxy(t, "program", app+"-nodeport", "--node", node, "--dry-run")
	if dry.code != 0 || !strings.Contains(dry.out, "# what would differ from now\n+") {
		t.Error(dry)
	}
	settledState(t, node).same(t, before)

	r := svcproxy(t, "program", app+"-nodeport", "--node", node, "--yes", "--ttl", "10s", "--live", "--probes",
		"30", "-o", "json")
	// That connections of before are stuck may be told besides.
	if r.code != 0 || !slices.Contains(codes(&r.report), judge.Programmed) {
		t.Fatal(r)
	}
	if got := observed(&r.report, "node"); len(got) != 1 || got[0].Observed == nil || got[0].Observed.Connected != 30 {
		t.Errorf("%+v", got)
	}
	if len(readState(t, node).differs(before)) == 0 {
		t.Error("nothing was programmed")
	}
	wait(t, "its time is over", func() (bool, error) {
		d := readState(t, node).differs(before)
		return len(d) == 0, fmt.Errorf("%s", strings.Join(d, "\n"))
	})
}

// kube-proxy comes back while a path is programmed, which ends then: no connection is lost by either.
func TestProgramAndKubeProxyComesBack(t *testing.T) {
	node := nodes[0] // the client's
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), app, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer startKubeProxy(t, node)
	withoutKubeProxy(t, node)
	if r := svcproxy(t, "program", app, "--node", node, "--yes"); r.code != 0 {
		t.Fatal(r)
	}
	done := make(chan string, 1)
	go func() {
		out, errOut, err := execIn(t.Context(), "client", nil, "/echo", "connect", "-for", "25s", svc.Spec.ClusterIP+":80")
		done <- fmt.Sprintln(strings.TrimSpace(out), errOut, err)
	}()
	startKubeProxy(t, node)
	wait(t, "kube-proxy has written its rules", func() (bool, error) {
		at := siteOf(t, node)
		return strings.Contains(at.run(at.program+"-save", "-t", "nat"), "-A KUBE-SERVICES -d "+svc.Spec.ClusterIP), nil
	})
	if r := svcproxy(t, "trace", app, "--node", node); r.code != 0 {
		t.Error(r)
	}
	if r := svcproxy(t, "cleanup", "--running", "--node", node, "--image", image); r.code != 0 {
		t.Error(r)
	}
	if r := svcproxy(t, "trace", app, "--node", node, "-o", "json"); r.code != 0 || len(codes(&r.report)) > 0 {
		t.Error(r)
	}
	var ok, failed int
	said := <-done
	if _, err := fmt.Sscanf(said, "%d connected, %d failed", &ok, &failed); err != nil || ok < 100 || failed > 0 {
		t.Errorf("%s (%v)", said, err)
	}
	t.Logf("%d connections, %d failed", ok, failed)
}

// programmedRight tells whether every path is right, as it was programmed; kube-proxy itself may be missed.
func programmedRight(r *report.Report) bool {
	return r.Summary.Paths > 0 && r.Summary.Matched == r.Summary.Paths && slices.Contains(codes(r), judge.Programmed)
}

// notes is what a running command has said so far.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// With --follow the path goes with the Service's endpoints, and ends with the plugin.
func TestProgramFollows(t *testing.T) {
	node := nodes[0]
	defer startKubeProxy(t, node)
	withoutKubeProxy(t, node)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := command(ctx, "program", app, "-n", namespace, "--node", node, "--follow", "--image", image, "--yes")
	var out bytes.Buffer
	var errOut notes
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	right := func() (bool, error) {
		r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
		return programmedRight(&r.report), fmt.Errorf("%s", r)
	}
	wait(t, "the path is programmed", right)
	moveEndpoints(t)
	defer func() { t.Logf("it said %s%s", out.String(), errOut.String()) }()
	wait(t, "the path has the new endpoints", right)
	// What was written is read again before it is said.
	wait(t, "the new endpoints are said", func() (bool, error) {
		return strings.Contains(errOut.String(), " updated: 3 endpoints"), errors.New(errOut.String())
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s%s", err, out.String(), errOut.String())
	}
	if !strings.Contains(errOut.String(), "removed: ") {
		t.Errorf("it said %s", errOut.String())
	}
	for name, text := range settledState(t, node) {
		if strings.Contains(text, "SVCPROXY-") {
			t.Errorf("something is left in %s: %s", name, text)
		}
	}
	noHelperPods(t)
}

// A helper that is killed is started again, and takes over; one whose pod is gone, too, leaves what cleanup takes away.
func TestProgramKilled(t *testing.T) {
	if os.Getenv("E2E_CLUSTER") == "" {
		t.Skip("E2E_CLUSTER is not set: only on test/cluster's nodes can a helper be killed")
	}
	node := nodes[1]
	before := settledState(t, node)
	if r := svcproxy(t, "program", app, "--node", node, "--yes"); r.code != 0 {
		t.Fatal(r)
	}
	harness(t, "in", node, "pkill", "-KILL", "-f", "^/svcproxy-nodehelper serve .*--run=")
	var pod *corev1.Pod
	wait(t, "the helper is started again", func() (bool, error) {
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(),
			metav1.ListOptions{LabelSelector: "svcproxy.dev/program=true"})
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Errorf("%d pods: %w", len(list.Items), err)
		}
		pod = &list.Items[0]
		s := pod.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == 1 && s[0].State.Running != nil, fmt.Errorf("%+v", s)
	})
	if r := svcproxy(t, "trace", app, "--node", node, "-o", "json"); r.code != 0 ||
		!slices.Equal(codes(&r.report), []string{judge.Programmed}) {
		t.Error(r)
	}
	// The pod goes before its helper can be started once more.
	stop := syscall.SIGSTOP
	harness(t, "in", node, "pkill", fmt.Sprintf("-%d", int(stop)), "-f", "^/svcproxy-nodehelper serve .*--run=")
	if err := client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the pod is gone", func() (bool, error) {
		pods, err := helperPods(t.Context())
		return len(pods) == 0, fmt.Errorf("%v %w", pods, err)
	})
	if len(settledState(t, node).differs(before)) == 0 {
		t.Error("a stopped helper undid something")
	}
	r := svcproxy(t, "cleanup", "--node", node, "--image", image)
	if r.code != 0 || !strings.Contains(r.out, "node/"+node+": "+namespace+"/"+app+", which ") {
		t.Error(r)
	}
	settledState(t, node).same(t, before)
}

// A proxy in the helper does what rules otherwise do.
func TestProgramUserspace(t *testing.T) {
	node := nodes[0]
	defer startKubeProxy(t, node)
	withoutKubeProxy(t, node)
	before := settledState(t, node)
	r := svcproxy(t, "program", app, "--node", node, "--mode", "userspace", "--log", "--yes", "--ttl", "10s", "--live",
		"--probes", "30", "-o", "json")
	if r.code != 0 || !slices.Contains(codes(&r.report), judge.Programmed) {
		t.Fatal(r)
	}
	if got := observed(&r.report, "node"); len(got) != 1 || got[0].Observed == nil || got[0].Observed.Connected != 30 {
		t.Errorf("%+v", got)
	}
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), app, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, errOut, err := execIn(t.Context(), "client", nil, "/echo", "connect", "-for", "2s", svc.Spec.ClusterIP+":80")
	var ok, failed int
	if _, e := fmt.Sscanf(out, "%d connected, %d failed", &ok, &failed); e != nil || err != nil || ok < 20 || failed > 0 {
		t.Errorf("from a pod: %q %q %v", out, errOut, err)
	}
	wait(t, "its time is over", func() (bool, error) {
		d := readState(t, node).differs(before)
		return len(d) == 0, fmt.Errorf("%s", strings.Join(d, "\n"))
	})
	svcproxy(t, "cleanup", "--running")
}

// What cannot be programmed rightly is refused, and nothing is left.
func TestProgramRefusals(t *testing.T) {
	node := nodes[0]
	before := settledState(t, node)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{app, "--node", node}, "give --yes where there is no terminal"},
		{[]string{app + "-headless", "--node", node, "--yes"}, "it is headless"},
		{[]string{app, "--yes"}, "name it with --node NODE"},
		{[]string{app, "--node", "nowhere", "--yes"}, `there is no node "nowhere"`},
		{[]string{app, "--node", node, "--yes", "--ttl", "25h"}, "--ttl 25h0m0s: it may be 1s to 24h"},
		{[]string{app, "--node", node, "--yes", "--mode", "ebpf"}, `--mode "ebpf": it may be iptables`},
		{[]string{"nothing", "--node", node, "--yes"}, "nothing"},
	} {
		if r := svcproxy(t, append([]string{"program"}, tt.args...)...); r.code != 2 || !strings.Contains(r.errOut, tt.want) {
			t.Errorf("%v, want %q: %s", tt.args, tt.want, r)
		}
	}
	settledState(t, node).same(t, before)
	noHelperPods(t)
}

// ownRules are program's chains of a save file, and the rules that lead to them, at the beginning of their chains:
// kube-proxy's own iptables may write its rules in another form than the one that restores them.
func ownRules(save string) string {
	var out strings.Builder
	for line := range strings.Lines(save) {
		switch {
		case strings.HasPrefix(line, "*"), line == "COMMIT\n", strings.HasPrefix(line, ":SVCPROXY-"),
			strings.HasPrefix(line, "-A SVCPROXY-"):
			out.WriteString(line)
		case strings.Contains(line, "-j SVCPROXY-"):
			out.WriteString(strings.Replace(line, "-A ", "-I ", 1))
		}
	}
	return out.String()
}

// Rules that were saved while a path was programmed are restored after its end: verify tells of them, and cleanup
// removes them after a question.
func TestProgramRestored(t *testing.T) {
	t.Run("on", func(t *testing.T) {
		for _, node := range nodes {
			t.Run(node, func(t *testing.T) {
				t.Parallel()
				restoredOn(t, node)
			})
		}
	})
	noHelperPods(t)
}

func restoredOn(t *testing.T, node string) {
	t.Helper()
	before := settledState(t, node)
	if r := svcproxy(t, "program", app, "--node", node, "--yes"); r.code != 0 {
		t.Fatal(r)
	}
	nft := modeOf(t, node) == "nftables"
	var program string
	var saved string
	if nft {
		for _, family := range []string{"ip", "ip6"} {
			for word := range strings.FieldsSeq(onNode(t, node, nil, "/usr/sbin/nft", "list", "tables", family)) {
				if strings.HasPrefix(word, "svcproxy-") {
					saved += onNode(t, node, nil, "/usr/sbin/nft", "list", "table", family, word)
				}
			}
		}
	} else {
		program = siteOf(t, node).program
		saved = ownRules(onNode(t, node, nil, program+"-save"))
	}
	if r := svcproxy(t, "cleanup", "--running", "--node", node, "--image", image); r.code != 0 {
		t.Fatal(r)
	}
	settledState(t, node).same(t, before)
	if nft {
		onNode(t, node, strings.NewReader(saved), "/usr/sbin/nft", "-f", "-")
	} else {
		onNode(t, node, strings.NewReader(saved), program+"-restore", "--noflush")
	}
	r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
	if r.code != 4 || !slices.Contains(codes(&r.report), judge.ProgrammedOrphan) {
		t.Errorf("it is not found: %s", r)
	}
	r = svcproxy(t, "cleanup", "--node", node, "--image", image)
	if r.code != 2 || !strings.Contains(r.out, "node/"+node+": without a record: ") ||
		!strings.Contains(r.errOut, "give --yes where there is no terminal") {
		t.Errorf("without a question: %s", r)
	}
	if len(settledState(t, node).differs(before)) == 0 {
		t.Error("it was removed without a question")
	}
	r = svcproxy(t, "cleanup", "--node", node, "--image", image, "--yes")
	if r.code != 0 || !strings.Contains(r.out, "node/"+node+": removed: ") {
		t.Error(r)
	}
	settledState(t, node).same(t, before)
}

// What a Service's author writes into it is refused, and nothing is left.
func TestProgramTakesNothingFromOthers(t *testing.T) {
	node := nodes[0]
	api, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := settledState(t, node)
	for _, tt := range []struct{ ip, want string }{
		{"8.8.8.8", "--allow resolver"},
		{api.Spec.ClusterIP, "--allow api-server,service"},
		{object.Status.Addresses[0].Address, "--allow node"},
	} {
		const name = app + "-greedy"
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": app}, ExternalIPs: []string{tt.ip}, Ports: []corev1.ServicePort{{Port: 53}},
			},
		}
		if _, err := client.CoreV1().Services(namespace).Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait(t, "the Service has endpoints", func() (bool, error) {
			r := svcproxy(t, "resolve", name)
			return strings.Contains(r.out, "endpoints of "+namespace+"/"+name+" are used") &&
					!strings.Contains(r.out, "no endpoint"),
				fmt.Errorf("%s", r)
		})
		if r := svcproxy(t, "program", name, "--node", node, "--yes"); r.code != 2 || !strings.Contains(r.errOut, tt.want) {
			t.Errorf("%s: %s, want %s", tt.ip, r, tt.want)
		}
		if err := client.CoreV1().Services(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	settledState(t, node).same(t, before)
	noHelperPods(t)
}

// The pod of a path whose time is over ends, and cleanup removes it.
func TestPodOfAnEndedPathEnds(t *testing.T) {
	if r := svcproxy(t, "program", app, "--node", nodes[0], "--yes", "--ttl", "5s"); r.code != 0 {
		t.Fatal(r)
	}
	helpersEnd(t)
}
