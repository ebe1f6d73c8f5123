// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A Node that was deleted is a gateway no longer: the other Nodes are read again with the next judgement of everything.
func TestADeletedNodeIsNoGateway(t *testing.T) {
	c := capture(t, filepath.Join("..", "faults", "iptables-neighbours", "healthy"), "node1")
	files := snap.Files(t, c.node)
	delete(files, snapshot.ConntrackFile)
	c.node = snapshot.NewNode(c.node.Name, files)
	a := c.agent(t)
	a.Full = 10 * time.Minute
	unknown := func() string { return exposed(t, a.Handler())[`svcproxy_paths{verdict="Unknown"}`] }
	look(t, a, 0)
	if got := unknown(); got != "0" {
		t.Fatalf("%s paths are Unknown", got)
	}
	c.cluster.Nodes = slices.DeleteFunc(c.cluster.Nodes, func(n *corev1.Node) bool { return n.Name != "node1" })
	look(t, a, 700)
	if got := unknown(); got == "0" {
		t.Error("no path is Unknown after the Nodes were deleted that are gateways")
	}
}

// While passes fail, the changes of a Service are kept as one.
func TestChangesDoNotPileUpWhilePassesFail(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	a := c.agent(t)
	a.Read = func(context.Context) (*snapshot.Node, error) { return nil, errors.New("another proxy serves Services") }
	before := c.cluster.EndpointSlices[0]
	for i := range 1000 {
		now := before.DeepCopy()
		now.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}}}
		a.objects.changed(a.objects.holding.take(before), a.objects.holding.take(now), false)
		before = now
		if i%100 == 99 {
			a.pass(t.Context(), reasonAPI)
		}
	}
	if n := len(a.objects.pending) + len(a.latency.changes); n != 1 {
		t.Errorf("%d changes of one Service are kept", n)
	}
}

// A pass that fails is tried again after half a minute, also while findings wait to count.
func TestAFailedPassIsNotTriedAgainAtOnce(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	c.node = withoutLine(t, c.node, snapshot.IPTablesNFTFile, "-A KUBE-SERVICES -d ")
	a := c.agent(t)
	a.pass(t.Context(), reasonStart)
	a.Read = func(context.Context) (*snapshot.Node, error) { return nil, errors.New("no such node") }
	a.pass(t.Context(), reasonPeriodic)
	select {
	case <-a.woken: // by the objects that were there from the beginning
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if reason, err := a.await(ctx); err == nil {
		t.Errorf("a pass begins at once: %s", reason)
	}
}

// A change of endpoints that kube-proxy does not program is not measured.
func TestChangesThatNeedNoRuleAreNotMeasured(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	a := c.agent(t)
	slice := func(kind discoveryv1.AddressType, address string, labels ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", Labels: map[string]string{
				discoveryv1.LabelServiceName: "web",
			}},
			AddressType: kind, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
		for _, l := range labels {
			s.Labels[l] = ""
		}
		return s
	}
	for _, s := range []*discoveryv1.EndpointSlice{
		slice(discoveryv1.AddressTypeIPv4, "10.1.0.1", corev1.IsHeadlessService),
		slice(discoveryv1.AddressTypeIPv4, "10.1.0.1", "service.kubernetes.io/service-proxy-name"),
		slice(discoveryv1.AddressTypeFQDN, "db.example.com"),
	} {
		a.objects.changed(nil, a.objects.holding.take(s), false)
		if len(a.objects.take()) > 0 {
			t.Errorf("measured: %s %v", s.AddressType, s.Labels)
		}
	}
	a.objects.changed(nil, a.objects.holding.take(slice(discoveryv1.AddressTypeIPv4, "10.1.0.1")), false)
	if len(a.objects.take()) != 1 {
		t.Error("the change of a Service that kube-proxy programs is not measured")
	}
}

// Where passes are far apart the time that rules took is not known.
func TestPolledTimesAreMeasuredWherePassesAreClose(t *testing.T) {
	of := familyOf{types.NamespacedName{Namespace: "shop", Name: "web"}, corev1.IPv4Protocol}
	no := func(subject, time.Time) bool { return false }
	for seen, want := range map[float64]string{11: "", 72: whyNotAttributed} {
		var l latency
		l.changed(of, after(1))
		got := l.pass(&report.NodeReport{}, after(seen), after(seen+1), &announced{}, true, no)
		if len(got) != 1 || got[0].why != want {
			t.Errorf("seen after %v s: %+v", seen-1, got)
		}
	}
}

// An agent that is started again does not say that a node is right before what is wrong could count, however slow
// kube-proxy is, and since when it was wrong is not forgotten meanwhile.
func TestAnAgentOfASlowNodeThatStartsAgain(t *testing.T) {
	c, a, api := publishing(t, "real-2node-iptables", "node1")
	files := snap.Files(t, withoutLine(t, c.node, snapshot.IPTablesNFTFile, "-A KUBE-SERVICES -d "))
	var metrics strings.Builder
	for line := range strings.Lines(string(files[snapshot.MetricsFile])) {
		name, _, _ := strings.Cut(line, " ")
		switch { // 40 s on average
		case strings.HasPrefix(line, "kubeproxy_sync_proxy_rules_duration_seconds_sum"):
			line = name + " 4000\n"
		case strings.HasPrefix(line, "kubeproxy_sync_proxy_rules_duration_seconds_count"):
			line = name + " 100\n"
		}
		metrics.WriteString(line)
	}
	files[snapshot.MetricsFile] = []byte(metrics.String())
	c.node = snapshot.NewNode(c.node.Name, files)
	look(t, a, 0)
	look(t, a, 100)
	steps(t, a, api, 101)
	if api.object.Status.Verdict != report.Mismatch || a.grace < time.Minute {
		t.Fatalf("%s, with a grace of %v", api.object.Status.Verdict, a.grace)
	}
	a.settler = settler{}
	a.publisher = newPublisher(a)
	a.publisher.node = func() *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "uid"}}
	}
	for _, at := range []float64{200, 261, 300} {
		look(t, a, at)
		steps(t, a, api, at+1)
		s := &api.object.Status
		if s.Verdict != report.Mismatch || len(s.Findings) == 0 || !s.Findings[0].Since.Time.Equal(after(0)) {
			t.Errorf("%v s after the start: %s, %+v", at-200, s.Verdict, s.Findings)
		}
	}
}

// A node is not right by objects that could not be read for a day.
func TestObjectsThatCannotBeReadAreNotCurrent(t *testing.T) {
	_, a, api := publishing(t, "real-2node-iptables", "node1")
	a.objects.now = func() time.Time { return after(0) }
	look(t, a, 0)
	steps(t, a, api, 1)
	if s := &api.object.Status; s.Verdict != report.Match {
		t.Fatalf("%s %s", s.Verdict, s.Error)
	}
	a.objects.asked(t.Context(), kindEndpointSlices, errors.New("forbidden"))
	look(t, a, 86400)
	steps(t, a, api, 86401)
	if s := &api.object.Status; s.Verdict != report.Unknown || !strings.Contains(s.Error, kindEndpointSlices) {
		t.Errorf("%s %q", s.Verdict, s.Error)
	}
	a.objects.asked(t.Context(), kindEndpointSlices, nil)
	look(t, a, 86500)
	steps(t, a, api, 86501)
	if s := &api.object.Status; s.Verdict != report.Match {
		t.Errorf("%s %q once they are read again", s.Verdict, s.Error)
	}
}

// What cannot be read besides is logged, too.
func TestAnotherFileThatIsNotReadIsLogged(t *testing.T) {
	c := capture(t, "iptables", "node1")
	a := c.agent(t)
	var said []string
	a.Log = func(line string) { said = append(said, line) }
	files := snap.Files(t, c.node)
	delete(files, snapshot.ConntrackFile)
	unread := map[string]string{}
	for i, file := range []string{snapshot.IPSetFile, snapshot.LinkFile} {
		unread[file] = "timed out"
		now := maps.Clone(files)
		for f := range unread {
			delete(now, f)
		}
		now[snapshot.UnreadFile] = snapshot.EncodeUnread(unread)
		c.node = snapshot.NewNode(c.node.Name, now)
		look(t, a, float64(30*i))
		if len(said) != i+1 || !strings.Contains(said[i], file) {
			t.Errorf("said %q", said)
		}
		look(t, a, float64(30*i+15))
	}
}

// A finding that changes of its Service keep from counting gets old; those of healthy churn do not.
func TestHowLongFindingsSettle(t *testing.T) {
	var healthy, stuck settler
	for i := range 60 {
		at := after(float64(30 * i))
		changed := func(types.NamespacedName) time.Time { return at.Add(-500 * time.Millisecond) }
		of := func(name string) []subject {
			return []subject{{service: types.NamespacedName{Namespace: "shop", Name: name}, code: "MissingEndpoint"}}
		}
		healthy.pass(at, of(fmt.Sprint("s", i)), changed, 3*time.Second)
		stuck.pass(at, of("web"), changed, 3*time.Second)
	}
	if h, s := healthy.settlingFor(), stuck.settlingFor(); h != 0 || s != 59*30*time.Second {
		t.Errorf("healthy %v, stuck %v", h, s)
	}
}
