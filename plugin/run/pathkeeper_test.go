// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// fakeHelper answers as the helper of the broken node would, and programs nothing.
type fakeHelper struct {
	files map[string][]byte
	// collecting is called for each reading of the node, before it continues; it may be nil.
	collecting func()

	mu    sync.Mutex
	plans []*plan.Plan
	calls []string // "collect", "program", and "undo" with what is undone
}

func (h *fakeHelper) called(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

func (h *fakeHelper) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func (h *fakeHelper) collect(_ context.Context, _ json.RawMessage, a *wire.Answer) error {
	h.called("collect")
	if h.collecting != nil {
		h.collecting()
	}
	for name, data := range h.files {
		if err := a.File(wire.File{Name: name, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

func (h *fakeHelper) program(_ context.Context, params json.RawMessage, a *wire.Answer) error {
	var p wire.ProgramParams
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	var got plan.Plan
	if err := json.Unmarshal(p.Plan, &got); err != nil {
		return err
	}
	if err := errors.Join(got.Check(), p.Check()); err != nil {
		return err
	}
	h.called("program")
	h.mu.Lock()
	h.plans = append(h.plans, &got)
	h.mu.Unlock()
	return answer(a, wire.ProgramResult{What: wire.Programmed, Plan: got.Name, Mode: p.Mode})
}

func (h *fakeHelper) undo(_ context.Context, params json.RawMessage, a *wire.Answer) error {
	var p wire.UndoParams
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	h.called("undo " + p.Which)
	return answer(a, []wire.Undone{})
}

func answer(a *wire.Answer, what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return a.File(wire.File{Name: wire.ProgramFile, Data: data})
}

func (h *fakeHelper) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s, err := wire.NewServer(in, out, "test")
	if err != nil {
		return err
	}
	return s.Serve(ctx, map[string]wire.Handler{
		wire.MethodCollect: h.collect, wire.MethodProgram: h.program, wire.MethodUndo: h.undo,
	})
}

// scaledDown is a cluster that loses an endpoint of shop/frontend after it was read first.
type scaledDown struct {
	cluster.Source
}

func (scaledDown) Proxied(_ context.Context, objects *snapshot.Cluster) (*snapshot.Cluster, error) {
	c := *objects
	c.EndpointSlices = slices.Clone(c.EndpointSlices)
	for i, s := range c.EndpointSlices {
		if s.Namespace == "shop" && s.Labels["kubernetes.io/service-name"] == "frontend" && len(s.Endpoints) > 1 {
			c.EndpointSlices[i] = s.DeepCopy()
			c.EndpointSlices[i].Endpoints = c.EndpointSlices[i].Endpoints[1:]
		}
	}
	return &c, nil
}

// keepFrontend plans shop/frontend on the broken node, where that Service is right.
func keepFrontend(t *testing.T, h *fakeHelper, source func(cluster.Source) cluster.Source) *PathKeeper {
	t.Helper()
	capture, objects := snap.Open(t, broken)
	node, err := capture.Node("worker-1")
	if err != nil {
		t.Fatal(err)
	}
	h.files = snap.Files(t, node)
	svc := objects.Services[slices.IndexFunc(objects.Services, func(s *corev1.Service) bool {
		return s.Namespace == "shop" && s.Name == "frontend"
	})]
	reader := &localReader{options: launch.Options{Build: "test", Timeout: time.Minute}, serve: h.serve}
	s := (&moving{base: objects}).session()
	s.source, s.client = source(cluster.FromSnapshot(capture)), fake.NewClientset(svc)
	s.nodes, s.helper = reader, reader.helper
	k, err := s.KeepPath(t.Context(), PathConfig{
		Target: cluster.Target{Service: svc}, Node: "worker-1", TTL: time.Hour, Attached: true, By: "the tests",
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestPathKeeper(t *testing.T) {
	h := &fakeHelper{}
	k := keepFrontend(t, h, func(s cluster.Source) cluster.Source { return s })
	if _, err := k.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(h.plans) != 1 || !h.plans[0].Equal(k.plan) || len(k.plan.Frontends) == 0 {
		t.Errorf("the helper got %+v, want %+v", h.plans, k.plan)
	}
	if k.How() != "iptables mode (nft)" {
		t.Errorf("it is programmed in %s", k.How())
	}
	got, err := k.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !k.Right(got) || got.Verdict != report.Match || got.Summary.Paths == 0 {
		t.Errorf("got %s of %d paths, want a match", got.Verdict, got.Summary.Paths)
	}
	if err := k.TakeAway(t.Context()); err != nil {
		t.Error(err)
	}
	k.Close()
	if want := []string{"collect", "program", "collect", "undo mine"}; !slices.Equal(h.all(), want) {
		t.Errorf("the helper was asked for %v, want %v", h.all(), want)
	}
}

// After an interrupt of --follow during an update of the path, it is removed in order: the interrupt must not close the
// connection that undoing needs.
func TestFollowIsInterruptedWhileItReads(t *testing.T) {
	h := &fakeHelper{}
	k := keepFrontend(t, h, func(s cluster.Source) cluster.Source { return scaledDown{s} })
	defer k.Close()
	if _, err := k.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	h.collecting = func() {
		interrupt()
		time.Sleep(50 * time.Millisecond) // for the interrupt to come through
	}
	if err := k.Keep(ctx, time.Now().Add(time.Hour), true); err != nil {
		t.Errorf("it was not taken away: %v", err)
	}
	want := []string{"collect", "program", "program", "collect", "undo mine"}
	if !slices.Equal(h.all(), want) {
		t.Errorf("the helper was asked for %v, want %v", h.all(), want)
	}
}

// With a proxy, connections tell what the rules do not: one that was refused is never right, and one of UDP that was
// not answered may be.
func TestRightWithAProxy(t *testing.T) {
	k := &PathKeeper{options: wire.ProgramOptions{Mode: wire.Userspace}}
	for _, tt := range []struct {
		protocol  string
		connected int
		result    report.Result
		want      bool
	}{
		{"TCP", 3, "", true},
		{"TCP", 2, report.ResultTimedOut, false},
		{"UDP", 2, report.ResultRefused, false},
		{"UDP", 2, report.ResultNotAnswered, true},
		{"UDP", 2, report.ResultTimedOut, true},
	} {
		o := &report.Observed{Probes: 3, Connected: tt.connected}
		if tt.result != "" {
			o.Events = []report.Event{{Result: tt.result, Count: 1}}
		}
		r := &report.Report{Verdict: report.Unknown, Nodes: []report.NodeReport{{Paths: []report.Path{{
			Frontend: report.Frontend{Protocol: tt.protocol}, Observed: o,
			Findings: []report.Finding{{Code: codeProgrammed}},
		}}}}}
		if got := k.Right(r); got != tt.want {
			t.Errorf("%s, %d of 3 connected, %v: %v", tt.protocol, tt.connected, o.Events, got)
		}
	}
}

// Where neither kube-proxy nor rules of it tell the mode, a path is programmed in the node's configured one; without
// any, in kube-proxy's default.
func TestModeWhereNothingElseDecides(t *testing.T) {
	config := func(mode string) string {
		return "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: " + mode + "\n"
	}
	for _, tt := range []struct {
		name, config, reported string
		rules                  bool
		want                   string
	}{
		{"configured nftables", config("nftables"), "", false, wire.NFTables},
		{"configured ipvs", config("ipvs"), "", false, wire.IPVS},
		{"configured iptables", config("iptables"), "", false, wire.IPTables},
		{"a configuration that leaves it open", config(`""`), "", false, wire.IPTables},
		{"no configuration", "", "", false, wire.IPTables},
		{"rules of another mode", config("nftables"), "", true, wire.IPTables},
		{"kube-proxy says another one", config("ipvs"), "nftables", true, wire.NFTables},
	} {
		t.Run(tt.name, func(t *testing.T) {
			capture, objects := snap.Open(t, broken)
			node, err := capture.Node("worker-1")
			if err != nil {
				t.Fatal(err)
			}
			files := map[string][]byte{snapshot.UnreadFile: snapshot.EncodeUnread(map[string]string{})}
			for _, name := range []string{
				snapshot.AddrFile, snapshot.SysctlFile, snapshot.IPTablesFile, snapshot.IP6TablesFile, snapshot.NFTFile,
			} {
				if files[name], _, err = node.File(name); err != nil {
					t.Fatal(err)
				}
			}
			if !tt.rules {
				files[snapshot.IPTablesFile] = []byte("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")
				files[snapshot.IP6TablesFile] = []byte("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")
				files[snapshot.NFTFile] = []byte(`{"nftables":[]}`)
			}
			if tt.config != "" {
				files[snapshot.ProxyConfigFile] = []byte(tt.config)
			}
			if tt.reported != "" {
				files[snapshot.ProxyModeFile] = []byte(tt.reported)
			}
			at := slices.IndexFunc(objects.Services, func(s *corev1.Service) bool { return s.Name == "frontend" })
			svc := objects.Services[at]
			_, _, mode, err := planPaths(snapshot.NewNode("worker-1", files), objects, plan.Request{
				Services: []*corev1.Service{svc},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := modeOf(&mode); got != tt.want {
				t.Errorf("%s, want %s (%+v)", got, tt.want, mode)
			}
		})
	}
}
