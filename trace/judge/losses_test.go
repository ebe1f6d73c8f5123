// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A frame that a bridge had flooded was discarded in the pods that it was not for: the report named that as the cause
// beside what had really happened.
func TestCopiesOfFloodedFramesAreNoCause(t *testing.T) {
	copied := snapshot.Drop{Reason: reasonOtherHost, InPod: true}
	reasons := func(trace *snapshot.Trace) (out []string) {
		for _, l := range lostOf(trace) {
			out = append(out, l.Packet+" "+l.Reason+l.Next)
		}
		return out
	}
	for name, tt := range map[string]struct {
		trace snapshot.Trace
		want  []string
	}{
		"nothing else is known": {snapshot.Trace{Drops: []snapshot.Drop{copied}}, []string{"request OTHERHOST"}},
		"another reason": {
			snapshot.Trace{Drops: []snapshot.Drop{copied, {Reason: "NEIGH_FAILED"}}}, []string{"request NEIGH_FAILED"},
		},
		"a rule drops it": {
			snapshot.Trace{
				Steps: []snapshot.TraceStep{{Family: "ip", Table: "filter", Chain: "FORWARD", Verdict: "drop"}},
				Drops: []snapshot.Drop{copied},
			}, []string{"request "},
		},
		"it was answered": {
			snapshot.Trace{
				Drops:       []snapshot.Drop{copied},
				AnswerHooks: []snapshot.TraceHook{{Hook: "prerouting", Passed: true}},
			}, []string{"answer input or forward"},
		},
	} {
		if got := reasons(&tt.trace); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
