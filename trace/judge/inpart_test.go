// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// partAlways are the Services that every fault's test asks about; of the others it takes one in partEvery.
var partAlways = map[string]bool{"shop/ep3": true, "shop/affinity": true, "shop/np": true, "shop/lb-ranges": true}

const partEvery = 7

// leaveOut takes the rules of other Services out of a state, as a collector does that is asked for some. restore puts
// them back.
func leaveOut(s *nodestate.State, services []types.NamespacedName) (restore func()) {
	var undo []func()
	for _, t := range s.Rules.Tables {
		if t.Backend != netfilter.BackendNative || t.Name != kubeproxy.NFTTable {
			continue
		}
		for _, c := range t.Chains {
			if c.Base != nil || !kubeproxy.NFTOfOthers(c.Name, services) {
				continue
			}
			rules := c.Rules
			undo = append(undo, func() { c.Rules, c.Unread, t.InPart = rules, "", false })
			c.Rules, c.Unread, t.InPart = nil, "not requested", true
		}
	}
	s.Rules.Link()
	return func() {
		for _, f := range undo {
			f()
		}
		s.Rules.Link()
	}
}

// TestEveryFaultIsTheSameInAPart: with every fault of nftables mode, the report on a Service is the same where the
// rules of other Services were left out, or it says that these decide.
func TestEveryFaultIsTheSameInAPart(t *testing.T) {
	same, asked, wrong := 0, 0, 0
	for at, f := range nftFaults() {
		w := openCaptured(t, "nftables")
		if f.base != "" {
			w = openCaptured(t, f.base)
		}
		f.do(w)
		files := snapshot.NewNode("node1", w.files)
		state, err := nodestate.Load(files)
		if err != nil {
			continue // what cannot be read is no part of anything
		}
		objects := NewCluster(w.cluster)
		for i, svc := range w.cluster.Services {
			name := svc.Namespace + "/" + svc.Name
			if !partAlways[name] && (i+at)%partEvery != 0 {
				continue
			}
			request := Request{
				Services: []types.NamespacedName{{Namespace: svc.Namespace, Name: svc.Name}}, Matching: true, Steps: true,
			}
			want := Node(objects, state, request)
			restore := leaveOut(state, request.Services)
			got := Node(objects, state, request)
			restore()
			if got.Whole != "" {
				asked++
				continue
			}
			same++
			if want.Verdict == report.Mismatch {
				wrong++
			}
			if a, b := withoutDuplicates(t, want), withoutDuplicates(t, got); a != b {
				t.Errorf("%s, %s: of the whole\n%s\nof a part\n%s", f.name, name, a, b)
			}
		}
	}
	t.Logf("%d reports are the same, %d of them of something wrong; %d need the whole", same, wrong, asked)
	if wrong == 0 || asked > same/4 {
		t.Errorf("%d of %d reports need the whole, %d are of something wrong", asked, same+asked, wrong)
	}
}

// withoutDuplicates is a report without its coverage, and without the finding that is about the rules of all Services.
func withoutDuplicates(t *testing.T, r report.NodeReport) string {
	t.Helper()
	r.Coverage = nil
	findings := []report.Finding{}
	duplicates := false
	for _, f := range r.Findings {
		if f.Code == DuplicateRules {
			duplicates = true
			continue
		}
		findings = append(findings, f)
	}
	r.Findings = findings
	if duplicates {
		r.Verdict = ""
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What the rules of all Services tell is not told by a part of them.
func TestAPartDoesNotTellTheConfiguration(t *testing.T) {
	for name, drop := range map[string][]string{
		"the configuration is not known": {
			snapshot.ConfigzFile, snapshot.ProxyConfigFile, snapshot.FlagsFile, snapshot.ProxyModeFile,
		},
		"the version is not known": {snapshot.MetricsFile, snapshot.VersionsFile},
	} {
		w := openCaptured(t, "nftables")
		for _, file := range drop {
			delete(w.files, file)
		}
		w.cluster.Pods = nil // kube-proxy's pod, whose image has the version
		state, err := nodestate.Load(snapshot.NewNode("node1", w.files))
		if err != nil {
			t.Fatal(err)
		}
		request := Request{Services: []types.NamespacedName{{Namespace: "shop", Name: "ep3"}}, Matching: true}
		leaveOut(state, request.Services)
		got := Node(NewCluster(w.cluster), state, request)
		if got.Whole == "" || got.Verdict != report.Unknown || len(got.Paths) > 0 || !strings.Contains(got.Error, got.Whole) {
			t.Errorf("%s: %q, %s, %d paths, %s", name, got.Whole, got.Verdict, len(got.Paths), got.Error)
		}
	}
}
