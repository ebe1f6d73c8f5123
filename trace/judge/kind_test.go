// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What a finding means for connections is that of its kind and what happens; "" leaves it to the code.
func TestEffects(t *testing.T) {
	for _, tt := range []struct{ code, actual, want string }{
		{WrongMasquerade, notMasqueraded, "not masqueraded"},
		{WrongMasquerade, masqueraded, "masqueraded"},
		{WrongMasquerade, "", ""},
		{NotProgrammed, notMasqueraded, "not masqueraded"},
		{NotProgrammed, "none", ""},
		{IPVSConntrackOff, "0", "not masqueraded"},
		{AffinityMissing, "none", "no session affinity"},
		{AffinityUnexpected, "ClientIP", "session affinity"},
		{AffinityTimeout, "300s", "session affinity for 300s"},
		{AffinityTimeout, "", ""},
		{PersistenceMismatch, notPersistent, "no session affinity"},
		{PersistenceMismatch, "ClientIP for 300s", "session affinity: ClientIP for 300s"},
		{SchedulerMismatch, "rr", "scheduler rr"},
		{ForwardMethod, "Tunnel", "forward method Tunnel"},
		{ProxyNotListening, "nothing does", "nothing listens"},
		{EndpointRefused, "7 of 20 refused", "7 of 20 refused"},
		{EndpointTimeout, "", ""},
		{EndpointReachableDirectly, "7 of 20 refused", "7 of 20 refused"},
		{IPSetMissing, "none", ""},
	} {
		f := (&node{State: &nodestate.State{}, cluster: &Cluster{}}).finding(issue{code: tt.code, actual: tt.actual})
		if f.Effect != tt.want {
			t.Errorf("%s (%q): %q, want %q", tt.code, tt.actual, f.Effect, tt.want)
		}
	}
}

// A piece of evidence that says nothing is left out.
func TestFindingEvidence(t *testing.T) {
	n := &node{State: &nodestate.State{}, cluster: &Cluster{}}
	f := n.finding(issue{code: Dropped, evidence: []report.Evidence{{}, {Text: "a"}, {}}})
	if len(f.Evidence) != 1 || f.Evidence[0].Text != "a" {
		t.Errorf("%q", f.Evidence)
	}
}
