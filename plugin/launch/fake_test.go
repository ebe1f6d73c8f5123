// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// fakeCluster is a cluster whose kubelet does as a test says.
type fakeCluster struct {
	t      *testing.T
	client *fake.Clientset
	l      *Launcher

	// watches are what the watches of the helper's pod tell, one after the other; the last one stays open.
	watches [][]told
	// again takes the place of watches when a second pod is made.
	again [][]told
	// attach is the helper's side of a stream; the default is a good one.
	attach streamer

	mu      sync.Mutex
	said    []string
	noted   []string
	streams int
	created int
}

// told is an event of a watch.
type told struct {
	status  corev1.PodStatus
	deleted bool // the pod is gone
	going   bool // it has a deletion timestamp
}

var (
	statusStarted = corev1.PodStatus{Phase: corev1.PodPending, StartTime: &metav1.Time{Time: time.Unix(1, 0)}}
	statusRunning = container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
)

// container is the status of a pod that the kubelet has taken on.
func container(s corev1.ContainerState) corev1.PodStatus {
	p := *statusStarted.DeepCopy()
	p.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: s}}
	return p
}

func waiting(reason, message string) corev1.PodStatus {
	return container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func events(statuses ...corev1.PodStatus) [][]told {
	var ts []told
	for _, s := range statuses {
		ts = append(ts, told{status: s})
	}
	return [][]told{ts}
}

const podName = "svcproxy-abcde"

func readyNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

// newFakeCluster makes a cluster with the node "node1" and other objects; the launcher has the options that change
// sets.
func newFakeCluster(t *testing.T, change func(*Options), objects ...runtime.Object) *fakeCluster {
	t.Helper()
	w := &fakeCluster{t: t, client: fake.NewClientset(append(objects, readyNode("node1"))...), attach: goodHelper}
	w.watches = events(statusStarted, statusRunning)
	w.react("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		w.created++
		if w.created == 2 {
			w.watches = w.again
		}
		w.mu.Unlock()
		p := a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
		p.Name, p.UID, p.ResourceVersion = podName, types.UID("uid-1"), "1"
		return false, nil, nil
	})
	w.client.PrependWatchReactor("pods", func(ktesting.Action) (bool, watch.Interface, error) {
		return true, w.watch(), nil
	})
	o := Options{
		Config: &rest.Config{}, Client: w.client, Run: "run1", Namespace: "tools", Build: "v1.2.3",
		Say:  func(_, what string) { w.note(&w.said, what) },
		Note: func(_, what string) { w.note(&w.noted, what) },
	}
	if change != nil {
		change(&o)
	}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l.stream = func(ctx context.Context, pod *corev1.Pod, command []string, s streams) error {
		w.mu.Lock()
		w.streams++
		w.mu.Unlock()
		return w.attach(ctx, pod, command, s)
	}
	l.account = time.Millisecond
	w.l = l
	t.Cleanup(l.Close)
	return w
}

// react adds a reactor before the others. The fake's own method does so without its lock, while the sweep that Open
// starts, or a helper's connection, may be asking it.
func (w *fakeCluster) react(verb, resource string, f ktesting.ReactionFunc) {
	w.client.Lock()
	defer w.client.Unlock()
	w.client.PrependReactor(verb, resource, f)
}

func (w *fakeCluster) note(to *[]string, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*to = append(*to, what)
}

func (w *fakeCluster) watch() watch.Interface {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := watch.NewRaceFreeFake()
	if len(w.watches) == 0 {
		return f
	}
	for _, e := range w.watches[0] {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: "tools", UID: "uid-1"}, Status: e.status}
		p.Spec.NodeName = "node1"
		if e.going {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(2, 0)}
		}
		if e.deleted {
			f.Delete(p)
		} else {
			f.Modify(p)
		}
	}
	if w.watches = w.watches[1:]; len(w.watches) > 0 {
		f.Stop()
	}
	return f
}

// left names the pods that are still there.
func (w *fakeCluster) left() []string {
	list, err := w.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"),
		corev1.SchemeGroupVersion.WithKind("Pod"), "tools")
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, p := range list.(*corev1.PodList).Items {
		names = append(names, p.Name)
	}
	return names
}

// did lists the requests of a verb and resource.
func (w *fakeCluster) did(verb, resource string) []ktesting.Action {
	return slices.DeleteFunc(slices.Clone(w.client.Actions()), func(a ktesting.Action) bool {
		return !a.Matches(verb, resource)
	})
}

// helper serves requests as a node's helper does.
func helper(handlers map[string]wire.Handler) streamer {
	return func(ctx context.Context, _ *corev1.Pod, _ []string, s streams) error {
		server, err := wire.NewServer(s.stdin, s.stdout, "v1.2.3")
		if err != nil {
			return err
		}
		return server.Serve(ctx, handlers)
	}
}

var goodHelper = helper(map[string]wire.Handler{wire.MethodCollect: goodCollect})

func goodCollect(_ context.Context, params json.RawMessage, a *wire.Answer) error {
	return errors.Join(
		a.Progress("reading rules"),
		a.File(wire.File{Name: "asked.json", Data: params}),
		a.File(wire.File{Name: "nft-ruleset.json", Unread: "no permission"}),
	)
}

// says is a program that is no helper.
func says(stdout, stderr string, err error) streamer {
	return func(_ context.Context, _ *corev1.Pod, _ []string, s streams) error {
		go func() { _, _ = io.Copy(io.Discard, s.stdin) }()
		_, e1 := io.WriteString(s.stderr, stderr)
		_, e2 := io.WriteString(s.stdout, stdout)
		if e := errors.Join(e1, e2); e != nil {
			return fmt.Errorf("nobody listened: %w", e)
		}
		return err
	}
}

// expect compares an error's text.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("got\n  %s\nwant\n  %s", strings.ReplaceAll(got, "\n", "\\n"), want)
	}
}
