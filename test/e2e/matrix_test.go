// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The fault matrix: faults that are made for real on a node, which connections fail because of them, and what trace has
// to say of it. What fails is measured each time, never assumed.
//
// CI makes a few of them, each on one node; SVCPROXY_FAULTS=all makes all on every node, each of which runs kube-proxy
// in a mode of its own. SVCPROXY_FAULTS_RESULTS=FILE has a line written for each. SVCPROXY_FAULTS_RECORD=DIR (an
// absolute path of testdata/faults) has each kept as a file there, with the node as it is without a fault: trace/judge
// judges these without a cluster. SVCPROXY_FAULTS_LIVE=no leaves trace --live out, to record in a third of the time.

// effect is how many of the connections of an origin to a Service fail.
type effect string

const (
	none effect = "none" // a trap: it looks like a fault
	some effect = "some" // at least one: mostly those to one of three endpoints
	all  effect = "all"
)

// matrixFault is one entry of the matrix. Its scripts run in bash on the node, with the functions of prelude and the
// variables of scene.
type matrixFault struct {
	name string
	// make makes the fault; it runs a second time to undo it, when the functions of prelude do the opposite.
	make string
	// more and undo are for what those functions cannot: more runs after make, undo before make is undone.
	more, undo string
	// hold makes a fault that lasts until it is taken back, in place of make.
	hold func(s *scene) (release func(), err error)

	forget bool // the origin's network namespace forgets its neighbours when the fault is there

	from    string // pod (the default), node, endpoint (its own Service from an endpoint on the node), outside
	service string // matrixService by default
	v6      bool
	size    int // of what UDP sends
	// loopback: to the NodePort at 127.0.0.1; health: to the health-check port, which is asked for /healthz.
	loopback, health bool
	payload          bool // trace --live has to send something

	fails effect
	// named is a regular expression, (?i), for what the findings of the path or of the node must say: the object at
	// fault, or what is missing to tell. live is the same for trace --live; named by default.
	named, live string
	unknownToo  bool // nothing fails, and Unknown is right, too
	varies      bool // what fails depends on what others know at the moment, or on the mode of another node
	beyond      bool // what is at fault is not on this node: its files need not show anything
	aside       bool // what fails is not what the path is judged by: it is said of the node, or with a warning
	ci          bool // among those that CI makes
	modes       []string
}

// onMode tells whether a fault can be made on a node of a mode: iptables, iptables-legacy, nftables.
func (f *matrixFault) onMode(mode string) bool {
	return len(f.modes) == 0 || strings.Contains(" "+strings.Join(f.modes, " ")+" ", " "+mode+" ")
}

// matrix is all of it.
func matrix() []matrixFault {
	var out []matrixFault
	for _, part := range [][]matrixFault{
		routingFaults(), answerFaults(), hookFaults(), settingFaults(), linkFaults(), programFaults(), objectFaults(),
	} {
		out = append(out, part...)
	}
	return out
}

// TestFaultMatrix makes every fault, measures, traces, repairs, and traces again.
func TestFaultMatrix(t *testing.T) {
	if os.Getenv("E2E_CLUSTER") == "" {
		t.Skip("E2E_CLUSTER is not set: only the nodes of test/cluster are on this machine, with all tools")
	}
	faults, whole := matrix(), testutil.EveryFault()
	setUpMatrix(t)
	scenes := map[string]*scene{}
	for i, node := range nodes {
		mode := matrixMode(t, node)
		t.Run(node+" "+mode, func(t *testing.T) {
			for k := range faults {
				f := &faults[k]
				if !f.onMode(mode) || !whole && (!f.ci || k%len(nodes) != i) {
					continue
				}
				t.Run(f.name, func(t *testing.T) {
					if scenes[node] == nil {
						scenes[node] = setScene(t, node, mode)
						scenes[node].healthy(t)
					}
					scenes[node].try(t, f)
				})
			}
		})
	}
}

// outcome is what happened with one fault.
type outcome struct {
	made, failed int      // connections
	offline      string   // verdict, exit code and findings without --live
	live         string   // the same with it
	problems     []string // what is not as it must be
}

// try makes a fault, measures and traces, and repairs it.
func (s *scene) try(t *testing.T, f *matrixFault) {
	t.Helper()
	var o outcome
	before := s.state(t)
	repair := s.make(t, f)
	repaired := false
	defer func() {
		if !repaired {
			repair(t)
		}
	}()
	s.judge(t, f, &o)
	repair(t)
	repaired = true
	s.settle(t, before)
	if c := s.connect(t, f); c.failed > 0 {
		o.problems = append(o.problems, fmt.Sprintf("repaired: %d of %d connections fail: %s", c.failed, c.made, c))
	}
	// Behind them, as they have the kernel ask anew for neighbours that it did not find.
	after := s.trace(t, f, s.dump(t))
	path := s.path(after, f)
	if path == nil || path.Verdict != report.Match || after.code != 0 {
		o.problems = append(o.problems, "repaired: "+shortly(after, path))
	}
	s.note(t, f, &o)
	for _, p := range o.problems {
		t.Error(p)
	}
}

// judge measures, and has the plugin judge, while the fault is there.
func (s *scene) judge(t *testing.T, f *matrixFault, o *outcome) {
	t.Helper()
	c := s.connect(t, f)
	o.made, o.failed = c.made, c.failed
	if got := effectOf(c); got != f.fails && !f.varies && (got != all || f.fails != some) {
		o.problems = append(o.problems, fmt.Sprintf("of %d connections %d fail, want %s: %s", c.made, c.failed, f.fails, c))
	}
	dump := s.dump(t)
	s.record(t, f, c, dump)
	offline := s.trace(t, f, dump)
	path := s.path(offline, f)
	o.offline = shortly(offline, path)
	o.problems = append(o.problems, wrong("trace", f, c, offline, path, f.named)...)
	if f.from == "outside" || os.Getenv("SVCPROXY_FAULTS_LIVE") == "no" {
		return // nothing that the plugin starts is outside
	}
	args := append(s.traceArgs(f), "--live", "-o", "json")
	if f.payload {
		args = append(args, "--payload", "hello")
	}
	live := svcproxy(t, args...)
	path = s.path(live, f)
	if f.varies && path != nil && path.Verdict == report.Match {
		c = s.connect(t, f) // it may be over
	}
	o.live = shortly(live, path)
	named := f.live
	if named == "" {
		named = f.named
	}
	o.problems = append(o.problems, wrong("trace --live", f, c, live, path, named)...)
	for _, code := range codes(&live.report) {
		if code == judge.WalkDisagrees || code == judge.Changing {
			o.problems = append(o.problems, "trace --live says "+code+":\n"+live.out)
		}
	}
}

func effectOf(c connected) effect {
	switch c.failed {
	case 0:
		return none
	case c.made:
		return all
	}
	return some
}

// wrong lists what is not as it must be of one run. What was measured decides, not what the entry expects.
func wrong(what string, f *matrixFault, c connected, r result, path *report.Path, named string) []string {
	live := strings.Contains(what, "live")
	switch {
	case path == nil:
		return []string{what + " says nothing of the path: " + strings.TrimSpace(r.errOut)}
	case c.failed == 0 && f.unknownToo && path.Verdict == report.Unknown:
		return nil
	case c.failed == 0 && f.varies && live && path.Verdict == report.Mismatch:
		return nil // what others knew is forgotten meanwhile: its own connections decide
	case c.failed == 0 && (path.Verdict != report.Match || r.code != 0):
		return []string{what + ": nothing fails, and it says " + shortly(r, path)}
	case c.failed == 0 || f.beyond && !live:
		return nil
	case r.code == 0 || path.Verdict == report.Match && !live && !f.aside:
		return []string{
			fmt.Sprintf("%s: %d of %d connections fail, and it says %s", what, c.failed, c.made, shortly(r, path)),
		}
	case !regexp.MustCompile("(?i)" + named).MatchString(evidence(r, path)):
		return []string{fmt.Sprintf("%s does not name %q: it says %s", what, named, shortly(r, path))}
	}
	return nil
}

// evidence is all that is said of a path and of its node, in one text; of an Unknown path also what it depends on,
// which is information.
func evidence(r result, path *report.Path) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	add := func(findings []report.Finding, all bool) {
		for i := range findings {
			if f := &findings[i]; all || f.Severity != report.Info {
				_ = e.Encode(f) // a buffer takes everything
			}
		}
	}
	add(path.Findings, path.Verdict == report.Unknown)
	for i := range r.report.Nodes {
		add(r.report.Nodes[i].Findings, false)
	}
	return b.String()
}

// shortly is a result in a line: verdict of the path, exit code, findings.
func shortly(r result, path *report.Path) string {
	if path == nil {
		return fmt.Sprintf("no path, exit %d, %s", r.code, lastLine(r.errOut))
	}
	var found []string
	add := func(findings []report.Finding) {
		for _, f := range findings {
			if f.Severity != report.Info {
				found = append(found, strings.TrimSpace(f.Code+" "+f.Subject))
			}
		}
	}
	add(path.Findings)
	for i := range r.report.Nodes {
		add(r.report.Nodes[i].Findings)
	}
	return strings.TrimSpace(fmt.Sprintf("%s, exit %d %s", path.Verdict, r.code, strings.Join(found, "; ")))
}

// note writes a line of the results.
func (s *scene) note(t *testing.T, f *matrixFault, o *outcome) {
	t.Helper()
	state := "ok"
	if len(o.problems) > 0 {
		firsts := make([]string, len(o.problems))
		for i, p := range o.problems {
			firsts[i], _, _ = strings.Cut(p, "\n")
		}
		state = "WRONG: " + strings.Join(firsts, " / ")
	}
	line := fmt.Sprintf("%s %s | %s, from %s | %d of %d fail | %s | live: %s | %s", s.node, s.mode, f.name, f.origin(),
		o.failed, o.made, o.offline, o.live, state)
	t.Log(line)
	file := os.Getenv("SVCPROXY_FAULTS_RESULTS")
	if file == "" {
		return
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
}

// dump writes a snapshot of the node.
func (s *scene) dump(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "dump.tar.gz")
	if r := svcproxy(t, "dump", "--node", s.node, "-o", file); r.code != 0 {
		t.Fatalf("dump: %s", r)
	}
	return file
}

// trace judges a snapshot.
func (s *scene) trace(t *testing.T, f *matrixFault, dump string) result {
	t.Helper()
	return svcproxy(t, append(s.traceArgs(f), "--snapshot", dump, "-o", "json")...)
}

func (s *scene) traceArgs(f *matrixFault) []string {
	what := s.frontend(f)
	if f.loopback {
		what = s.serviceOf(f) // the address is that of every node
	}
	return []string{"trace", what, "--node", s.node, "--from", s.flag(f)}
}

// path is that of the frontend in a report.
func (s *scene) path(r result, f *matrixFault) *report.Path {
	host, _, _ := strings.Cut(s.frontend(f), "]:")
	host = strings.TrimPrefix(host, "[")
	if !f.v6 {
		host, _, _ = strings.Cut(host, ":")
	}
	for i := range r.report.Nodes {
		for k := range r.report.Nodes[i].Paths {
			if p := &r.report.Nodes[i].Paths[k]; p.Frontend.Address == host {
				return p
			}
		}
	}
	return nil
}

// healthy begins a record: the node without a fault.
func (s *scene) healthy(t *testing.T) {
	t.Helper()
	dir := os.Getenv("SVCPROXY_FAULTS_RECORD")
	if dir == "" {
		return
	}
	s.base = normalised(t, s.dump(t))
	root := filepath.Join(dir, s.mode, "healthy")
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	for name, data := range s.base {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// record keeps a fault.
func (s *scene) record(t *testing.T, f *matrixFault, c connected, dump string) {
	t.Helper()
	dir := os.Getenv("SVCPROXY_FAULTS_RECORD")
	if dir == "" {
		return
	}
	kept := faultdata.Fault{
		What: f.name, Service: s.serviceOf(f), Node: s.node, From: s.flag(f), Frontend: s.frontend(f),
		Connections: c.made, Failed: c.failed, Beyond: f.beyond, Aside: f.aside, Changes: map[string][]faultdata.Hunk{},
	}
	if c.failed > 0 {
		kept.Named = f.named
	} else {
		kept.UnknownToo = f.unknownToo
	}
	for name, data := range normalised(t, dump) {
		if hunks := faultdata.Diff(s.base[name], data); len(hunks) > 0 && judged(name) {
			kept.Changes[name] = hunks
		}
	}
	file := filepath.Join(dir, s.mode, fileName(f.name)+".fault")
	if err := os.WriteFile(file, kept.Format(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fileName is a sentence as the name of a file.
func fileName(sentence string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(sentence), "-"), "-")
}
