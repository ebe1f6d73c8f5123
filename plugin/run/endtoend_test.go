// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The helper of the client's node is told to ask, from the client's pod, what the pod's resolver would; what it answers
// is judged.
func TestAskNames(t *testing.T) {
	capture, objects := snap.Open(t, "../../testdata/endtoend/vxlan.tar.gz")
	files, err := snapshotReader{capture}.Read(t.Context(), "node3", nil)
	if err != nil {
		t.Fatal(err)
	}
	state, err := nodestate.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	e := &Ends{
		Clients: []string{"node3"}, Pod: "shop/web-76bbf6d6cc-m4dxw", named: "shop/web-76bbf6d6cc-m4dxw",
		of: types.NamespacedName{Namespace: "shop", Name: "web"}, all: true, pods: map[string][]wirePod{},
	}
	e.pods["node3"] = podsOf(objects, "node3", named(map[string]bool{e.Pod: true}))
	var asked wire.NamesParams
	s := &Session{Objects: objects, index: &objectIndex{}}
	s.helper = answering(wire.MethodNames, snapshot.NamesFile, func(params wire.NamesParams) any {
		asked = params
		var answers snapshot.NameAnswers
		for _, q := range asked.Questions {
			answers.List = append(answers.List, snapshot.NameAnswer{
				NameQuestion: q, Code: "NOERROR", Addresses: []netip.Addr{netip.MustParseAddr("10.97.166.150")},
			})
		}
		return answers
	})
	ends := e.judged("node3", map[string]*judge.Visited{"node3": {State: state, Files: files}})
	if err := s.askNames(t.Context(), ends, objects, e); err != nil {
		t.Fatal(err)
	}
	server := netip.MustParseAddrPort("127.0.0.1:53")
	want := []snapshot.NameQuestion{
		{Server: server, Name: "web.shop.svc.cluster.local", Type: "A"},
		{Server: server, Name: "web.shop.svc.cluster.local", Type: "A", TCP: true},
	}
	if !slices.Equal(asked.Questions, want) || len(asked.Pod.Addresses) == 0 ||
		asked.Pod.Addresses[0] != netip.MustParseAddr("10.245.2.2") {
		t.Errorf("%+v", asked)
	}
	got := s.followed(ends, objects, Request{
		Services: []types.NamespacedName{e.of}, From: &RequestOrigin{Kind: "pod", Pod: e.Pod}, Matching: true,
	}, nil)
	names := 0
	for i := range got.Paths {
		for _, x := range got.Paths[i].Segments {
			if x.Segment != report.SegmentName {
				continue
			}
			names++
			if x.Verdict != report.SegmentRight || x.Command != "" ||
				x.Message != "web.shop.svc.cluster.local is 10.97.166.150, as 127.0.0.1 answers" {
				t.Errorf("%+v", x)
			}
		}
	}
	if names == 0 {
		t.Error("no path has the name")
	}
}

// The helper of the node that connections from outside come in to is told to ask the health-check port of the Service
// at the node's own address; what it answers is judged.
func TestAskHealth(t *testing.T) {
	capture, objects := snap.Open(t, "../../testdata/endtoend/outside.tar.gz")
	files, err := snapshotReader{capture}.Read(t.Context(), "node1", nil)
	if err != nil {
		t.Fatal(err)
	}
	state, err := nodestate.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	e := &Ends{
		Clients: []string{"node1"}, outside: true, of: types.NamespacedName{Namespace: "shop", Name: "lb"}, all: true,
	}
	var asked wire.HealthParams
	s := &Session{
		Objects: objects, index: &objectIndex{}, Progress: NewProgress(terminal.NewStream(io.Discard, os.Getenv)),
	}
	s.helper = answering(wire.MethodHealth, snapshot.HealthFile, func(params wire.HealthParams) any {
		asked = params
		var answers snapshot.HealthAnswers
		for _, at := range asked.Ports {
			answers.List = append(answers.List, snapshot.HealthAnswer{At: at, Code: 503, KubeProxy: true, Service: "shop/lb"})
		}
		return answers
	})
	ends := e.judged("node1", map[string]*judge.Visited{"node1": {State: state, Files: files}})
	s.askEnds(t.Context(), ends, objects, e)
	k := slices.IndexFunc(objects.Services, func(svc *corev1.Service) bool { return svc.Name == "lb" })
	want := netip.AddrPortFrom(netip.MustParseAddr("10.79.0.11"),
		uint16(objects.Services[k].Spec.HealthCheckNodePort))
	if !slices.Contains(asked.Ports, want) || len(ends.Health.List) != len(asked.Ports) {
		t.Fatalf("%v, want %s", asked.Ports, want)
	}
	got := s.followed(ends, objects, Request{
		Services: []types.NamespacedName{e.of}, Matching: true, From: &RequestOrigin{
			Kind: expect.FromExternal, Address: netip.MustParseAddr("10.79.0.1"),
		},
	}, nil)
	found := 0
	for i := range got.Paths {
		for _, f := range got.Paths[i].Findings {
			if f.Code == judge.HealthCheckAnswer && f.Severity == report.Warn {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("%d findings: %+v", found, got.Paths)
	}
}

// answering makes helpers that answer requests of one method, with a file of JSON.
func answering[P any](method, file string, answer func(P) any) func(context.Context, string) (*launch.Helper, error) {
	handler := func(_ context.Context, params json.RawMessage, a *wire.Answer) error {
		var p P
		if err := json.Unmarshal(params, &p); err != nil {
			return err
		}
		data, err := json.Marshal(answer(p))
		if err != nil {
			return err
		}
		return a.File(wire.File{Name: file, Data: data})
	}
	return func(ctx context.Context, node string) (*launch.Helper, error) {
		return launch.Local(ctx, node, launch.Options{}, func(ctx context.Context, in io.Reader, out io.Writer) error {
			server, err := wire.NewServer(in, out, "test")
			if err != nil {
				return err
			}
			return server.Serve(ctx, map[string]wire.Handler{method: handler})
		})
	}
}
