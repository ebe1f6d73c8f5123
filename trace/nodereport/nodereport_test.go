// SPDX-License-Identifier: Apache-2.0

package nodereport

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

var written = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// object is one with all that an agent writes but findings.
func object(name string) *Object {
	at := metav1.Time{Time: written}
	return &Object{
		TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: "u"}},
		},
		Status: Status{
			Agent: peer.Peer{Protocol: peer.Protocol}, Verdict: report.Mismatch,
			RenewedAt: at, RenewSeconds: 180, JudgedAt: &at,
		},
	}
}

// hostile makes texts of all kinds: long ones, and those that JSON makes six times as long.
func hostile(r *rand.Rand, limit int) string {
	kinds := []string{"a", "-", "<", "\x00", "\u202e", "é", "\"", "\n", "\xff", "&", "Z"}
	var b strings.Builder
	for range r.IntN(limit + 1) {
		b.WriteString(kinds[r.IntN(len(kinds))])
	}
	return b.String()
}

// Whatever the names are and however many findings there are, the object fits, is read back as it is, and every finding
// is in it or counted.
func TestTheObjectAlwaysFits(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		o := object(strings.Repeat("n", 1+r.IntN(253)))
		mode := &report.Mode{
			Actual: hostile(r, 80), Backend: hostile(r, 80), KubeProxyVersion: hostile(r, 80), Health: hostile(r, 80),
			LastSync: written.Format(time.RFC3339),
		}
		for range r.IntN(60) {
			mode.Values = append(mode.Values, report.Value{
				Name: strings.Repeat("<", r.IntN(70)), Value: strings.Repeat("<", r.IntN(150)),
			})
		}
		o.Status.Mode = ModeOf(mode)
		o.Status.Error = strings.Repeat("<", r.IntN(2000)) + hostile(r, 1000)
		var findings []Finding
		total, long := 0, r.IntN(2) == 0
		for i := range r.IntN(4000) {
			f := Finding{
				Code: fmt.Sprintf("Code%d", r.IntN(1+r.IntN(60))), Severity: report.AgentSeverities[r.IntN(3)], Paths: r.IntN(1e6),
				Namespace: "shop", Service: fmt.Sprintf("web-%d", i), Since: &metav1.Time{Time: written},
			}
			if long {
				f.Namespace, f.Service = strings.Repeat("n", 63), fmt.Sprintf("%s-%05d", strings.Repeat("s", 57), i)
			}
			switch r.IntN(10) {
			case 0:
				f.Namespace, f.Service = hostile(r, 300), hostile(r, 300)
			case 1:
				f.Code = hostile(r, 100)
			}
			if f.Severity != report.Info {
				total++
			}
			findings = append(findings, f)
		}
		o.Fit(findings)
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > ownSize {
			t.Errorf("seed %d: %d bytes", seed, len(data))
		}
		counted := len(o.Status.Findings)
		for _, f := range o.Status.Folded {
			counted += f.Services
		}
		if counted != len(findings) || o.Status.FindingsTotal != total {
			t.Errorf("seed %d: %d of %d findings are in it, %d of %d count", seed, counted, len(findings),
				o.Status.FindingsTotal, total)
		}
		if _, _, err := Read(data); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// Of more findings than there is room for, errors are kept before what could not be judged and that before warnings,
// each code in its turn, and the same ones in whatever order they come.
func TestWhatIsKept(t *testing.T) {
	var findings []Finding
	for i := range 100 {
		for _, f := range []Finding{
			{Code: "Missing", Severity: report.Error},
			{Code: "Stale", Severity: report.Error},
			{Code: "Opaque", Severity: report.Info},
			{Code: "Uneven", Severity: report.Warn},
		} {
			f.Namespace, f.Service, f.Paths = "shop", fmt.Sprintf("web-%03d", i), 2
			findings = append(findings, f)
		}
	}
	findings = append(findings, Finding{Code: "Zombie", Severity: report.Error, Namespace: "shop", Service: "web-999"})
	for seed := range uint64(5) {
		rand.New(rand.NewPCG(seed, 2)).Shuffle(len(findings), func(i, k int) {
			findings[i], findings[k] = findings[k], findings[i]
		})
		o := object("worker-1")
		o.Fit(findings)
		got := map[string]int{}
		for _, f := range o.Status.Findings {
			got[f.Code]++
		}
		missing, stale := got["Missing"], got["Stale"]
		if missing+stale+1 != len(o.Status.Findings) || missing-stale > 1 || missing < stale || got["Zombie"] != 1 {
			t.Errorf("it keeps %v", got)
		}
		want := []Folded{
			{Code: "Missing", Severity: report.Error, Services: 100 - missing, Paths: 2 * (100 - missing)},
			{Code: "Stale", Severity: report.Error, Services: 100 - stale, Paths: 2 * (100 - stale)},
			{Code: "Opaque", Severity: report.Info, Services: 100, Paths: 200},
			{Code: "Uneven", Severity: report.Warn, Services: 100, Paths: 200},
		}
		if !slices.Equal(o.Status.Folded, want) {
			t.Errorf("folded: %+v, want %+v", o.Status.Folded, want)
		}
	}
}

// A value that does not fit is left out and counted: what is cut would be compared as another value.
func TestValuesAreLeftOutWhole(t *testing.T) {
	m := ModeOf(&report.Mode{Actual: "iptables", KubeProxyVersion: "v1\n", Values: []report.Value{
		{Name: "mode", Value: "iptables"},
		{Name: "version", Value: "v1.36.3"},
		{Name: "masqueradeAll", Value: "true"},
		{Name: "nodePortAddresses", Value: strings.Repeat("1", 200)},
		{Name: "clusterCIDR"},
		{Name: "x", Value: "a\x1b"},
	}})
	if len(m.Values) != 1 || m.Values[0] != (Value{"masqueradeAll", "true"}) || m.ValuesLeft != 2 ||
		m.KubeProxyVersion != "" {
		t.Errorf("%+v", m)
	}
}

// What no agent writes is refused, with its name.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *Object)
		want   string
	}{
		{"as it is", func(*Object) {}, ""},
		{
			"a verdict", func(o *Object) { o.Status.Verdict = "Fine" },
			"its report has a verdict that this version does not know",
		},
		{
			"no time", func(o *Object) { o.Status.RenewedAt = metav1.Time{} },
			"its report does not say when it was written and when it is due again",
		},
		{
			"never due", func(o *Object) { o.Status.RenewSeconds = 1e6 },
			"its report does not say when it was written and when it is due again",
		},
		{
			"of an agent of another version",
			func(o *Object) { o.Status.Agent = peer.Peer{Protocol: peer.Protocol + 1, Build: "v9\x1b"} },
			"its agent (build v9\uFFFD) is newer than this plugin, and its report would be misread: deploy the agents of the " +
				"plugin's own version, or use the plugin of theirs",
		},
		{"a code", func(o *Object) {
			o.Status.Findings = []Finding{{Code: "\x1b[31m", Severity: report.Error}}
		}, "its report has a finding that this version does not know"},
		{"a name", func(o *Object) {
			o.Status.Findings = []Finding{{Code: "A", Severity: report.Error, Namespace: "a", Service: "../b"}}
		}, "its report has a finding that this version does not know"},
		{"a namespace alone", func(o *Object) {
			o.Status.Findings = []Finding{{Code: "A", Severity: report.Error, Namespace: "a"}}
		}, "its report has a finding that this version does not know"},
		{
			"too many", func(o *Object) { o.Status.Findings = make([]Finding, 81) },
			"its report has 81 findings and 0 counts of findings: at most 80 and 16 were expected",
		},
		{
			"below zero", func(o *Object) { o.Status.Paths.Total = -1 },
			"its report has an impossible number of paths or findings",
		},
		{
			"an annotation", func(o *Object) { o.Annotations = map[string]string{"a": strings.Repeat("x", 70000)} },
			"its report has 70464 bytes: at most 65536 were expected",
		},
	} {
		o := object("worker-1")
		c.change(o)
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		_, name, err := Read(data)
		if err != nil {
			got = err.Error()
		}
		if got != c.want || name != "worker-1" {
			t.Errorf("%s: %q of %q, want %q", c.name, got, name, c.want)
		}
	}
	for _, text := range []string{"", "[]", `{"metadata":{"name":3}}`} {
		if _, _, err := Read([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	_, name, err := Read([]byte(`{"metadata":{"name":"a"},"status":{"renewedAt":"yesterday"}}`))
	if err == nil || name != "a" {
		t.Errorf("a time that is none: %q, %v", name, err)
	}
}

func FuzzRead(f *testing.F) {
	o := object("worker-1")
	o.Fit([]Finding{{Code: "Missing", Severity: report.Error, Namespace: "shop", Service: "web"}})
	data, err := json.Marshal(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		o, _, err := Read(data)
		if err != nil {
			return
		}
		if o.Outdated(written) == "" && o.Status.JudgedAt == nil {
			t.Error("it counts, and the node was never judged")
		}
		o.Status.Mode.ReportMode()
	})
}

func TestOutdated(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  time.Duration
		change func(o *Object)
		want   string
	}{
		{"now", 0, nil, ""},
		{"three times", 9 * time.Minute, nil, ""},
		{
			"longer", 9*time.Minute + time.Second, nil,
			"its report is stale: it is due every 3m0s, and was not written for more than 9m0s",
		},
		{"its clock is ahead by little", -2 * time.Minute, nil, ""},
		{
			"its clock is ahead", -3 * time.Minute, nil,
			"its report was written at 2026-11-20T12:00:00Z, which is ahead of the clock here: compare the clocks",
		},
		{"an error", 0, func(o *Object) { o.Status.Error = "no rules" }, "its agent says: no rules"},
		{"never judged", 0, func(o *Object) { o.Status.JudgedAt = nil }, "its agent has not judged it yet"},
	} {
		o := object("worker-1")
		if c.change != nil {
			c.change(o)
		}
		if got := o.Outdated(written.Add(c.after)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// What cannot be together in what an agent writes is no report: nothing is said to be right by it.
func TestAReportThatContradictsItselfIsRefused(t *testing.T) {
	missing := Finding{Code: "MissingEndpoint", Severity: report.Error, Namespace: "shop", Service: "web", Paths: 2}
	unread := Finding{Code: "NotCollected", Severity: report.Info, Namespace: "shop", Service: "web", Paths: 2}
	for name, c := range map[string]struct {
		change func(s *Status)
		want   string
	}{
		"right":                         {func(*Status) {}, ""},
		"no paths at all":               {func(s *Status) { s.Paths = Paths{} }, ""},
		"settling":                      {func(s *Status) { s.Paths.Matched, s.Paths.Settling = 3, 2 }, ""},
		"paths that nobody has counted": {func(s *Status) { s.Paths.Total = 6 }, "6 paths"},
		"right, with paths that are wrong": {
			func(s *Status) { s.Paths.Matched, s.Paths.Mismatched = 0, 5 }, "its verdict is Match",
		},
		"right, with a finding": {
			func(s *Status) { s.Findings, s.FindingsTotal = []Finding{missing}, 1 }, "its verdict is Match",
		},
		"findings that are not there": {func(s *Status) { s.FindingsTotal = 7 }, "7 findings"},
		"findings that are not counted": {func(s *Status) {
			s.Verdict, s.Findings = report.Mismatch, []Finding{missing}
		}, "0 findings"},
		"not judged, and nothing says why": {func(s *Status) {
			s.Verdict, s.Paths.Matched, s.Paths.Unknown = report.Unknown, 0, 5
		}, "nothing says why"},
		"not judged": {func(s *Status) {
			s.Verdict, s.Paths.Matched, s.Paths.Unknown, s.Findings = report.Unknown, 0, 5, []Finding{unread}
		}, ""},
		"the other way round": {func(s *Status) { s.Verdict = report.Mismatch }, ""},
		"folded": {func(s *Status) {
			s.Verdict, s.Findings, s.FindingsTotal = report.Mismatch, []Finding{missing}, 74
			s.Folded = []Folded{{Code: "MissingEndpoint", Severity: report.Error, Services: 73}}
		}, ""},
		"others, of whatever severity": {func(s *Status) {
			s.Verdict, s.Paths.Matched, s.Paths.Unknown, s.FindingsTotal = report.Mismatch, 0, 5, 3
			s.Folded = []Folded{{Code: OtherCodes, Severity: report.Error, Services: 9}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("worker-1")
			o.Status.Verdict, o.Status.Paths = report.Match, Paths{Total: 5, Matched: 5}
			c.change(&o.Status)
			data, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = Read(data)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A report is of a moment before it was written, and not long before; a finding is there since a time that has been.
func TestTimesThatNoAgentWrites(t *testing.T) {
	for name, c := range map[string]struct {
		judged time.Duration // before it was written
		want   string
	}{
		"just now": {0, ""}, "an hour ago": {time.Hour, ""}, "later": {-time.Minute, "judged after"},
		"a day ago": {24 * time.Hour, "has not judged it"}, "never": {written.Sub(time.Time{}), "has not judged it"},
	} {
		o := object("worker-1")
		at := metav1.NewTime(written.Add(-c.judged))
		o.Status.JudgedAt = &at
		if got := o.Outdated(written); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	o := object("worker-1")
	o.Status.FindingsTotal = 1
	o.Status.Findings = []Finding{{
		Code: "SyncFailing", Severity: report.Warn, Since: &metav1.Time{Time: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)},
	}}
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if o, _, err := Read(data); err != nil || o.Status.Findings[0].Since != nil {
		t.Errorf("%v, %+v", err, o)
	}
}
