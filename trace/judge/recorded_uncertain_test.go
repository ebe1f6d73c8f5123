// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// edits change files of a node, by name.
type edits map[string]func(string) string

// and makes the changes of both.
func (e edits) and(more edits) edits {
	out := edits{}
	for _, list := range []edits{e, more} {
		for name, do := range list {
			first := out[name]
			out[name] = func(s string) string {
				if first != nil {
					s = first(s)
				}
				return do(s)
			}
		}
	}
	return out
}

// opaqueRules stop nothing, and whether they match is not known: the branches differ in the connection's mark.
func opaqueRules() edits {
	do := func(s string) string {
		const rule = "-m limit --limit 5/sec -j CONNMARK --set-xmark 0x100/0x100\n"
		return strings.Replace(s, "COMMIT", "[0:0] -A PREROUTING "+rule+"[0:0] -A OUTPUT "+rule+"COMMIT", 1)
	}
	return edits{snapshot.IPTablesNFTFile: do, snapshot.IP6TablesNFTFile: do}
}

// byGateway is what a route to the pods of another node goes by.
var byGateway = regexp.MustCompile(`"gateway":"[^"]*","dev":"eth0"`)

// severalHops give the routes to the pods of other nodes another next hop: the kernel chooses by the addresses.
func severalHops() edits {
	do := func(gateway string) func(string) string {
		return func(s string) string {
			var out strings.Builder
			for line := range strings.Lines(s) {
				if !strings.Contains(line, `"dst":"default"`) {
					line = byGateway.ReplaceAllString(line,
						`"nexthops":[{$0,"weight":1,"flags":[]},{"gateway":"`+gateway+`","dev":"eth0","weight":1,"flags":[]}]`)
				}
				out.WriteString(line)
			}
			return out.String() + "\n" // a fault may have left no such route
		}
	}
	return edits{snapshot.RouteFile: do("10.79.0.1"), snapshot.Route6File: do("fd00:79::1")}
}

// complications leave open which branch a packet takes, and change nothing for a connection.
var complications = map[string]edits{
	"a rule that cannot be evaluated": opaqueRules(),
	"several next hops":               severalHops(),
	"both":                            opaqueRules().and(severalHops()),
}

// TestUncertainBranchesHideNoFault: a recorded fault that is a mismatch is no match where, besides, it is not known
// which branch packets take.
func TestUncertainBranchesHideNoFault(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recordedFaults, "*", "*.fault"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fault is recorded: %v", err)
	}
	for _, file := range files {
		if _, r := reportRecorded(t, file, nil); r.Paths[0].Verdict != report.Mismatch {
			continue
		}
		for name, c := range complications {
			_, r := reportRecorded(t, file, c)
			if v := r.Paths[0].Verdict; v != report.Mismatch && v != report.Unknown {
				t.Errorf("%s, with %s: %s %+v", filepath.Base(file), name, v, r.Paths[0].Findings)
			}
		}
	}
}

// settingTo sets kernel settings of the recorded node: KEY=VALUE; KEY alone is taken out.
func settingTo(lines ...string) edits {
	return edits{snapshot.SysctlFile: func(s string) string {
		for _, line := range lines {
			key, _, set := strings.Cut(line, "=")
			var out strings.Builder
			for l := range strings.Lines(s) {
				if !strings.HasPrefix(l, key+"=") {
					out.WriteString(l)
				}
			}
			if s = out.String(); set {
				s += line + "\n"
			}
		}
		return s
	}}
}

// replaced replaces a text in a file.
func replaced(file, old, repl string) edits {
	return edits{file: func(s string) string { return strings.ReplaceAll(s, old, repl) }}
}

// healthyAs judges the healthy node, with changes, as a fault of these origins and frontends would be.
func healthyAs(t *testing.T, from, frontend string, do edits) *report.NodeReport {
	t.Helper()
	f := &faultdata.Fault{Node: "node1", Service: "faults", From: from, Frontend: frontend}
	return judgeFault(t, filepath.Join(recordedFaults, "iptables-neighbours", "healthy"), f, do)
}
