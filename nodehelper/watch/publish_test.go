// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// stored is the API with one object.
type stored struct {
	object *nodereport.Object // nil: there is none
	err    error              // of every request
	calls  []string
}

var nodeReports = schema.GroupResource{Group: "svcproxy.dev", Resource: nodereport.Resource}

func (s *stored) Get(_ context.Context, name string) (*nodereport.Object, error) {
	s.calls = append(s.calls, "get")
	if s.err == nil && s.object == nil {
		return nil, apierrors.NewNotFound(nodeReports, name)
	}
	return s.object, s.err
}

func (s *stored) Create(_ context.Context, o *nodereport.Object) (*nodereport.Object, error) {
	s.calls = append(s.calls, "create")
	if s.err == nil && s.object != nil {
		return nil, apierrors.NewAlreadyExists(nodeReports, o.Name)
	}
	return s.store(o)
}

func (s *stored) Update(_ context.Context, o *nodereport.Object) (*nodereport.Object, error) {
	s.calls = append(s.calls, "update")
	switch {
	case s.err != nil:
	case s.object == nil:
		return nil, apierrors.NewNotFound(nodeReports, o.Name)
	case s.object.ResourceVersion != o.ResourceVersion:
		return nil, apierrors.NewConflict(nodeReports, o.Name, errors.New("another has written it"))
	}
	return s.store(o)
}

func (s *stored) store(o *nodereport.Object) (*nodereport.Object, error) {
	if s.err != nil {
		return nil, s.err
	}
	kept := *o
	kept.ResourceVersion += "1"
	s.object = &kept
	return s.object, nil
}

// did returns the requests since the last call.
func (s *stored) did() []string {
	out := s.calls
	s.calls = nil
	return out
}

// publishing is an agent of a captured node that publishes to stored; its steps are made by the test.
func publishing(t *testing.T, name, node string) (*captured, *Agent, *stored) {
	t.Helper()
	c := capture(t, name, node)
	for _, n := range c.cluster.Nodes {
		n.UID = types.UID("uid of " + n.Name)
	}
	a := c.agent(t)
	api := &stored{}
	a.Reports = api
	a.publisher = newPublisher(a)
	owner := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "uid"}}
	a.publisher.node = func() *corev1.Node { return owner }
	return c, a, api
}

// steps makes one step of a publisher at a time, and returns the requests that it made.
func steps(t *testing.T, a *Agent, api *stored, seconds float64) []string {
	t.Helper()
	if wait := a.publisher.step(t.Context(), after(seconds)); wait <= 0 {
		t.Errorf("at %v it waits for %v", seconds, wait)
	}
	return api.did()
}

func sameCalls(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: it made the requests %q, want %q", what, got, want)
	}
}

// The object is written when it changes, at most every ten seconds, and as a sign of life every three minutes; a rule
// that is gone is in it once it counts, and goes when it is back.
func TestTheReportIsWrittenWhenItChanges(t *testing.T) {
	c, a, api := publishing(t, "real-2node-iptables", "node1")
	healthy := c.node
	sameCalls(t, "before the first pass", steps(t, a, api, 0))
	look(t, a, 0)
	sameCalls(t, "the first pass", steps(t, a, api, 1), "get", "create")
	s := &api.object.Status
	if s.Verdict != report.Match || s.Paths.Matched == 0 || len(s.Findings) != 0 || s.Mode.Actual != "iptables" ||
		s.JudgedAt == nil || s.RenewSeconds != 180 {
		t.Errorf("%+v", s)
	}
	if o := api.object.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != "uid" || o[0].Name != "node1" {
		t.Errorf("its owners are %+v", o)
	}
	look(t, a, 20)
	sameCalls(t, "nothing has changed", steps(t, a, api, 21))
	sameCalls(t, "it is due", steps(t, a, api, 181), "update")
	if at := api.object.Status.JudgedAt; !at.Time.Equal(after(20).Truncate(time.Second)) {
		t.Errorf("it was judged at %v", at)
	}

	var service *corev1.Service
	for _, x := range c.cluster.Services {
		if x.Namespace != metav1.NamespaceSystem && x.Name != "kubernetes" && len(x.Spec.ClusterIP) > 4 {
			service = x
			break
		}
	}
	c.node = withoutLine(t, healthy, snapshot.IPTablesNFTFile, "-A KUBE-SERVICES -d "+service.Spec.ClusterIP+"/32")
	look(t, a, 192)
	sameCalls(t, "what was seen once", steps(t, a, api, 192))
	look(t, a, 202)
	sameCalls(t, "what counts", steps(t, a, api, 203), "update")
	s = &api.object.Status
	if s.Verdict != report.Mismatch || len(s.Findings) == 0 || s.FindingsTotal != len(s.Findings) {
		t.Fatalf("%+v", s)
	}
	for _, f := range s.Findings {
		if f.Namespace != service.Namespace || f.Service != service.Name || f.Paths == 0 ||
			!f.Since.Time.Equal(after(192).Truncate(time.Second)) {
			t.Errorf("%+v", f)
		}
	}
	c.node = healthy
	look(t, a, 204)
	sameCalls(t, "within ten seconds", steps(t, a, api, 204))
	sameCalls(t, "after them", steps(t, a, api, 213.5), "update")
	if s := &api.object.Status; s.Verdict != report.Match || len(s.Findings) != 0 {
		t.Errorf("%+v", s)
	}
}

// What the API server does about the object stops no pass: it is counted by its reason, tried again later and later,
// and written when it can be.
func TestAReportThatIsNotWritten(t *testing.T) {
	_, a, api := publishing(t, "iptables", "node1")
	h := a.Handler()
	api.err = apierrors.NewForbidden(nodeReports, "node1", errors.New("the report of another node"))
	look(t, a, 0)
	sameCalls(t, "refused", steps(t, a, api, 0), "get")
	sameCalls(t, "at once", steps(t, a, api, 15))
	api.err = apierrors.NewNotFound(schema.GroupResource{}, "")
	sameCalls(t, "no such kind", steps(t, a, api, 20), "get", "create")
	sameCalls(t, "the second time it waits longer", steps(t, a, api, 59))
	api.err = errors.New("no route to host")
	sameCalls(t, "away", steps(t, a, api, 60), "get")
	look(t, a, 61)
	sameCalls(t, "the third time", steps(t, a, api, 139))
	node := a.publisher.node
	a.publisher.node = func() *corev1.Node { return nil }
	sameCalls(t, "no Node", steps(t, a, api, 141))
	a.publisher.node, api.err = node, nil
	sameCalls(t, "never more than two minutes", steps(t, a, api, 262), "get", "create")
	other := *api.object
	other.ResourceVersion, api.object = "by another", &other
	look(t, a, 400)
	sameCalls(t, "another has written it", steps(t, a, api, 450), "update")
	sameCalls(t, "it reads it again", steps(t, a, api, 470), "get", "update")
	api.object = nil
	sameCalls(t, "it was deleted", steps(t, a, api, 660), "update")
	sameCalls(t, "it makes it again", steps(t, a, api, 680), "get", "create")
	got := exposed(t, h)
	for why, n := range map[string]string{
		whyRefused: "1", whyAbsent: "2", whyOther: "1", whyNoNode: "1", whyConflict: "1",
	} {
		if s := unpublishedMetric + `{reason="` + why + `"}`; got[s] != n {
			t.Errorf("%s is %s, want %s", s, got[s], n)
		}
	}
	if got[publishedMetric] != "3" || got[publishedAtMetric] == "0" || got[failuresMetric] != "0" {
		t.Errorf("%s writes, the last at %s, %s passes failed", got[publishedMetric], got[publishedAtMetric],
			got[failuresMetric])
	}
}

// A node that cannot be judged any more is said to be not known, and so is one that nobody has judged for long.
func TestTheReportOfANodeThatIsNotJudged(t *testing.T) {
	_, a, api := publishing(t, "iptables", "node1")
	look(t, a, 0)
	steps(t, a, api, 1)
	a.publisher.failed(errors.New("no rules"))
	sameCalls(t, "a failure", steps(t, a, api, 20), "update")
	if s := &api.object.Status; s.Verdict != report.Unknown || s.Error != "the node could not be judged: no rules" {
		t.Errorf("%+v", s)
	}
	look(t, a, 30)
	sameCalls(t, "it is judged again", steps(t, a, api, 40), "update")
	if s := &api.object.Status; s.Error != "" || s.Verdict == report.Unknown {
		t.Errorf("%+v", s)
	}
	steps(t, a, api, 30+3*3600+1) // Options.Full is an hour
	want := "the node was last judged at " + after(30).UTC().Format(time.RFC3339)
	if s := &api.object.Status; s.Error != want || s.Verdict != report.Unknown {
		t.Errorf("%+v, want %q", s, want)
	}
}

// A new process does not say that a node is right whose findings do not count yet, and takes over since when they are
// there.
func TestANewProcessGoesOn(t *testing.T) {
	c, a, api := publishing(t, "real-2node-iptables", "node1")
	c.node = withoutLine(t, c.node, snapshot.IPTablesNFTFile, "-A KUBE-SERVICES -d ")
	look(t, a, 0)
	sameCalls(t, "nothing counts yet", steps(t, a, api, 1))
	look(t, a, 10)
	sameCalls(t, "it counts", steps(t, a, api, 11), "get", "create")
	before := api.object.Status
	if before.Verdict != report.Mismatch {
		t.Fatalf("%+v", before)
	}
	for _, c := range []struct {
		name  string
		at    float64
		since time.Time
	}{
		{"soon", 100, after(0)}, {"after a gap", 100_000, after(100_000)},
	} {
		a.settler = settler{}
		a.publisher = newPublisher(a)
		a.publisher.node = func() *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "uid"}}
		}
		look(t, a, c.at)
		sameCalls(t, c.name, steps(t, a, api, c.at+1))
		look(t, a, c.at+10)
		sameCalls(t, c.name, steps(t, a, api, c.at+11), "get", "update")
		for _, f := range api.object.Status.Findings {
			if !f.Since.Time.Equal(c.since.Truncate(time.Second)) {
				t.Errorf("%s: since %v, want %v", c.name, f.Since, c.since)
			}
		}
	}
}

// The requests are what the API server takes.
func TestReportsRequests(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			body = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	const protobuf = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
		ContentType: protobuf, AcceptContentTypes: protobuf + ",application/json",
	}})
	if err != nil {
		t.Fatal(err)
	}
	api := NewReports(client)
	if _, err := api.Get(t.Context(), "worker-1"); !apierrors.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
	o := &nodereport.Object{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}, Status: nodereport.Status{RenewSeconds: 7}}
	for _, do := range []func(context.Context, *nodereport.Object) (*nodereport.Object, error){api.Create, api.Update} {
		answer, err := do(t.Context(), o)
		if err != nil || answer.Status.RenewSeconds != 7 {
			t.Errorf("%+v %v", answer, err)
		}
	}
	const path = "/apis/svcproxy.dev/v1alpha1/nodereports"
	want := []string{
		"GET " + path + "/worker-1 ", "POST " + path + " application/json", "PUT " + path + "/worker-1 application/json",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
