// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/test/tenant"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// captured is a node of a captured snapshot, and a client of a cluster that has its objects.
type captured struct {
	cluster *snapshot.Cluster
	node    *snapshot.Node
	client  kubernetes.Interface
}

func capture(t testing.TB, name, node string, beside ...tenant.Objects) *captured {
	t.Helper()
	s, err := snapshot.Open(filepath.Join("..", "..", "testdata", "snapshots", name))
	if err != nil {
		t.Fatal(err)
	}
	c := &captured{}
	if c.cluster, err = s.Cluster(); err != nil {
		t.Fatal(err)
	}
	if c.node, err = s.Node(node); err != nil {
		t.Fatal(err)
	}
	for _, o := range beside {
		c.cluster.Services = append(c.cluster.Services, o.Services...)
		c.cluster.EndpointSlices = append(c.cluster.EndpointSlices, o.Slices...)
	}
	var objects []runtime.Object
	for _, o := range c.cluster.Services {
		objects = append(objects, o)
	}
	for _, o := range c.cluster.EndpointSlices {
		objects = append(objects, o)
	}
	for _, o := range c.cluster.Nodes {
		if o.Name == node { // a watch of the fake would tell of all, whatever fields are asked for
			objects = append(objects, o)
		}
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := action.(clienttesting.ListAction)
		out := &corev1.NodeList{}
		for _, n := range c.cluster.Nodes {
			if list.GetListRestrictions().Fields.Matches(fields.Set{metav1.ObjectNameField: n.Name}) {
				out.Items = append(out.Items, *n)
			}
		}
		return true, out, nil
	})
	c.client = client
	return c
}

// agent returns an agent of the node that has read the objects; its passes are made by the test.
func (c *captured) agent(t *testing.T) *Agent {
	t.Helper()
	return c.agentThatHolds(t, bounds.AgentObjects)
}

// agentThatHolds is agent with another bound of what the objects may take.
func (c *captured) agentThatHolds(t *testing.T, most int) *Agent {
	t.Helper()
	a, err := New(Options{
		Node: c.node.Name, Client: c.client, Share: 1, Full: time.Hour, Poll: time.Hour,
		Read: func(context.Context) (*snapshot.Node, error) { return c.node, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	a.announced.set(true)
	a.objects.holding.most = most
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.objects.run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	for !a.objects.synced() {
		<-time.After(time.Millisecond)
	}
	return a
}

// look makes a pass at a time.
func look(t *testing.T, a *Agent, seconds float64) {
	t.Helper()
	if err := a.look(t.Context(), after(seconds)); err != nil {
		t.Fatal(err)
	}
}

// withoutLine returns the node without the first line of a file that contains a text.
func withoutLine(t *testing.T, n *snapshot.Node, file, text string) *snapshot.Node {
	t.Helper()
	data, _, err := n.File(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	i := slices.IndexFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(text)) })
	if i < 0 {
		t.Fatalf("%s has no line with %q", file, text)
	}
	return n.With(file, bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil))
}

// A rule that is gone is a finding that counts when it was seen twice and kube-proxy had its time, and does so no more
// once the rule is back.
func TestARuleThatIsGone(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	healthy := c.node
	a := c.agent(t)
	h := a.Handler()
	var service *corev1.Service
	for _, s := range c.cluster.Services {
		if s.Namespace != metav1.NamespaceSystem && s.Name != "kubernetes" && len(s.Spec.ClusterIP) > 4 {
			service = s
			break
		}
	}
	of := func() (findings []string, wrong, settling string) {
		got := exposed(t, h)
		for s := range got {
			if strings.HasPrefix(s, findingsMetric+"{") {
				findings = append(findings, s)
			}
		}
		return findings, got[`svcproxy_paths{verdict="Mismatch"}`], got[`svcproxy_paths{verdict="Settling"}`]
	}
	look(t, a, 0)
	look(t, a, 10)
	if f, wrong, settling := of(); len(f) > 0 || wrong != "0" || settling != "0" {
		t.Fatalf("on the healthy node: %v, %s paths are wrong, %s settling", f, wrong, settling)
	}
	c.node = withoutLine(t, healthy, snapshot.IPTablesNFTFile, "-A KUBE-SERVICES -d "+service.Spec.ClusterIP+"/32")
	look(t, a, 20)
	if f, wrong, settling := of(); len(f) > 0 || wrong != "0" || settling == "0" {
		t.Errorf("seen once: %v, %s paths are wrong, %s settling", f, wrong, settling)
	}
	look(t, a, 20.5)
	if f, _, _ := of(); len(f) > 0 {
		t.Errorf("within kube-proxy's time: %v", f)
	}
	look(t, a, 30)
	f, wrong, settling := of()
	if len(f) == 0 || wrong == "0" || settling != "0" {
		t.Errorf("seen twice: %v, %s paths are wrong, %s settling", f, wrong, settling)
	}
	for _, s := range f {
		if !strings.Contains(s, `namespace="`+service.Namespace+`",service="`+service.Name+`"`) {
			t.Errorf("a finding of another Service: %s", s)
		}
	}
	c.node = healthy
	look(t, a, 31)
	if f, wrong, _ := of(); len(f) > 0 || wrong != "0" {
		t.Errorf("repaired: %v, %s paths are wrong", f, wrong)
	}
}

// While the API changes a Service faster than kube-proxy can follow, what is wrong with it does not count.
func TestABurstOfChangesIsNoFinding(t *testing.T) {
	c := capture(t, "real-2node-iptables", "node1")
	a := c.agent(t)
	s := c.cluster.EndpointSlices[slices.IndexFunc(c.cluster.EndpointSlices, func(
		s *discoveryv1.EndpointSlice,
	) bool {
		return len(s.Endpoints) > 0 && s.Namespace != metav1.NamespaceSystem &&
			s.Labels[discoveryv1.LabelServiceName] != "kubernetes"
	})]
	select {
	case <-a.woken: // of what was there from the beginning
	default:
	}
	for i := range 10 {
		at := float64(2 * i)
		a.objects.mu.Lock()
		a.objects.now = func() time.Time { return after(at) }
		a.objects.mu.Unlock()
		other := s.DeepCopy()
		other.Endpoints[0].Addresses = []string{"10.244.9." + string(rune('0'+i))}
		if _, err := c.client.DiscoveryV1().EndpointSlices(s.Namespace).Update(t.Context(), other,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-a.woken
		look(t, a, at+0.5)
		look(t, a, at+1.5)
		got := exposed(t, a.Handler())
		if got[`svcproxy_paths{verdict="Settling"}`] == "0" || got[`svcproxy_paths{verdict="Mismatch"}`] != "0" {
			t.Errorf("after change %d: %s paths settle, %s are wrong", i, got[`svcproxy_paths{verdict="Settling"}`],
				got[`svcproxy_paths{verdict="Mismatch"}`])
		}
	}
	look(t, a, 100) // kube-proxy does not follow
	if got := exposed(t, a.Handler())[`svcproxy_paths{verdict="Mismatch"}`]; got == "0" {
		t.Error("at last it counts")
	}
}

// A node that cannot be read is said, and what was known stays.
func TestANodeThatCannotBeRead(t *testing.T) {
	c := capture(t, "iptables", "node1")
	a := c.agent(t)
	var said []string
	a.Log = func(line string) { said = append(said, line) }
	a.pass(t.Context(), reasonStart)
	before := exposed(t, a.Handler())
	read := a.Read
	a.Read = func(context.Context) (*snapshot.Node, error) { return nil, errors.New("no such node") }
	a.pass(t.Context(), reasonPeriodic)
	a.pass(t.Context(), reasonPeriodic)
	a.Read = func(context.Context) (*snapshot.Node, error) { panic("a defect") }
	a.pass(t.Context(), reasonPeriodic)
	got := exposed(t, a.Handler())
	if got[failuresMetric] != "3" || got[readMetric] != before[readMetric] {
		t.Errorf("%s failures, last pass %s, before %s", got[failuresMetric], got[readMetric], before[readMetric])
	}
	a.Read = read
	a.pass(t.Context(), reasonPeriodic)
	want := []string{"error: the node was not judged: no such node", "it works again: pass"}
	if !slices.Equal(said, want) {
		t.Errorf("it said %q, want %q", said, want)
	}
}

// The resolution is the time between two passes that judged the node, in every mode: an attempt that failed has seen
// nothing.
func TestTheResolutionIsOfPassesThatJudged(t *testing.T) {
	for _, name := range []string{"nftables", "iptables-legacy"} {
		c := capture(t, name, "node1")
		a := c.agent(t)
		shown := func() string { return exposed(t, a.Handler())[pollingMetric] }
		look(t, a, 0)
		if got := shown(); got != "0" {
			t.Errorf("%s: after the first pass %s", name, got)
		}
		read := a.Read
		a.Read = func(context.Context) (*snapshot.Node, error) { return nil, errors.New("no such node") }
		if err := a.look(t.Context(), after(15)); err == nil {
			t.Error("a node that cannot be read is no error")
		}
		a.Read = read
		look(t, a, 20)
		if got := shown(); got != "20" {
			t.Errorf("%s: after a failure and a pass %s, want 20", name, got)
		}
	}
}

// What an agent reads of the API suffices: nothing is found wrong that is not with all objects.
func TestItsObjectsSuffice(t *testing.T) {
	all, err := filepath.Glob("../../testdata/snapshots/*/nodes/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		name, node := filepath.Base(filepath.Dir(filepath.Dir(dir))), filepath.Base(dir)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || strings.HasPrefix(name, "scale-") {
			continue
		}
		t.Run(name+" "+node, func(t *testing.T) {
			c := capture(t, name, node)
			few := &snapshot.Cluster{
				Services: c.cluster.Services, EndpointSlices: c.cluster.EndpointSlices,
				Missing: []string{"pods", "configmaps", "endpoints"},
			}
			for _, o := range c.cluster.Nodes {
				if o.Name == node {
					few.Nodes = append(few.Nodes, o)
				}
			}
			request := judge.Request{Backwards: true, PerPathService: true}
			before, got := judge.Files(c.cluster, c.node, request), judge.Files(few, c.node, request)
			known := map[subject]bool{}
			for _, s := range subjectsOf(&before) {
				known[s] = true
			}
			for _, s := range subjectsOf(&got) {
				if !known[s] {
					t.Errorf("found only without the other objects: %+v", s)
				}
			}
			if got.Summary.Unknown > before.Summary.Unknown {
				t.Errorf("%d paths are unknown, and %d with all objects", got.Summary.Unknown, before.Summary.Unknown)
			}
		})
	}
}

// A gateway that this node has sent nothing to for a while is a Node nonetheless: the other Nodes are read where a path
// hangs on them, and not again before everything is judged anew.
func TestAGatewayIsANodeThatIsNotWatched(t *testing.T) {
	c := capture(t, filepath.Join("..", "faults", "iptables-neighbours", "healthy"), "node1")
	files := snap.Files(t, c.node)
	delete(files, snapshot.ConntrackFile)
	if bytes.Contains(files[snapshot.NeighbourFile], []byte(`"10.79.0.12"`)) {
		t.Fatal("the node has an entry of another node")
	}
	c.node = snapshot.NewNode(c.node.Name, files)
	a := c.agent(t)
	a.Full = 10 * time.Minute
	unknown := func() string { return exposed(t, a.Handler())[`svcproxy_paths{verdict="Unknown"}`] }
	lists := func() (n int) {
		for _, x := range c.client.(*fake.Clientset).Actions() {
			if l, ok := x.(clienttesting.ListAction); ok && l.GetResource().Resource == "nodes" &&
				l.GetListRestrictions().Fields.Empty() {
				n++
			}
		}
		return n
	}
	for i, seconds := range []float64{0, 60, 120} {
		look(t, a, seconds)
		if got := unknown(); got != "0" || lists() != 1 {
			t.Errorf("pass %d: %s paths are unknown; %d lists of Nodes", i+1, got, lists())
		}
	}
}

// A pass takes over what the one before has found of paths about which nothing has changed, and after Options.Full
// everything is judged anew.
func TestPassesReuse(t *testing.T) {
	c := capture(t, "iptables", "node1")
	files := snap.Files(t, c.node)
	delete(files, snapshot.ConntrackFile) // which an agent does not read
	c.node = snapshot.NewNode(c.node.Name, files)
	a := c.agent(t)
	a.Full = 10 * time.Minute
	count := func(how string) int {
		n, err := strconv.Atoi(exposed(t, a.Handler())[judgingMetric+`{how="`+how+`"}`])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	look(t, a, 0)
	all := count("judged")
	if all == 0 || count("reused") != 0 {
		t.Fatalf("the first pass: %d anew, %d reused", all, count("reused"))
	}
	look(t, a, 60)
	reused := count("reused")
	if anew := count("judged") - all; reused <= all/3 || anew+reused != all {
		t.Errorf("the second pass: %d anew, %d reused, of %d", anew, reused, all)
	}
	look(t, a, 11*60+1)
	if more := count("reused") - reused; more != 0 {
		t.Errorf("after eleven minutes %d were reused", more)
	}
}
