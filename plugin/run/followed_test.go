// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The client's node is told to follow connections before they are made, with the Service's frontend and its endpoints
// and with the client's pod alone of those that are read; and asked about them, and no others, afterwards. A node that
// cannot is named once.
func TestFollowings(t *testing.T) {
	capture, objects := snap.Open(t, "../../testdata/endtoend/vxlan.tar.gz")
	files, err := snapshotReader{capture}.Read(t.Context(), "node3", nil)
	if err != nil {
		t.Fatal(err)
	}
	state, err := nodestate.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	const pod = "shop/web-76bbf6d6cc-m4dxw"
	e := &Ends{
		Clients: []string{"node3"}, Pod: pod, named: pod, of: types.NamespacedName{Namespace: "shop", Name: "web"}, all: true,
		pods: map[string][]wirePod{},
	}
	e.pods["node3"] = append(podsOf(objects, "node3", named(map[string]bool{pod: true})), wirePod{name: "kube-system/dns"})
	var said strings.Builder
	s := &Session{
		Objects: objects, index: &objectIndex{},
		Progress: NewProgress(terminal.NewStream(&said, func(string) string { return "" })),
	}
	var began wire.FollowParams
	var asked wire.FollowedParams
	follow := answering(wire.MethodFollow, snapshot.FollowedFile, func(p wire.FollowParams) any {
		began = p
		return nil
	})
	followed := answering(wire.MethodFollowed, snapshot.FollowedFile, func(p wire.FollowedParams) any {
		asked = p
		return snapshot.Followed{Sights: []snapshot.Sight{{How: snapshot.SightIn, Interface: "eth0", Count: 1}}}
	})
	s.helper = follow
	ends := e.judged("node3", map[string]*judge.Visited{"node3": {State: state, Files: files}, "node1": {}})
	f := s.followingsOf(ends, e)
	from := netip.MustParseAddr("10.245.2.2")
	frontend, endpoint := netip.MustParseAddrPort("10.97.166.150:80"), netip.MustParseAddrPort("10.245.2.2:8080")
	targets := []snapshot.ProbeTarget{
		{Protocol: "TCP", To: frontend, From: from, Probes: 1, Trace: true},
		{Protocol: "TCP", To: endpoint, From: from, Probes: 1},
	}
	end := f.begin(t.Context(), targets)
	if len(began.Servers) != 2 || !slices.Contains(began.Clients, from) || len(began.Pods) != 1 ||
		len(began.Pods[pod].UIDs) == 0 || began.Rules {
		t.Errorf("%+v", began)
	}
	s.helper = followed
	local := netip.AddrPortFrom(from, 40000)
	end(&snapshot.Probing{Targets: []snapshot.Probes{{
		ProbeTarget: targets[0],
		List:        []snapshot.Probe{{Result: snapshot.ProbeTimeout, Local: local, Endpoint: endpoint}},
	}}})
	if len(asked.Flows) != 1 || !slices.Equal(asked.Flows[0].Clients, []netip.AddrPort{local}) ||
		!slices.Equal(asked.Flows[0].Servers, []netip.AddrPort{frontend, endpoint}) {
		t.Errorf("%+v", asked)
	}
	if len(ends.Followed) != 1 || len(ends.Followed[0].Nodes["node3"].Sights) != 1 || said.Len() > 0 {
		t.Errorf("%+v %s", ends.Followed, said.String())
	}
	s.helper = func(context.Context, string) (*launch.Helper, error) { return nil, errors.New("no BPF here") }
	for range 2 {
		f.begin(t.Context(), targets)(&snapshot.Probing{})
	}
	if strings.Count(said.String(), "no BPF here") != 1 {
		t.Error(said.String())
	}
}
