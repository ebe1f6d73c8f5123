// SPDX-License-Identifier: Apache-2.0

//go:build fleet

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// serve is what runs in the containers of a node.
type serve func(ctx context.Context, node string, in io.Reader, out io.Writer) error

// kubelets are those of all nodes: a server for each, that of exec and attach, and one watch of the pods, which run as
// soon as they are there.
type kubelets struct {
	serve serve
	ports map[string]int32 // of the servers, by node
}

// startKubelets starts the servers of nodes.
func startKubelets(t *testing.T, nodes []string, do serve) *kubelets {
	t.Helper()
	k := &kubelets{serve: do, ports: map[string]int32{}}
	for _, node := range nodes {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k.stream(w, r, node)
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.CloseClientConnections)
		k.ports[node] = int32(s.Listener.Addr().(*net.TCPAddr).Port)
	}
	return k
}

// The names of the streams of a connection to a container (k8s.io/kubelet, pkg/cri/streaming/remotecommand).
const (
	streamType   = "streamType"
	streamError  = "error"
	streamStdin  = "stdin"
	streamStdout = "stdout"
	streamStderr = "stderr"
	protocol     = "v4.channel.k8s.io"
)

// stream runs what is in a container, over SPDY, which is what the API server speaks with kubelets.
func (k *kubelets) stream(w http.ResponseWriter, r *http.Request, node string) {
	if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
		return // it has answered
	}
	came := make(chan httpstream.Stream, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		came <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for len(streams) < 4 { // all that the plugin asks for
		select {
		case s := <-came:
			streams[s.Headers().Get(streamType)] = s
		case <-time.After(time.Minute):
			return
		case <-conn.CloseChan():
			return
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-conn.CloseChan():
			cancel()
		case <-ctx.Done():
		}
	}()
	status := metav1.Status{Status: metav1.StatusSuccess}
	if err := k.serve(ctx, node, streams[streamStdin], streams[streamStdout]); err != nil {
		_, _ = io.WriteString(streams[streamStderr], "error: "+err.Error()+"\n")
		status = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	_ = json.NewEncoder(streams[streamError]).Encode(status) // who has gone need not know
}

// run has pods run, and go when they are deleted, until the context ends. It returns when it knows of all there are.
func (k *kubelets) run(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	work := make(chan *corev1.Pod, 4096)
	see := func(o any) {
		p, ok := o.(*corev1.Pod)
		if ok && k.ports[p.Spec.NodeName] != 0 && (p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodPending) {
			work <- p
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, o any) { see(o) },
	}); err != nil {
		return err
	}
	for range 16 {
		go func() {
			for {
				select {
				case p := <-work:
					k.pod(ctx, client, p)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the pods were not listed")
	}
	return nil
}

// pod does what a kubelet does about a pod. What fails does so as the pod has changed, of which there is another event.
func (*kubelets) pod(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) {
	pods := client.CoreV1().Pods(p.Namespace)
	if p.DeletionTimestamp != nil {
		_ = pods.Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		return
	}
	now := metav1.Now()
	p = p.DeepCopy()
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &now
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	p.Status.ContainerStatuses = nil
	for i := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: p.Spec.Containers[i].Name, Image: p.Spec.Containers[i].Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	_, _ = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
}

// sideBySide calls a function for each number below n, many at once, and returns the first error.
func sideBySide(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	next := make(chan int)
	failed := make(chan error, 1)
	for range 32 {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
