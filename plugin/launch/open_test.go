// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
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
		data, unread, err := s.Collect(t.Context(), []string{"x"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]snapshot.Packed{"asked.json": snapshot.Pack([]byte(`{"files":["x"]}`))}
		if !reflect.DeepEqual(data, want) {
			t.Errorf("data %v", data)
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
		"checking the node", "scheduling", "starting", "connecting", "collecting", "reading rules", "collecting",
		"reading rules",
	}
	if !slices.Equal(w.said, want) || len(w.noted) != 0 {
		t.Errorf("said %q, noted %q", w.said, w.noted)
	}
	if _, _, err := s.Collect(t.Context(), nil, nil); err == nil {
		t.Error("a closed helper collects")
	}
}

// The kubelet reports late that a container runs; Open connects to the helper before that.
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

// If a pod cannot start, Open fails immediately, with the reason, and leaves no pod.
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
				"--image-pull-policy Never forbids pulling it",
		},
		"no name of an image": {
			events(waiting("InvalidImageName", "")),
			prefix + "its container cannot start: InvalidImageName; --image has to name an image",
		},
		"container cannot be made": {
			events(waiting("CreateContainerError", "no such device\x1b[2J")),
			prefix + "its container cannot start: CreateContainerError: no such device\uFFFD[2J",
		},
		"no node takes it": {events(unschedulable), prefix + "its pod cannot be scheduled: 0/3 nodes are available"},
		"node is full": {
			events(failed("OutOfcpu", "Node didn't have enough resource: cpu")),
			prefix + "the node did not accept its pod: OutOfcpu: Node didn't have enough resource: cpu; " +
				"the node has less than 10m of CPU available",
		},
		"node has enough pods": {
			events(failed("OutOfpods", "")),
			prefix + "the node did not accept its pod: OutOfpods; the node already has the maximum number of pods",
		},
		"kubelet refuses it": {
			events(failed("SomeNewReason", "for a reason")),
			prefix + "the node did not accept its pod: SomeNewReason: for a reason",
		},
		"evicted": {
			events(statusStarted, evicted),
			prefix + "its pod was terminated: Evicted: The node was low on resource: memory.; the node lacks a resource",
		},
		"runtime cannot start it": {
			events(terminated(128, "StartError", "exec: no such file")),
			prefix + "it ended with exit code 128: StartError: exec: no such file",
		},
		"out of memory": {
			events(terminated(137, "OOMKilled", "")),
			prefix + "it ended with exit code 137: OOMKilled; it exceeded its memory limit of 1Gi",
		},
		"ended without a word": {
			events(corev1.PodStatus{Phase: corev1.PodSucceeded}), prefix + "it ended before it answered",
		},
		"being deleted": {[][]told{{{status: statusStarted, going: true}}}, prefix + "its pod is being deleted"},
		"deleted": {
			[][]told{{{status: statusStarted, deleted: true}}},
			"the helper on node node1 did not start: someone deleted its pod tools/svcproxy-abcde",
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
		"not within 50ms (--timeout); its last state: "
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
		// more: what the connection itself says may stand behind it, where its own time of the same length is over first.
		more bool
	}{
		"the kubelet is deaf": {
			watches: events(), want: prefix + "scheduling; the node's kubelet has not started its pod", force: true,
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
			want: prefix + "connecting", more: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil, c.objects...)
			w.l.o.Timeout = 50 * time.Millisecond
			w.watches, w.again = c.watches, c.watches
			w.attach = says("", "", errors.New("not yet"))
			if c.attach != nil {
				w.attach = c.attach
			}
			_, err := w.l.Open(t.Context(), "node1")
			if !c.more || err == nil || !strings.HasPrefix(err.Error(), c.want+"; ") {
				expect(t, err, c.want)
			}
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

// The streams of a container that had just started carried nothing: trace waited for a minute, and failed.
func TestSilentHelperGetsAnotherPod(t *testing.T) {
	w := newFakeCluster(t, nil)
	w.l.o.Timeout = 8 * time.Second
	w.again = w.watches
	tries := 0
	w.attach = func(ctx context.Context, pod *corev1.Pod, command []string, s streams) error {
		tries++
		if tries == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return goodHelper(ctx, pod, command, s)
	}
	h, err := w.l.Open(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	if made, gone := len(w.did("create", "pods")), len(w.did("delete", "pods")); made != 2 || gone != 1 {
		t.Errorf("%d pods were made, and %d deleted", made, gone)
	}
	if !slices.Contains(w.said, "the helper is silent: another pod") {
		t.Errorf("said %q", w.said)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// The container runs, and connecting to its helper fails.
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
			prefix + "it ended without any output; its last output: error: no such device",
		},
		"the stream breaks": {
			says("", "", errors.New("websocket: close 1006")),
			prefix + "it did not answer: websocket: close 1006",
		},
		"another version": {
			says("\x16svcproxy-wire {\"protocol\":9,\"build\":\"v9.0.0\"}\n", "", nil),
			"the helper in image ghcr.io/svcproxy/nodehelper:v1.2.3 (build v9.0.0) is newer than this plugin (build v1.2.3), " +
				"and they would misunderstand each other: use the image of the plugin's own version, " +
				"ghcr.io/svcproxy/nodehelper:v1.2.3",
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

// An interrupted Open leaves no pod.
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
