// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// recordedFaults are the faults that were made on a real node, with what connections did (testdata/faults/README.md).
const recordedFaults = "../../testdata/faults"

// TestRecordedFaults: where connections failed, the path is no Match, and the object at fault is named, or what is
// missing to tell; where none did, it is one. What is not so yet is in testdata/faults/open.txt, and nothing else is.
func TestRecordedFaults(t *testing.T) { recordedWith(t, nil) }

// TestRecordedFaultsWithPodsOfOneNode: of the pods that endpoints are, trace asks the API for those of the client's
// node alone. An endpoint of another node, whose address the node had made its own, was taken for one with the host
// network: a Match while its connections were refused.
func TestRecordedFaultsWithPodsOfOneNode(t *testing.T) {
	recordedWith(t, func(p *corev1.Pod, node string) bool { return p.Spec.NodeName == node })
}

// recordedWith judges the recorded faults with some of the pods.
func recordedWith(t *testing.T, pods func(p *corev1.Pod, node string) bool) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(recordedFaults, "open.txt"))
	if err != nil {
		t.Fatal(err)
	}
	open := strings.Split(strings.TrimSpace(string(data)), "\n")
	files, err := filepath.Glob(filepath.Join(recordedFaults, "*", "*.fault"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fault is recorded: %v", err)
	}
	var wrong []string
	for _, file := range files {
		rel, err := filepath.Rel(recordedFaults, file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.ToSlash(rel), ".fault")
		problem := judgeRecorded(t, file, pods)
		known := slices.ContainsFunc(open, func(l string) bool { return l == name || strings.HasPrefix(l, name+": ") })
		if problem != "" {
			wrong = append(wrong, name+": "+problem)
		}
		switch {
		case problem != "" && !known:
			t.Errorf("%s: %s", name, problem)
		case problem == "" && known && os.Getenv("SVCPROXY_FAULTS_OPEN") == "":
			t.Errorf("%s is right now: take it out of testdata/faults/open.txt", name)
		}
	}
	t.Logf("%d faults, %d of them in open.txt", len(files), len(wrong))
	if os.Getenv("SVCPROXY_FAULTS_OPEN") != "" {
		text := strings.Join(wrong, "\n") + "\n"

		if err := os.WriteFile(filepath.Join(recordedFaults, "open.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// judgeRecorded judges a recorded fault with some of the pods, nil for all, and says what is wrong with that.
func judgeRecorded(t *testing.T, file string, pods func(p *corev1.Pod, node string) bool) (problem string) {
	t.Helper()
	f, err := faultdata.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	c, n := openFault(t, filepath.Join(filepath.Dir(file), "healthy"), f, nil)
	if pods != nil {
		c.Pods = slices.DeleteFunc(slices.Clone(c.Pods), func(p *corev1.Pod) bool { return !pods(p, f.Node) })
	}
	r := judgeOpened(t, f, c, n)
	if len(r.Paths) != 1 {
		return strconv.Itoa(len(r.Paths)) + " paths; " + r.Error
	}
	p := &r.Paths[0]
	var said []string
	informs := func(x report.Finding) bool { return x.Severity == report.Info }
	findings := slices.DeleteFunc(slices.Clone(r.Findings), informs)
	if p.Verdict == report.Unknown {
		findings = append(findings, p.Findings...) // what it depends on is said as information
	} else {
		findings = append(findings, slices.DeleteFunc(slices.Clone(p.Findings), informs)...)
	}
	for i := range findings {
		said = append(said, strings.TrimSpace(findings[i].Code+" "+findings[i].Subject))
	}
	short := strings.TrimSpace(string(p.Verdict) + " " + strings.Join(said, ", "))
	switch {
	case f.Failed == 0 && f.UnknownToo && p.Verdict == report.Unknown:
	case f.Failed == 0 && (p.Verdict != report.Match || r.Verdict != report.Match):
		return "nothing fails, and it is " + short
	case f.Failed == 0, f.Beyond:
	case r.Verdict == report.Match || r.Verdict == report.ByDesign || p.Verdict == report.Match && !f.Aside:
		return strconv.Itoa(f.Failed) + " of " + strconv.Itoa(f.Connections) + " fail, and it is " + short
	case !regexp.MustCompile("(?i)" + f.Named).MatchString(textOf(t, findings)):
		return "nothing names " + f.Named + ": " + short
	}
	return ""
}

// reportRecorded judges a recorded fault. edit changes files of the node before, by name; nil changes none.
func reportRecorded(
	t *testing.T, file string, edit map[string]func(string) string, asked ...func(*Request),
) (*faultdata.Fault, *report.NodeReport) {
	t.Helper()
	f, err := faultdata.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return f, judgeFault(t, filepath.Join(filepath.Dir(file), "healthy"), f, edit, asked...)
}

// judgeFault judges a fault of a healthy snapshot.
func judgeFault(
	t *testing.T, healthy string, f *faultdata.Fault, edit map[string]func(string) string, asked ...func(*Request),
) *report.NodeReport {
	t.Helper()
	c, n := openFault(t, healthy, f, edit)
	return judgeOpened(t, f, c, n, asked...)
}

// judgeOpened judges the path of a fault.
func judgeOpened(
	t *testing.T, f *faultdata.Fault, c *snapshot.Cluster, n *snapshot.Node, asked ...func(*Request),
) *report.NodeReport {
	t.Helper()
	host, _, err := net.SplitHostPort(f.Frontend)
	if err != nil {
		t.Fatal(err)
	}
	req := Request{
		Services: []types.NamespacedName{{Namespace: faultdata.Namespace, Name: f.Service}}, Matching: true,
		From:   fromFlag(t, f.From),
		Select: func(x expect.Frontend) bool { return x.Address.String() == host },
	}
	for _, more := range asked {
		more(&req)
	}
	r := Files(c, n, req)
	return &r
}

// openFault is the healthy snapshot with a fault's changes, and those of edit.
func openFault(
	t *testing.T, dir string, f *faultdata.Fault, edit map[string]func(string) string,
) (*snapshot.Cluster, *snapshot.Node) {
	t.Helper()
	changed := t.TempDir()
	if err := os.CopyFS(changed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := f.Make(changed); err != nil {
		t.Fatal(err)
	}
	for name, do := range edit {
		file := filepath.Join(changed, "nodes", f.Node, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		now := do(string(data))
		if now == string(data) {
			t.Fatalf("%s is not changed", name)
		}
		if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return snap.Node(t, changed, f.Node)
}

// fromFlag is the origin of a flag of trace.
func fromFlag(t *testing.T, flag string) *From {
	t.Helper()
	if name, ok := strings.CutPrefix(flag, "pod/"); ok {
		return &From{Kind: expect.FromPod, Pod: faultdata.Namespace + "/" + name}
	}
	if flag == "node" {
		return &From{Kind: expect.FromNode}
	}
	a, err := netip.ParseAddr(flag)
	if err != nil {
		t.Fatal(err)
	}
	return &From{Kind: expect.FromExternal, Address: a}
}

// textOf is all that findings say.
func textOf(t *testing.T, findings []report.Finding) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range findings {
		if err := e.Encode(&findings[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
