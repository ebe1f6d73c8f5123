// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// moving is a cluster and its node that change while they are read: each reading has its own state, all after the last
// have that of the last.
type moving struct {
	t      *testing.T
	base   *snapshot.Cluster
	states []state
	reads  atomic.Int32
	young  []*corev1.Pod // that are there when pods are listed again
}

// state is what one reading finds.
type state struct {
	version string                   // of the Service, as the API has it afterwards
	rules   func(save []byte) []byte // what happened to the node's rules
	err     error
}

// broken is a snapshot of one node with three faults in it.
const broken = "../../examples/broken-node"

func newMoving(t *testing.T, states []state) *moving {
	t.Helper()
	_, base := snap.Open(t, broken)
	for _, svc := range base.Services {
		svc.ResourceVersion = ""
	}
	return &moving{t: t, base: base, states: states}
}

func (m *moving) state() state { return m.states[min(int(m.reads.Load()), len(m.states))-1] }

func (m *moving) Objects(context.Context) (*snapshot.Cluster, error) { return m.base, nil }

func (m *moving) Pods(_ context.Context, objects *snapshot.Cluster, which cluster.Pods) error {
	for _, p := range slices.Concat(m.base.Pods, m.young) {
		if slices.Contains(which.Nodes, p.Spec.NodeName) {
			objects.Pods = append(objects.Pods, p)
		}
	}
	return nil
}

func (m *moving) Proxied(_ context.Context, objects *snapshot.Cluster) (*snapshot.Cluster, error) {
	c := *objects
	c.Services = nil
	for _, svc := range objects.Services {
		if svc.Namespace == "shop" && svc.Name == "frontend" {
			svc = svc.DeepCopy()
			svc.ResourceVersion = m.state().version
		}
		c.Services = append(c.Services, svc)
	}
	return &c, nil
}

func (m *moving) Known(*snapshot.Cluster) []string { return []string{"worker-1"} }
func (m *moving) Release(string)                   {}
func (m *moving) Close()                           {}

func (m *moving) Narrowed() error { return nil }

func (m *moving) Read(_ context.Context, node string, _ []string) (*snapshot.Node, error) {
	m.reads.Add(1)
	now := m.state()
	if now.err != nil {
		return nil, now.err
	}
	_, from := snap.Node(m.t, broken, node)
	files := snap.Files(m.t, from)
	if now.rules != nil {
		files["iptables-save.txt"] = now.rules(files["iptables-save.txt"])
	}
	return snapshot.NewNode(node, files), nil
}

// session is one that reads the cluster and its node.
func (m *moving) session() *Session {
	return &Session{
		index:  &objectIndex{},
		config: Config{Parallel: 1, Helper: launch.Options{Timeout: time.Minute}},
		source: m, nodes: m, Objects: m.base, live: true, Progress: NewProgress(terminal.NewStream(io.Discard, os.Getenv)),
	}
}

// frontendOfShop asks about the Service shop/frontend.
func frontendOfShop(string) Request {
	return Request{Services: []types.NamespacedName{{Namespace: "shop", Name: "frontend"}}, Matching: true, Steps: true}
}

// without removes the rules of a Service that hold a text.
func without(text string) func([]byte) []byte {
	return func(save []byte) []byte {
		var out [][]byte
		for _, line := range bytes.SplitAfter(save, []byte("\n")) {
			if !bytes.Contains(line, []byte("shop/frontend")) || !bytes.Contains(line, []byte(text)) {
				out = append(out, line)
			}
		}
		return bytes.Join(out, nil)
	}
}

func TestConfirm(t *testing.T) {
	const none = "-A KUBE-SERVICES"
	lost, other := without(none), without("10.244.1.18")
	for _, tt := range []struct {
		name   string
		states []state
		reads  int
		want   report.Verdict
		codes  string // of the findings of the first path that is wrong
	}{
		{name: "right at once", states: []state{{}}, reads: 1, want: report.Match},
		{
			name: "wrong, and so again", states: []state{{rules: lost}}, reads: 2, want: report.Mismatch,
			codes: "ServiceNotProgrammed",
		},
		{name: "wrong at first: a sync was in progress", states: []state{{rules: lost}, {}}, reads: 2, want: report.Match},
		{name: "the API changed meanwhile", states: []state{{version: "2"}, {version: "2"}}, reads: 2, want: report.Match},
		{
			name:   "the API changed, and the node then",
			states: []state{{version: "2", rules: lost}, {version: "2", rules: lost}, {version: "2", rules: lost}}, reads: 2,
			want: report.Mismatch, codes: "ServiceNotProgrammed",
		},
		{
			name:   "wrong at another rule each time",
			states: []state{{rules: lost}, {rules: other}, {rules: lost}, {rules: other}}, reads: 4,
			want: report.Unknown, codes: "Changing",
		},
		{
			name: "the API changes each time", states: []state{{version: "2"}, {version: "3"}, {version: "4"}, {version: "5"}},
			reads: 4,
			want:  report.Match,
		},
		{name: "the node cannot be read", states: []state{{err: errors.New("no route")}}, reads: 1, want: report.Unknown},
		{
			name: "the node is lost between two readings", states: []state{{rules: lost}, {err: errors.New("no route")}},
			reads: 2, want: report.Unknown,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMoving(t, tt.states)
				s := m.session()
				reports, err := s.Judge(t.Context(), Task{Nodes: []string{"worker-1"}, Request: frontendOfShop})
				if err != nil {
					t.Fatal(err)
				}
				if got := int(m.reads.Load()); got != tt.reads {
					t.Errorf("the node was read %d times, want %d", got, tt.reads)
				}
				if reports[0].Verdict != tt.want {
					t.Errorf("%s, want %s: %+v", reports[0].Verdict, tt.want, reports[0])
				}
				codes := ""
				for _, p := range reports[0].Paths {
					for _, f := range p.Findings {
						codes += f.Code + " "
					}
				}
				if !strings.Contains(codes, tt.codes) {
					t.Errorf("findings %s, want %s", codes, tt.codes)
				}
			})
		})
	}
}

// EndpointSlices are read again with each reading, and pods are not: one that is younger than the list of pods is not
// missed.
func TestAPodThatIsYoungerThanTheListOfPods(t *testing.T) {
	for _, made := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := newMoving(t, []state{{}})
			var missing []*corev1.Pod
			for _, s := range m.base.EndpointSlices {
				if s.Labels[discoveryv1.LabelServiceName] != "frontend" || len(missing) > 0 {
					continue
				}
				i := slices.IndexFunc(m.base.Pods, func(p *corev1.Pod) bool {
					return s.Endpoints[0].TargetRef != nil && p.Name == s.Endpoints[0].TargetRef.Name
				})
				missing = append(missing, m.base.Pods[i])
				m.base.Pods = slices.Delete(m.base.Pods, i, i+1)
			}
			want := report.Warning
			if made {
				m.young, want = missing, report.Match
			}
			got, err := m.session().Judge(t.Context(), Task{Nodes: []string{"worker-1"}, Request: frontendOfShop})
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Verdict != want || m.reads.Load() != 2 {
				t.Errorf("made %v: %s after %d readings, want %s after two", made, got[0].Verdict, m.reads.Load(), want)
			}
		})
	}
}

// A pod that is gone stands for the others no more when a node is read again, and what others judge by stays.
func TestPodsAreListedAgain(t *testing.T) {
	m := newMoving(t, []state{{}})
	old := *m.base
	gone := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gone"}, Spec: corev1.PodSpec{NodeName: "worker-1"},
	}
	elsewhere := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "elsewhere"}, Spec: corev1.PodSpec{NodeName: "worker-9"},
	}
	old.Pods = append(slices.Clone(m.base.Pods), gone, elsewhere)
	c := &confirmer{Session: m.session()}
	got := c.withPods(t.Context(), &old, []string{"worker-1"})
	if slices.Contains(got.Pods, gone) || !slices.Contains(got.Pods, elsewhere) || len(got.Pods) < 2 {
		t.Errorf("%d pods; the one that is gone is among them, or the other node's is not", len(got.Pods))
	}
	if !slices.Contains(old.Pods, gone) {
		t.Error("the objects of others were changed")
	}
	m.base.Pods = nil
	got = c.withPods(t.Context(), &snapshot.Cluster{Pods: []*corev1.Pod{gone}}, []string{"worker-1"})
	if len(got.Pods) != 1 {
		t.Errorf("nothing is listed any more, and %d pods remain", len(got.Pods))
	}
}

// probing is a moving cluster whose connections can be traced: for each round it is set whether a packet matched an
// unknown rule.
type probing struct {
	*moving
	strange []bool
	rounds  int
	asked   wire.ProbeParams // at last
}

func (p *probing) probe(_ context.Context, _ string, params wire.ProbeParams) ([]byte, error) {
	p.asked = params
	strange := p.strange[min(p.rounds, len(p.strange)-1)]
	p.rounds++
	var out snapshot.Probing
	for _, t := range params.Targets {
		probes := snapshot.Probes{ProbeTarget: t}
		if t.Trace && strange {
			probes.Traces = []snapshot.Trace{
				{
					Steps: []snapshot.TraceStep{
						{Family: "ip", Table: "nat", Chain: fmt.Sprint("ROUND-", p.rounds), Rule: 1, Verdict: "accept"},
					},
				},
			}
		}
		out.Targets = append(out.Targets, probes)
	}
	return json.Marshal(out)
}

// kube-proxy may write rules between the connections and the reading of the rules that they matched: only what occurs
// twice is reported.
func TestObservedTwice(t *testing.T) {
	for _, tt := range []struct {
		name    string
		strange []bool
		rounds  int
		want    report.Verdict
	}{
		{"nothing strange", []bool{false}, 1, report.Match},
		{"a sync came between", []bool{true, false}, 2, report.Match},
		{"and again", []bool{true, true}, 2, report.Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probing{moving: newMoving(t, []state{{}}), strange: tt.strange}
				s := p.session()
				s.probe = p.probe
				reports, err := s.Judge(t.Context(), Task{Nodes: []string{"worker-1"}, Request: frontendOfShop, Probes: 5})
				if err != nil {
					t.Fatal(err)
				}
				if p.rounds != tt.rounds || reports[0].Verdict != tt.want {
					t.Errorf("%s after %d rounds, want %s after %d: %+v", reports[0].Verdict, p.rounds, tt.want, tt.rounds, reports[0])
				}
			})
		})
	}
}

// Of the pods that connections are made from the helper is told what it finds them by, and of no others.
func TestAPodOfProbesIsNamed(t *testing.T) {
	p := &probing{moving: newMoving(t, []state{{}}), strange: []bool{false}}
	c := &confirmer{Session: p.session()}
	c.Objects, c.probe = p.base, p.probe
	i := slices.IndexFunc(p.base.Pods, func(x *corev1.Pod) bool {
		return x.Spec.NodeName == "worker-1" && !x.Spec.HostNetwork
	})
	if i < 0 {
		t.Fatal("the node has no pod")
	}
	pod := p.base.Pods[i].DeepCopy()
	pod.UID = "0a1b2c3d-0000-4000-8000-000000000001"
	p.base.Pods[i] = pod
	if _, err := c.connect(t.Context(), "worker-1", []snapshot.ProbeTarget{
		{Protocol: "TCP", From: cluster.PodIPs(pod)[0]}, {Protocol: "TCP"},
	}); err != nil {
		t.Fatal(err)
	}
	if got := p.asked.Pods; len(p.asked.Targets) != 2 || len(got) != 1 || got[0].UIDs[0] != string(pod.UID) ||
		!slices.Equal(got[0].Addresses, cluster.PodIPs(pod)) {
		t.Errorf("%+v", p.asked)
	}
}

// Each request gets a list that was begun after it; those that wait for the same list share it.
func TestListsAreSharedButNeverOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &counting{hold: make(chan struct{})}
		s := &Session{source: src, Objects: &snapshot.Cluster{}}
		var l objectLists
		var mu sync.Mutex
		got := map[string]int{}
		var wg sync.WaitGroup
		ask := func(n int) {
			for range n {
				wg.Go(func() {
					c, err := l.get(t.Context(), s)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					got[c.Missing[0]]++
					mu.Unlock()
				})
			}
		}
		ask(1)
		synctest.Wait() // the first list is under way
		ask(5)
		synctest.Wait()
		close(src.hold)
		wg.Wait()
		if got["1"] != 1 || got["2"] != 5 || len(got) != 2 {
			t.Errorf("answers by list: %v, want one of the first and five of the second", got)
		}
	})
}

type counting struct {
	cluster.Source
	hold chan struct{}
	n    atomic.Int32
}

func (c *counting) Proxied(context.Context, *snapshot.Cluster) (*snapshot.Cluster, error) {
	n := c.n.Add(1)
	<-c.hold
	return &snapshot.Cluster{Missing: []string{strconv.Itoa(int(n))}}, nil
}
