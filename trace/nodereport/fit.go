// SPDX-License-Identifier: Apache-2.0

package nodereport

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// MaxSize is the largest object, in bytes of JSON as the API server stores it.
const MaxSize = 16 << 10

// ownSize is how much of MaxSize the agent fills: the rest is for what the API server adds (uid, generation,
// creationTimestamp, managedFields, which is one entry of some 900 bytes for one writer).
const ownSize = 14 << 10

// The bounds of the object's parts, in numbers and bytes. deploy/watch/crd.yaml has the same.
const (
	maxFindings = 80
	maxFolded   = 16
	maxValues   = 24
	maxName     = 63 // of a Service and of a namespace: a DNS label
	maxCode     = 64
	maxWord     = 64  // version, mode, name of a value
	maxValue    = 128 // value of kube-proxy's configuration
	maxError    = 512
)

// ModeOf takes from a report's mode what the object has. A value that is too long, or that has characters that are not
// printed, is left out and counted: what is cut is not the value any more, and would be compared with others.
func ModeOf(m *report.Mode) *Mode {
	if m == nil {
		return nil
	}
	out := &Mode{
		Actual: word(m.Actual), Configured: word(m.Configured), Backend: word(m.Backend),
		KubeProxyVersion: word(m.KubeProxyVersion), Health: word(m.Health),
	}
	if t, err := time.Parse(time.RFC3339, m.LastSync); err == nil {
		at := TimeOf(t)
		out.LastSync = &at
	}
	for _, v := range m.Values {
		switch {
		case v.Name == "mode" || v.Name == "version" || v.Value == "" || v.Inferred():
		case len(out.Values) == maxValues || !isText(v.Name, maxWord) || !isText(v.Value, maxValue):
			out.ValuesLeft++
		default:
			out.Values = append(out.Values, Value{v.Name, v.Value})
		}
	}
	return out
}

// word is a text that has to be short to be kept as it is.
func word(s string) string {
	if !isText(s, maxWord) {
		return ""
	}
	return s
}

// isText tells whether a text is not empty, fits, and is one line that may be shown.
func isText(s string, limit int) bool {
	return s != "" && len(s) <= limit && !safetext.HasUnsafe(s)
}

// TimeOf is a time as objects have it: to the second, UTC.
func TimeOf(t time.Time) metav1.Time { return metav1.Time{Time: t.UTC().Truncate(time.Second)} }

// Fit writes findings into the object, whose other fields are set. What does not fit is folded: errors are kept before
// what could not be judged, and that before warnings; of each the first Services of every code before the second ones,
// in the order of their names, so that the nodes of a cluster keep the same.
func (o *Object) Fit(findings []Finding) {
	s := &o.Status
	s.Error = safetext.Line(s.Error, maxError)
	s.FindingsTotal = 0
	for i := range findings {
		if findings[i].Severity != report.Info {
			s.FindingsTotal++
		}
	}
	all := inTurns(findings)
	named := 0 // those before can be kept
	for i := range all {
		if all[i].isNamed() {
			all[named], all[i] = all[i], all[named]
			named++
		}
	}
	keep := func(n int) bool {
		s.Findings = slices.Clone(all[:n])
		slices.SortFunc(s.Findings, compare)
		s.Folded = folded(all[n:])
		return o.size() <= ownSize
	}
	for !keep(0) && s.Mode != nil && len(s.Mode.Values) > 0 {
		s.Mode.Values = s.Mode.Values[:len(s.Mode.Values)-1]
		s.Mode.ValuesLeft++
	}
	fits, not := 0, min(named, maxFindings)+1
	for not-fits > 1 {
		if n := (fits + not) / 2; keep(n) {
			fits = n
		} else {
			not = n
		}
	}
	keep(fits)
}

// size is the object as JSON, in bytes, as the API server writes it.
func (o *Object) size() int {
	data, err := json.Marshal(o)
	if err != nil {
		return MaxSize + 1 // an object of strings, numbers and times always passes
	}
	return len(data)
}

// isNamed tells whether a finding has the names that the API lets pass.
func (f *Finding) isNamed() bool {
	return isName(f.Namespace) && isName(f.Service) && (f.Namespace == "") == (f.Service == "") && isCode(f.Code)
}

// isName tells whether a text may be the name of a Service or a namespace; none is that of the node.
func isName(s string) bool {
	return len(s) <= maxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// isCode tells whether a text may be the code of a finding.
func isCode(s string) bool {
	return s != "" && len(s) <= maxCode && strings.Trim(s, letters) == ""
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// compare orders findings as the object lists them.
func compare(a, b Finding) int {
	return cmp.Or(report.CompareSeverities(a.Severity, b.Severity),
		strings.Compare(a.Code, b.Code), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service))
}

// inTurns orders findings as they are kept: of each severity the first of every code, then the second ones, and so on.
func inTurns(findings []Finding) []Finding {
	sorted := slices.Clone(findings)
	slices.SortFunc(sorted, compare)
	turn := make([]int, len(sorted))
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Severity == sorted[i-1].Severity && sorted[i].Code == sorted[i-1].Code {
			turn[i] = turn[i-1] + 1
		}
	}
	order := make([]int, len(sorted))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(report.CompareSeverities(sorted[a].Severity, sorted[b].Severity),
			turn[a]-turn[b])
	})
	out := make([]Finding, len(sorted))
	for i, k := range order {
		out[i] = sorted[k]
	}
	return out
}

// folded counts findings by code and severity.
func folded(findings []Finding) []Folded {
	var out []Folded
	for i := range findings {
		f := findings[i]
		if !isCode(f.Code) {
			f.Code = OtherCodes
		}
		same := func(x Folded) bool { return x.Code == f.Code && x.Severity == f.Severity }
		at := slices.IndexFunc(out, same)
		if at < 0 && len(out) >= maxFolded-1 {
			f.Code = OtherCodes
			at = slices.IndexFunc(out, func(x Folded) bool { return x.Code == OtherCodes })
		}
		if at < 0 {
			out = append(out, Folded{Code: f.Code, Severity: f.Severity})
			at = len(out) - 1
		}
		x := &out[at]
		x.Services++
		x.Paths = min(x.Paths+f.Paths, maxCount)
		if report.CompareSeverities(f.Severity, x.Severity) < 0 {
			x.Severity = f.Severity
		}
		if f.Since != nil && (x.Since == nil || f.Since.Before(x.Since)) {
			x.Since = f.Since
		}
	}
	slices.SortFunc(out, func(a, b Folded) int {
		return cmp.Or(report.CompareSeverities(a.Severity, b.Severity),
			strings.Compare(a.Code, b.Code))
	})
	return out
}
