// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// What is left over is named, and nothing is removed without a question; what may be somebody else's is not asked
// about.
func TestLeftOverIsNamedAndAskedAbout(t *testing.T) {
	ours := wire.Orphan{ID: "a", What: "nftables: table ip svcproxy-0123abcd"}
	foreign := wire.Orphan{
		ID: "b", What: "nftables: table ip svcproxy-metrics", Foreign: []string{"it has a set \x1b[31mx"},
	}
	for _, tt := range []struct {
		name        string
		found       *wire.Orphans
		foreign     bool
		code        int
		out, errOut string
	}{
		{"nothing", &wire.Orphans{}, false, run.ExitRight, "", ""},
		{"a node that was not looked at", nil, false, run.ExitRight, "", ""},
		{
			"ours", &wire.Orphans{Found: []wire.Orphan{ours}}, false, run.ExitUsage,
			"node/n1: without a record: nftables: table ip svcproxy-0123abcd\n",
			"error: cleanup asks before it removes rules without a record: give --yes where there is no terminal\n",
		},
		{
			"someone else's", &wire.Orphans{Found: []wire.Orphan{foreign}}, false, run.ExitWarning,
			"node/n1: without a record: nftables: table ip svcproxy-metrics; it may be someone else's: it has a set ?[31mx; " +
				"it stays (--foreign removes it)\n", "",
		},
		{
			"someone else's, which is asked for", &wire.Orphans{Found: []wire.Orphan{foreign}}, true, run.ExitUsage,
			"node/n1: without a record: nftables: table ip svcproxy-metrics; it may be someone else's: it has a set ?[31mx\n",
			"error: cleanup asks before it removes rules without a record: give --yes where there is no terminal\n",
		},
		{
			"what could not be looked at", &wire.Orphans{Unread: []string{"nft is not there"}}, false, run.ExitNotInspected, "",
			"error: node n1: nft is not there\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			streams, _, out, errOut := genericiooptions.NewTestIOStreams()
			l := leftOver{
				config: &cleanupConfig{foreign: tt.foreign}, nodes: []string{"n1"}, found: []*wire.Orphans{tt.found},
			}
			env := newEnvironment(streams, System{})
			code := exit(t.Context(), l.remove(t.Context(), env, nil), env.errOut)
			if code != tt.code || strings.ReplaceAll(out.String(), "\ufffd", "?") != tt.out || errOut.String() != tt.errOut {
				t.Errorf("got %d\n%q\n%q\nwant %d\n%q\n%q", code, out, errOut, tt.code, tt.out, tt.errOut)
			}
		})
	}
}

// What was removed is said, and what could not be is an error.
func TestRemovedIsSaid(t *testing.T) {
	said, err := removed("n1", &wire.Orphans{Found: []wire.Orphan{
		{What: "one", Removed: true}, {What: "two", Failed: "busy"}, {What: "three"},
	}}, nil)
	if !slices.Equal(said, []string{"node/n1: removed: one"}) || err == nil ||
		err.Error() != "node n1: could not remove two: busy" {
		t.Errorf("%q, %v", said, errors.Join(err))
	}
}

// What others change between the question and the removal stays, and that is said: nobody takes it for removed.
func TestChangedAfterTheQuestion(t *testing.T) {
	theirs := []string{"it has a set of theirs"}
	said, err := removed("n1", &wire.Orphans{Found: []wire.Orphan{
		{ID: "a", What: "one", Foreign: theirs}, {ID: "b", What: "two", Foreign: theirs},
	}}, []string{"a"})
	if len(said) > 0 || err == nil ||
		err.Error() != "node n1: one stays: others have changed it since it was listed: it has a set of theirs" {
		t.Errorf("%q, %v", said, err)
	}
}
