// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiServer knows one pod of a run, and takes its deletion.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	pods    []corev1.Pod
	deleted chan string // the bodies of deletions
	query   string      // of the first list
	token   string
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{deleted: make(chan string, 10)}
	a.pods = []corev1.Pod{*Pod(Options{Run: "run1", Namespace: "tools"}, "node1")}
	a.pods[0].Name, a.pods[0].UID = podName, "uid-1"
	const path = "/api/v1/namespaces/tools/pods"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.query == "" {
			a.query, a.token = r.URL.Query().Get("labelSelector"), r.Header.Get("Authorization")
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.PodList{
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: a.pods,
		})
	})
	mux.HandleFunc("DELETE "+path+"/"+podName, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pods = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success",
		})
		a.deleted <- string(body)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// A plugin that is killed leaves a process behind that removes its pods: here the test plays the plugin, and drops the
// pipe.
func TestWatchdogProcess(t *testing.T) {
	a := newAPIServer(t)
	t.Setenv(watchdogVariable, "yes")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var g watchdog
	o := Options{
		Config: &rest.Config{Host: a.URL, BearerToken: "secret"}, Namespace: "tools", Run: "run1",
		Watchdog: []string{program},
	}
	if err := g.start(&o); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.stdin.Close()
	g.mu.Unlock()
	// client-go sends protobuf; in a deletion only the precondition has a UID.
	if body := <-a.deleted; !strings.Contains(body, "uid-1") {
		t.Errorf("deleted with %q", body)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	want := "app.kubernetes.io/name=svcproxy-nodehelper,app.kubernetes.io/managed-by=kubectl-svcproxy," +
		"svcproxy.dev/run-id=run1"
	if a.query != want {
		t.Errorf("looked for %s", a.query)
	}
	if a.token != "Bearer secret" {
		t.Errorf("came as %q", a.token)
	}
}

// A run that ends in order leaves nothing for it to do, unless a pod could not be removed.
func TestWatchdogIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		left bool
		held time.Time
		want string
	}{
		"all is done":       {want: allDone},
		"something is left": {left: true, want: ""},
		"a path is held": {
			held: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), want: "held until 2026-11-20T12:00:00Z\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told closeBuffer
			g := watchdog{stdin: &told}
			if c.left {
				g.keepOn()
			}
			if !c.held.IsZero() {
				g.hold(c.held)
				g.hold(c.held.Add(-time.Hour))
			}
			g.stop()
			g.stop()
			if told.String() != c.want || told.closed != 1 {
				t.Errorf("told %q, closed %d times", told.String(), told.closed)
			}
		})
	}
}

type closeBuffer struct {
	bytes.Buffer
	closed int
}

func (c *closeBuffer) Close() error { c.closed++; return nil }

func TestWatchdogInput(t *testing.T) {
	a := newAPIServer(t)
	line, err := json.Marshal(order{Namespace: "tools", Run: "run1", API: access{Host: a.URL}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ in, want string }{
		"the run is over": {string(line) + "\n" + allDone, ""},
		"nothing":         {"", "the watchdog got no parameters: EOF"},
		"half a line":     {string(line[:20]), "the watchdog got no parameters: EOF"},
		"no JSON": {
			"hello\n", "the watchdog cannot read its parameters: invalid character 'h' looking for beginning of value",
		},
		"no run": {
			`{"namespace":"tools"}` + "\n", "the watchdog's parameters name no run, or no namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, Watchdog(t.Context(), strings.NewReader(c.in)), c.want)
		})
	}
	if len(a.pods) != 1 {
		t.Error("a pod was deleted")
	}
}

// A pod that was being created when the plugin was killed appears late; those of other runs stay.
func TestRemoveRun(t *testing.T) {
	other := Pod(Options{Run: "run2", Namespace: "tools"}, "node1")
	other.Name = "other"
	ours := Pod(Options{Run: "run1", Namespace: "tools"}, "node1")
	ours.Name = "ours"
	client := fake.NewClientset(other)
	lists := 0
	w := &fakeCluster{t: t, client: client}
	client.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		lists++
		if lists == 3 {
			if err := client.Tracker().Add(ours); err != nil {
				t.Error(err)
			}
		}
		return false, nil, nil
	})
	if err := removeRun(t.Context(), client, "tools", "run1", 1); err != nil {
		t.Fatal(err)
	}
	if left := w.left(); !reflect.DeepEqual(left, []string{"other"}) {
		t.Errorf("left: %v", left)
	}
	if lists != 3+watchdogLists {
		t.Errorf("listed %d times", lists)
	}
}

// The pod of a helper that held a path is removed once that has ended, at its time and not before.
func TestPodOfHeldPathIsRemoved(t *testing.T) {
	ours := Pod(Options{Run: "run1", Namespace: "tools", Hold: time.Minute}, "node1")
	ours.Name, ours.Status.Phase = "ours", corev1.PodRunning
	other := Pod(Options{Run: "run2", Namespace: "tools"}, "node1")
	other.Name, other.Status.Phase = "other", corev1.PodSucceeded
	client := fake.NewClientset(ours, other)
	lists := 0
	w := &fakeCluster{t: t, client: client}
	client.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		lists++
		if lists == 3 { // it ends
			now := ours.DeepCopy()
			now.Status.Phase = corev1.PodSucceeded
			if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), now, "tools"); err != nil {
				t.Error(err)
			}
		}
		return false, nil, nil
	})
	at := time.Now().Add(300 * time.Millisecond)
	if err := removeHeld(t.Context(), client, "tools", "run1", at, 1); err != nil {
		t.Fatal(err)
	}
	if time.Now().Before(at) {
		t.Error("the time of the path was not waited for")
	}
	if left := w.left(); !reflect.DeepEqual(left, []string{"other"}) || lists != 3 {
		t.Errorf("left: %v after %d lists", left, lists)
	}
}

// The access to the API server is the same after encoding and decoding.
func TestAccess(t *testing.T) {
	proxy, err := url.Parse("http://proxy.example:3128")
	if err != nil {
		t.Fatal(err)
	}
	c := &rest.Config{
		Host: "https://api.example:6443", APIPath: "/x", Username: "u", Password: "p", BearerToken: "t",
		BearerTokenFile: "/t",
		Impersonate: rest.ImpersonationConfig{
			UserName: "a", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}},
		},
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: "s", CAData: []byte("ca"), CertData: []byte("cert"), KeyData: []byte("key"),
			NextProtos: []string{"http/1.1"},
		},
		ExecProvider: &clientcmdapi.ExecConfig{
			Command: "aws", Args: []string{"eks", "get-token"}, Env: []clientcmdapi.ExecEnvVar{{Name: "A", Value: "B"}},
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			ProvideClusterInfo: true,
			Config:             &runtime.Unknown{Raw: []byte(`{"audience":"x"}`), ContentType: runtime.ContentTypeJSON},
		},
		Proxy: http.ProxyURL(proxy),
	}
	a, err := accessOf(c)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var b access
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	got, err := b.config()
	if err != nil {
		t.Fatal(err)
	}
	to, err := got.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "api.example:6443"}})
	if err != nil || to.String() != proxy.String() {
		t.Errorf("proxy %v, %v", to, err)
	}
	want := *c
	want.Proxy, got.Proxy = nil, nil
	want.Timeout = removeTimeout
	exec := *c.ExecProvider
	exec.StdinUnavailable, exec.StdinUnavailableMessage = true, "there is no terminal to ask at"
	want.ExecProvider = &exec
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got\n%#v\nwant\n%#v", got.ExecProvider, want.ExecProvider)
	}
	if _, err := accessOf(&rest.Config{Transport: http.DefaultTransport}); err == nil {
		t.Error("an access that cannot be encoded is not an error")
	}
}
