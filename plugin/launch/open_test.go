// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

func TestOpenCollectClose(t *testing.T) {
	w := newFakeCluster(t, nil)
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	if s.Node() != "node1" || s.Build() != "v1.2.3" {
		t.Errorf("node %s, build %s", s.Node(), s.Build())
	}
	for range 2 {
		data, unread, err := s.Collect(t.Context(), []string{"x"})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string][]byte{"asked.json": []byte(`{"files":["x"]}`)}; !reflect.DeepEqual(data, want) {
			t.Errorf("data %q", data)
		}
		if want := map[string]string{"nft-ruleset.json": "no permission"}; !reflect.DeepEqual(unread, want) {
			t.Errorf("unread %q", unread)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	deletes := w.did("delete", "pods")
	if len(deletes) != 1 {
		t.Fatalf("%d deletions", len(deletes))
	}
	o := deletes[0].(ktesting.DeleteActionImpl).DeleteOptions
	if o.Preconditions == nil || *o.Preconditions.UID != "uid-1" || o.GracePeriodSeconds != nil {
		t.Errorf("deleted with %+v", o)
	}
	want := []string{
		"looking at the node", "scheduling", "starting", "connecting", "collecting", "reading rules", "collecting",
		"reading rules",
	}
	if !slices.Equal(w.said, want) || len(w.noted) != 0 {
		t.Errorf("said %q, noted %q", w.said, w.noted)
	}
	if _, _, err := s.Collect(t.Context(), nil); err == nil {
		t.Error("a closed session collects")
	}
}

// The kubelet tells late that a container runs; the helper is met before that.
func TestOpenAttachesEarly(t *testing.T) {
	w := newFakeCluster(t, nil)
	w.watches = events(statusStarted)
	tries := 0
	w.attach = func(ctx context.Context, pod *corev1.Pod, command []string, s streams) error {
		tries++
		if tries <= 2 {
			return errors.New(`container "nodehelper" not found`)
		}
		return goodHelper(ctx, pod, command, s)
	}
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func terminated(code int32, reason, message string) corev1.PodStatus {
	return container(corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message},
	})
}

func failed(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
}

// Every way in which a pod does not come to life ends at once, with its reason, and leaves no pod.
func TestOpenPodFails(t *testing.T) {
	const prefix = "the helper on node node1 (image ghcr.io/svcproxy/nodehelper:v1.2.3) does not answer: "
	unschedulable := corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/3 nodes are available",
	}}}
	evicted := terminated(137, "Error", "")
	evicted.Phase, evicted.Reason, evicted.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
	for name, c := range map[string]struct {
		watches [][]told
		want    string
	}{
		"image cannot be pulled": {
			events(statusStarted, waiting("ContainerCreating", ""), waiting("ErrImagePull", "manifest unknown")),
			prefix + "its container cannot start: ErrImagePull: manifest unknown; " + imageHint,
		},
		"image pull backs off": {
			events(waiting("ImagePullBackOff", `Back-off pulling image "x"`)),
			prefix + `its container cannot start: ImagePullBackOff: Back-off pulling image "x"; ` + imageHint,
		},
		"image must not be pulled": {
			events(waiting("ErrImageNeverPull", "")),
			prefix + "its container cannot start: ErrImageNeverPull; the node does not have the image, and " +
				"--image-pull-policy Never forbids to get it",
		},
		"no name of an image": {
			events(waiting("InvalidImageName", "")),
			prefix + "its container cannot start: InvalidImageName; --image has to name an image",
		},
		"container cannot be made": {
			events(waiting("CreateContainerError", "no such device\x1b[2J")),
			prefix + "its container cannot start: CreateContainerError: no such device\uFFFD[2J",
		},
		"no node takes it": {events(unschedulable), prefix + "no node takes its pod: 0/3 nodes are available"},
		"node is full": {
			events(failed("OutOfcpu", "Node didn't have enough resource: cpu")),
			prefix + "the node did not take its pod: OutOfcpu: Node didn't have enough resource: cpu; " +
				"the node has not even 10m of CPU to spare",
		},
		"node has enough pods": {
			events(failed("OutOfpods", "")),
			prefix + "the node did not take its pod: OutOfpods; the node has as many pods as it may have",
		},
		"kubelet refuses it": {
			events(failed("SomeNewReason", "for a reason")),
			prefix + "the node did not take its pod: SomeNewReason: for a reason",
		},
		"evicted": {
			events(statusStarted, evicted),
			prefix + "its pod was ended: Evicted: The node was low on resource: memory.; the node is short of something",
		},
		"runtime cannot start it": {
			events(terminated(128, "StartError", "exec: no such file")),
			prefix + "it ended with exit code 128: StartError: exec: no such file",
		},
		"out of memory": {
			events(terminated(137, "OOMKilled", "")),
			prefix + "it ended with exit code 137: OOMKilled; it needed more than the 1Gi of memory that it may have",
		},
		"ended without a word": {
			events(corev1.PodStatus{Phase: corev1.PodSucceeded}), prefix + "it ended before it answered",
		},
		"being deleted": {[][]told{{{status: statusStarted, going: true}}}, prefix + "somebody is deleting its pod"},
		"deleted": {
			[][]told{{{status: statusStarted, deleted: true}}},
			"the helper on node node1 did not start: somebody deleted its pod tools/svcproxy-abcde",
		},
		"after a broken watch": {
			append(events(statusStarted), events(waiting("InvalidImageName", ""))...),
			prefix + "its container cannot start: InvalidImageName; --image has to name an image",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil)
			w.watches = c.watches
			w.attach = func(ctx context.Context, _ *corev1.Pod, _ []string, _ streams) error {
				<-ctx.Done()
				return ctx.Err()
			}
			_, err := w.l.Open(t.Context(), "node1")
			expect(t, err, c.want)
			if left := w.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// The last known state, the node's and the last warning tell why nothing happens.
func TestOpenTimesOut(t *testing.T) {
	const prefix = "the helper on node node1 (image ghcr.io/svcproxy/nodehelper:v1.2.3) does not answer: " +
		"not within 50ms (--timeout); it got as far as: "
	event := func(name, kind, message string, at int64) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "tools"}, InvolvedObject: corev1.ObjectReference{UID: "uid-1"},
			Type: kind, Reason: "FailedCreatePodSandBox", Message: message, LastTimestamp: metav1.Unix(at, 0),
		}
	}
	sandbox := *statusStarted.DeepCopy()
	sandbox.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
	for name, c := range map[string]struct {
		watches [][]told
		attach  streamer
		objects []runtime.Object
		want    string
		force   bool
	}{
		"the kubelet is deaf": {
			watches: events(), want: prefix + "scheduling; the node's kubelet has not touched its pod", force: true,
		},
		"the sandbox takes long": {watches: events(statusStarted), want: prefix + "starting"},
		"the image takes long":   {watches: events(sandbox), want: prefix + "getting the image"},
		"events say why": {
			watches: events(statusStarted),
			objects: []runtime.Object{
				event("a", "Warning", "older", 1), event("b", "Warning", "plugin type=\"x\" failed", 3),
				event("c", "Normal", "Pulled", 5),
			},
			want: prefix + `starting; last warning: FailedCreatePodSandBox: plugin type="x" failed`,
		},
		"the helper is silent": {
			watches: events(statusRunning),
			attach: func(ctx context.Context, _ *corev1.Pod, _ []string, s streams) error {
				go func() { _, _ = io.Copy(io.Discard, s.stdin) }()
				<-ctx.Done()
				return ctx.Err()
			},
			want: prefix + "connecting",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil, c.objects...)
			w.l.o.Timeout = 50 * time.Millisecond
			w.watches = c.watches
			w.attach = says("", "", errors.New("not yet"))
			if c.attach != nil {
				w.attach = c.attach
			}
			_, err := w.l.Open(t.Context(), "node1")
			expect(t, err, c.want)
			if left := w.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			grace := w.did("delete", "pods")[0].(ktesting.DeleteActionImpl).DeleteOptions.GracePeriodSeconds
			if forced := grace != nil && *grace == 0; forced != c.force {
				t.Errorf("deleted by force: %v", forced)
			}
		})
	}
}

// What goes wrong between here and the helper.
func TestOpenCannotConnect(t *testing.T) {
	const prefix = "the helper on node node1 (image ghcr.io/svcproxy/nodehelper:v1.2.3) does not answer: " +
		"its container runs; connecting to it failed: "
	for name, c := range map[string]struct {
		attach streamer
		want   string
	}{
		"another program": {
			says("hello, world\n", "", nil),
			prefix + "what answers is not svcproxy's node helper; it wrote: hello, world",
		},
		"it ends at once": {
			says("", "error: no such device\n", nil),
			prefix + "it ended without a word; its last words: error: no such device",
		},
		"the stream breaks": {
			says("", "", errors.New("websocket: close 1006")),
			prefix + "it did not answer: websocket: close 1006",
		},
		"another version": {
			says("\x16svcproxy-wire {\"protocol\":9,\"build\":\"v9.0.0\"}\n", "", nil),
			"the helper in image ghcr.io/svcproxy/nodehelper:v1.2.3 speaks version 9 of the protocol (build v9.0.0), this " +
				"plugin version 1 (build v1.2.3): use the image of the plugin's own version, ghcr.io/svcproxy/nodehelper:v1.2.3",
		},
		"not allowed": {
			says("", "", errors.New(`unable to upgrade connection: pods "svcproxy-abcde" is forbidden: `+
				`User "jane" cannot create resource "pods/attach" in API group "" in the namespace "tools"`)),
			"cannot create pods/attach in tools as user jane: deploy/rbac.yaml grants it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil)
			w.watches = events(statusRunning)
			w.attach = c.attach
			_, err := w.l.Open(t.Context(), "node1")
			expect(t, err, c.want)
			if left := w.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestOpenRefused(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(format string, args ...any) error {
		return apierrors.NewForbidden(pods, "svcproxy-x", fmt.Errorf(format, args...))
	}
	namespace := func(name, level string) runtime.Object {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if level != "" {
			n.Labels[enforceKey] = level
		}
		return n
	}
	security := forbidden(`violates PodSecurity "baseline:v1.30": host namespaces (hostNetwork=true, hostPID=true), ` +
		`privileged (container "nodehelper" must not set securityContext.privileged=true)`)
	const refusedBy = `namespace tools enforces Pod Security "baseline:v1.30", which refuses the helper pod ` +
		`(host namespaces, privileged): `
	for name, c := range map[string]struct {
		err     error
		objects []runtime.Object
		want    string
	}{
		"no permission": {
			err: forbidden(
				`User "system:serviceaccount:ci:bot" cannot create resource "pods" in API group "" in the namespace "tools"`,
			),
			want: "cannot create pods in tools as user system:serviceaccount:ci:bot: deploy/rbac.yaml grants it",
		},
		"Pod Security, and a namespace says that it takes it": {
			err: security,
			objects: []runtime.Object{
				namespace("tools", "baseline"), namespace("kube-system", ""), namespace("ops", "privileged"), namespace("a", ""),
			},
			want: refusedBy + "--helper-namespace ops would take it",
		},
		"Pod Security, and kube-system enforces nothing": {
			err:     security,
			objects: []runtime.Object{namespace("tools", "baseline"), namespace("a", ""), namespace("kube-system", "")},
			want:    refusedBy + "--helper-namespace kube-system would take it",
		},
		"Pod Security everywhere": {
			err: security, objects: []runtime.Object{namespace("tools", "baseline"), namespace("kube-system", "restricted")},
			want: refusedBy + "no namespace takes it; make one with: " +
				"kubectl label namespace NAME pod-security.kubernetes.io/enforce=privileged",
		},
		"quota is used up": {
			err: forbidden("exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5"),
			want: "the ResourceQuota small of namespace tools leaves no room for a helper pod (requested: pods=1, used: " +
				"pods=5, limited: pods=5): choose another with --helper-namespace",
		},
		"quota wants more": {
			err: forbidden("failed quota: disk: must specify limits.ephemeral-storage for: nodehelper"),
			want: "the ResourceQuota disk of namespace tools refuses the helper pod (must specify limits.ephemeral-storage " +
				"for: nodehelper): choose another with --helper-namespace",
		},
		"limit range": {
			err: forbidden("[maximum cpu usage per Container is 1, but limit is 2]"),
			want: "a LimitRange of namespace tools refuses the helper pod (maximum cpu usage per Container is 1, but limit " +
				"is 2): choose another with --helper-namespace",
		},
		"no such namespace": {
			err:  apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "tools"),
			want: "there is no namespace tools for the helper pod: choose another with --helper-namespace",
		},
		"a webhook": {
			err: forbidden("admission webhook denied it"),
			want: `the API server did not take the helper pod in namespace tools: pods "svcproxy-x" is forbidden: ` +
				"admission webhook denied it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil, c.objects...)
			w.react("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			_, err := w.l.Open(t.Context(), "node1")
			expect(t, err, c.want)
			expect(t, w.l.Check(t.Context(), "node1"), c.want)
		})
	}
}

// What is wrong with a node is said before a pod is made for it.
func TestOpenNode(t *testing.T) {
	for name, c := range map[string]struct {
		node   string
		change func(*corev1.Node)
		err    error // of reading it
		want   string
	}{
		"not ready": {
			node: "node2",
			change: func(n *corev1.Node) {
				n.Status.Conditions[0] = corev1.NodeCondition{
					Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
					Message: "Kubelet stopped posting node status.", LastTransitionTime: metav1.Unix(1700000000, 0),
				}
			},
			want: "node node2 is not ready since 2023-11-14 22:13:20 UTC, so no helper can start there: " +
				"NodeStatusUnknown: Kubelet stopped posting node status.",
		},
		"windows": {
			node: "node2", change: func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelOSStable: "windows"} },
			want: "node node2 runs windows, and the helper needs Linux",
		},
		"none": {node: "nope", want: `there is no node "nope": kubectl get nodes lists those of the cluster`},
		"no name": {
			node: "Node 2",
			want: `"Node 2" is no name of a node: a lowercase RFC 1123 subdomain must consist of lower case ` +
				`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character ` +
				`(e.g. 'example.com', regex used for validation is ` +
				`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		},
		"may not look": {
			node: "node1", err: apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node1", errors.New("no")),
		},
		"cannot look": {
			node: "node1", err: errors.New("connection refused"), want: "cannot read node node1: connection refused",
		},
		"good":         {node: "node2"},
		"says nothing": {node: "node2", change: func(n *corev1.Node) { n.Status.Conditions = nil }},
		"runs linux": {
			node: "node2", change: func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelOSStable: "linux"} },
		},
		"under pressure": {node: "node2", change: func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue,
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := readyNode("node2")
			if c.change != nil {
				c.change(n)
			}
			w := newFakeCluster(t, nil, n)
			if c.err != nil {
				w.react("get", "nodes", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			}
			_, err := w.l.Open(t.Context(), c.node)
			expect(t, err, c.want)
			if created := len(w.did("create", "pods")); (created > 0) != (c.want == "") {
				t.Errorf("%d pods were made", created)
			}
		})
	}
}

// A person who gives up leaves nothing behind.
func TestOpenInterrupted(t *testing.T) {
	for name, stage := range map[string]string{
		"while the pod is made":   "create",
		"while it starts":         "watch",
		"while the helper is met": "attach",
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			w.react("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
				if stage == "create" {
					cancel()
				}
				return false, nil, nil
			})
			w.watches = events(statusStarted)
			switch stage {
			case "watch":
				w.attach = func(context.Context, *corev1.Pod, []string, streams) error { cancel(); return errors.New("not yet") }
			case "attach":
				w.watches = events(statusRunning)
				w.attach = func(ctx context.Context, _ *corev1.Pod, _ []string, _ streams) error {
					cancel()
					<-ctx.Done()
					return ctx.Err()
				}
			}
			if _, err := w.l.Open(ctx, "node1"); !errors.Is(err, context.Canceled) {
				t.Errorf("Open: %v", err)
			}
			w.l.Close()
			if left := w.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if n := len(w.did("create", "pods")); n != 1 {
				t.Errorf("%d pods were made", n)
			}
		})
	}
}

// The end of the run ends what its user forgot.
func TestCloseEndsSessions(t *testing.T) {
	w := newFakeCluster(t, nil)
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	w.l.Close()
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, _, err := s.Collect(t.Context(), nil); err == nil {
		t.Error("a session outlives the run")
	}
	if _, err := w.l.Open(t.Context(), "node1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a node is opened after the end of the run: %v", err)
	}
}

func TestKeep(t *testing.T) {
	w := newFakeCluster(t, func(o *Options) { o.Keep = true })
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := w.left(); !slices.Equal(left, []string{podName}) {
		t.Errorf("left: %v", left)
	}
	want := []string{
		"the helper pod tools/svcproxy-abcde stays, as --keep asks; remove it with: kubectl delete pod -n tools " +
			"svcproxy-abcde",
	}
	if !slices.Equal(w.noted, want) {
		t.Errorf("noted %q", w.noted)
	}
}

// A deletion is tried again while the API server restarts, and a failed one is told with the command.
func TestCloseCannotDelete(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{
			ErrStatus: metav1.Status{Status: "Failure", Code: code, Reason: reason, Message: "the server is shutting down"},
		}
	}
	for name, c := range map[string]struct {
		errs []error
		want string
		left int
	}{
		"restarting": {
			errs: []error{
				errors.New("connection refused"), status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
			},
		},
		"gone already": {
			errs: []error{apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, podName)}, left: 1,
		},
		"another pod by now": {
			errs: []error{
				apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, podName,
					errors.New("the UID in the precondition does not match")),
			},
			left: 1,
		},
		"not allowed": {
			errs: []error{
				apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, podName,
					errors.New(`User "jane" cannot delete resource "pods" in API group "" in the namespace "tools"`)),
			},
			want: "could not delete the helper pod tools/svcproxy-abcde (cannot delete pods in tools as user jane: " +
				"deploy/rbac.yaml grants it); delete it with: kubectl delete pod -n tools svcproxy-abcde",
			left: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil)
			w.react("delete", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
				if len(c.errs) == 0 {
					return false, nil, nil
				}
				err := c.errs[0]
				c.errs = c.errs[1:]
				return true, nil, err
			})
			s, err := w.l.Open(t.Context(), "node1")
			if err != nil {
				t.Fatal(err)
			}
			expect(t, s.Close(), c.want)
			if left := w.left(); len(left) != c.left {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// What may happen to an answer on its way; never is half of it taken for the whole.
func TestCollectFails(t *testing.T) {
	noisy := func(_ context.Context, _ json.RawMessage, a *wire.Answer) error {
		noise := make([]byte, 1<<20)
		for i := range noise {
			noise[i] = byte(i*i>>9) ^ byte(i*7>>3)
		}
		return errors.Join(a.File(wire.File{Name: "small", Data: []byte("x")}),
			a.File(wire.File{Name: "large", Data: noise}))
	}
	half := func(then func(s streams) error) streamer {
		return func(ctx context.Context, _ *corev1.Pod, _ []string, s streams) error {
			limited := &cutter{w: s.stdout, left: 200 << 10}
			server, err := wire.NewServer(s.stdin, limited, "v1.2.3")
			if err != nil {
				return err
			}
			err = server.Serve(ctx, map[string]wire.Handler{wire.MethodCollect: noisy})
			if !errors.Is(err, errCut) {
				return fmt.Errorf("the answer was not cut: %w", err)
			}
			return then(s)
		}
	}
	for name, c := range map[string]struct {
		attach streamer
		status corev1.PodStatus // what the API then says of the pod
		want   []string
	}{
		"the stream breaks in a file": {
			attach: half(func(streams) error { return errors.New("websocket: close 1006") }),
			status: statusRunning,
			want: []string{
				"cannot read node node1: the helper's answer broke off after 2 files and ",
				", and counts as none: websocket: close 1006",
			},
		},
		"the stream breaks, and the helper has left in order": {
			attach: half(func(streams) error { return errors.New("websocket: close 1006") }),
			status: terminated(0, "Completed", ""),
			want: []string{
				"cannot read node node1: the helper's answer broke off after 2 files and ",
				", and counts as none: websocket: close 1006",
			},
		},
		"the helper ends in a file": {
			attach: half(func(s streams) error {
				_, err := io.WriteString(s.stderr, "panic: out of range\n\tgoroutine 1\n")
				return err
			}),
			status: terminated(2, "Error", ""),
			want: []string{
				"cannot read node node1: the helper's answer broke off after 2 files and ",
				", and counts as none: unexpected EOF; its last words: panic: out of range goroutine 1; of the helper the " +
					"cluster says: it ended with exit code 2: Error",
			},
		},
		"the helper runs out of memory": {
			attach: half(func(streams) error { return nil }),
			status: terminated(137, "OOMKilled", ""),
			want: []string{
				"; of the helper the cluster says: it ended with exit code 137: OOMKilled; it needed more than the 1Gi of " +
					"memory that it may have",
			},
		},
		"the helper cannot": {
			attach: helper(map[string]wire.Handler{
				wire.MethodCollect: func(context.Context, json.RawMessage, *wire.Answer) error { return errors.New("not root") },
			}),
			want: []string{"cannot read node node1: not root"},
		},
		"the helper does not know how": {
			attach: helper(nil),
			want:   []string{`cannot read node node1: this helper does not know the request "collect"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil)
			w.attach = c.attach
			s, err := w.l.Open(t.Context(), "node1")
			if err != nil {
				t.Fatal(err)
			}
			w.react("get", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName, UID: "uid-1"}, Status: c.status}, nil
			})
			data, unread, err := s.Collect(t.Context(), nil)
			if err == nil || data != nil || unread != nil {
				t.Fatalf("got %d files, %v", len(data), err)
			}
			text := err.Error()
			if !strings.HasPrefix(text, c.want[0]) && len(c.want) > 1 || !strings.HasSuffix(text, c.want[len(c.want)-1]) {
				t.Errorf("got\n  %s\nwant\n  %s", text, strings.Join(c.want, "…"))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// cutter is a stream that breaks.
type cutter struct {
	w    io.Writer
	left int
}

var errCut = errors.New("cut")

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		n, err := c.w.Write(p[:c.left])
		c.left = 0
		return n, errors.Join(errCut, err)
	}
	c.left -= len(p)
	return c.w.Write(p)
}

// A helper that falls silent is given up; one that speaks now and then is not, however long it takes.
func TestCollectSilence(t *testing.T) {
	w := newFakeCluster(t, nil)
	silent := func(ctx context.Context, _ json.RawMessage, _ *wire.Answer) error {
		<-ctx.Done()
		return ctx.Err()
	}
	w.attach = helper(map[string]wire.Handler{wire.MethodCollect: silent})
	s, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	s.conn.idle.limit = 20 * time.Millisecond
	s.why = nil
	_, _, err = s.Collect(t.Context(), nil)
	expect(t, err, "cannot read node node1: the helper has said nothing for 20ms; try a longer --timeout")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Collect(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt gives %v", err)
	}
}

// Local serves within this process, and closes in order.
func TestLocal(t *testing.T) {
	ended := make(chan struct{})
	serve := func(ctx context.Context, in io.Reader, out io.Writer) error {
		defer close(ended)
		return goodHelper(ctx, nil, nil, streams{stdin: in, stdout: out})
	}
	s, err := Local(t.Context(), "here", Options{Build: "v1.2.3"}, serve)
	if err != nil {
		t.Fatal(err)
	}
	data, unread, err := s.Collect(t.Context(), nil)
	if err != nil || len(data) != 1 || len(unread) != 1 {
		t.Errorf("%d files, %d unread, %v", len(data), len(unread), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-ended

	_, err = Local(t.Context(), "here", Options{}, func(context.Context, io.Reader, io.Writer) error {
		return errors.New("not root")
	})
	expect(t, err, "it did not answer: not root")
	_, err = Local(t.Context(), "here", Options{}, nil)
	expect(t, err, "this program cannot inspect the machine it runs on")
}
