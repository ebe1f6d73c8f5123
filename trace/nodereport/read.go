// SPDX-License-Identifier: Apache-2.0

package nodereport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// maxRead is the largest object that is read, in bytes: whoever may write it may also add labels and annotations.
const maxRead = 4 * MaxSize

// Read reads an object of the API. name is its name, also where the error says why the rest is not accepted: a node's
// object is as trustworthy as the node. Every text of it is one short line.
func Read(data []byte) (o *Object, name string, err error) {
	var head struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Agent peer.Peer `json:"agent"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, "", fmt.Errorf("its report is not an object: %s", safetext.Line(err.Error(), maxError))
	}
	name = head.Metadata.Name
	if len(data) > maxRead {
		return nil, name, fmt.Errorf("its report has %d bytes: at most %d were expected", len(data), maxRead)
	}
	head.Status.Agent.Build = safetext.Line(head.Status.Agent.Build, maxWord)
	if e, ok := errors.AsType[*peer.Error](head.Status.Agent.Check(peer.Peer{Protocol: peer.Protocol})); ok {
		return nil, name, fmt.Errorf("its agent (build %s) is %s than this plugin, and its report would be misread: deploy "+
			"the agents of the plugin's own version, or use the plugin of theirs", cmp.Or(e.Peer.Build, "not known"), e.Age())
	}
	o = &Object{}
	if err := json.Unmarshal(data, o); err != nil {
		return nil, name, fmt.Errorf("its report cannot be read: %s", safetext.Line(err.Error(), maxError))
	}
	if err := o.check(); err != nil {
		return nil, name, err
	}
	return o, name, nil
}

// Share makes texts that many objects have one in memory, by those that were seen before, and drops what is not used.
func (o *Object) Share(seen map[string]string) {
	o.ManagedFields = slices.DeleteFunc(o.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Time == nil })
	for i := range o.ManagedFields {
		o.ManagedFields[i] = metav1.ManagedFieldsEntry{Time: o.ManagedFields[i].Time}
	}
	share := func(s *string) {
		if same, ok := seen[*s]; ok {
			*s = same
		} else if len(seen) < maxShared {
			seen[*s] = *s
		}
	}
	for i := range o.Status.Findings {
		f := &o.Status.Findings[i]
		for _, s := range []*string{&f.Code, (*string)(&f.Severity), &f.Namespace, &f.Service} {
			share(s)
		}
		if i > 0 && f.Since != nil && f.Since.Equal(o.Status.Findings[i-1].Since) {
			f.Since = o.Status.Findings[i-1].Since
		}
	}
	o.Status.Findings = slices.Clip(o.Status.Findings)
}

// maxShared is how many texts are remembered: those of Services that are wrong on many nodes are soon among them.
const maxShared = 20_000

// verdicts are those that an object may have.
var verdicts = []report.Verdict{report.Match, report.ByDesign, report.Warning, report.Mismatch, report.Unknown}

// The least and the most that RenewSeconds may be.
const (
	minRenew = 1
	maxRenew = 3600
)

// check refuses what no agent writes, and makes the texts short lines.
func (o *Object) check() error {
	s := &o.Status
	s.Error = safetext.Line(s.Error, maxError)
	switch {
	case !slices.Contains(verdicts, s.Verdict):
		return errors.New("its report has a verdict that this version does not know")
	case s.RenewedAt.IsZero() || s.RenewSeconds < minRenew || s.RenewSeconds > maxRenew:
		return errors.New("its report does not say when it was written and when it is due again")
	case len(s.Findings) > maxFindings || len(s.Folded) > maxFolded:
		return fmt.Errorf("its report has %d findings and %d counts of findings: at most %d and %d were expected",
			len(s.Findings), len(s.Folded), maxFindings, maxFolded)
	}
	for i := range s.Findings {
		f := &s.Findings[i]
		if !f.isNamed() || !slices.Contains(report.AgentSeverities, f.Severity) || f.Paths < 0 || f.Paths > maxCount {
			return errors.New("its report has a finding that this version does not know")
		}
		f.Since = plausible(f.Since)
	}
	for i := range s.Folded {
		f := &s.Folded[i]
		if !isCode(f.Code) || !slices.Contains(report.AgentSeverities, f.Severity) ||
			f.Services < 1 || f.Services > maxCount || f.Paths < 0 || f.Paths > maxCount {
			return errors.New("its report has a count of findings that this version does not know")
		}
		f.Since = plausible(f.Since)
	}
	for _, n := range []int{
		s.Paths.Total, s.Paths.Matched, s.Paths.Mismatched, s.Paths.ByDesign, s.Paths.Warnings, s.Paths.Unknown,
		s.Paths.Settling, s.UnreadFiles, s.FindingsTotal,
	} {
		if n < 0 || n > maxCount {
			return errors.New("its report has an impossible number of paths or findings")
		}
	}
	if why := s.contradiction(); why != "" {
		return errors.New("its report contradicts itself: " + why)
	}
	if m := s.Mode; m != nil {
		for _, text := range []*string{&m.Actual, &m.Configured, &m.Backend, &m.KubeProxyVersion, &m.Health} {
			*text = word(*text)
		}
		m.Values = slices.DeleteFunc(m.Values[:min(len(m.Values), maxValues)], func(v Value) bool {
			return !isText(v.Name, maxWord) || !isText(v.Value, maxValue)
		})
	}
	return nil
}

// firstSince is a time before which there was no Kubernetes.
var firstSince = time.Date(2014, time.June, 1, 0, 0, 0, 0, time.UTC)

// plausible is a time since which a finding is there; nil where it cannot be.
func plausible(since *metav1.Time) *metav1.Time {
	if since != nil && since.Time.Before(firstSince) {
		return nil
	}
	return since
}

// contradiction says what of a status cannot be together; "" for nothing: counts that are not those of the paths, and a
// verdict that is better than what is counted.
func (s *Status) contradiction() string {
	p := &s.Paths
	if sum := p.Matched + p.Mismatched + p.ByDesign + p.Warnings + p.Unknown + p.Settling; sum != p.Total {
		return fmt.Sprintf("it has %d paths, and their verdicts are %d", p.Total, sum)
	}
	named, unjudged, others := 0, 0, false
	count := func(of report.Severity, n int) {
		if of == report.Info {
			unjudged += n
		} else {
			named += n
		}
	}
	for i := range s.Findings {
		count(s.Findings[i].Severity, 1)
	}
	for i := range s.Folded {
		count(s.Folded[i].Severity, s.Folded[i].Services)
		others = others || s.Folded[i].Code == OtherCodes // of any severity
	}
	switch {
	case !others && named != s.FindingsTotal || named+unjudged < s.FindingsTotal:
		return fmt.Sprintf("it has %d findings, and %d are there", s.FindingsTotal, named)
	case !others && p.Unknown > 0 && unjudged == 0:
		return "paths could not be judged, and nothing says why"
	}
	if v := s.atLeast(); s.Error == "" && v.NeedsAttention() && report.Worse(s.Verdict, v) != s.Verdict {
		return fmt.Sprintf("its verdict is %s, and what it has found is %s", s.Verdict, v)
	}
	return ""
}

// atLeast is the verdict that the counts of paths and the findings ask for.
func (s *Status) atLeast() report.Verdict {
	v := VerdictOf(&s.Paths, s.Findings)
	for i := range s.Folded {
		v = report.Worse(v, report.AgentVerdict(s.Folded[i].Severity))
	}
	return v
}

// maxCount is more than any cluster has of anything that is counted.
const maxCount = 100_000_000

// missed is after how many renewals that did not come an object is stale.
const missed = 3

// clockSlack is by how much the clock of a node may be ahead of the reader's.
const clockSlack = 2 * time.Minute

// Outdated says why what an object says does not count at a time; "" where it does.
func (o *Object) Outdated(now time.Time) string {
	s := &o.Status
	due := time.Duration(s.RenewSeconds) * time.Second
	switch age := now.Sub(s.RenewedAt.Time); {
	case age > missed*due:
		// Without when it was written: of many nodes with a stale report one line is made.
		return fmt.Sprintf("its report is stale: it is due every %v, and was not written for more than %v", due, missed*due)
	case age < -clockSlack:
		return fmt.Sprintf("its report was written at %s, which is ahead of the clock here: compare the clocks",
			s.RenewedAt.UTC().Format(time.RFC3339))
	case s.Error != "":
		return "its agent says: " + s.Error
	case s.JudgedAt == nil:
		return "its agent has not judged it yet"
	case s.JudgedAt.After(s.RenewedAt.Time):
		return "its report says that it was judged after the report was written"
	case s.RenewedAt.Sub(s.JudgedAt.Time) > maxUnjudged:
		return fmt.Sprintf("its agent is there, and has not judged it for more than %v", maxUnjudged)
	}
	return ""
}

// JudgedBefore is when the node was judged by the clock of the API server, as far as what that notes of its own writes
// tells how much the node's clock is ahead of it. JudgedAt has to be set.
func (o *Object) JudgedBefore() time.Time {
	var written time.Time
	for i := range o.ManagedFields {
		if at := o.ManagedFields[i].Time; at != nil && at.After(written) {
			written = at.Time
		}
	}
	at := o.Status.JudgedAt.Time
	if written.IsZero() {
		return at
	}
	return at.Add(-max(0, o.Status.RenewedAt.Sub(written)))
}

// maxUnjudged is for how long an agent may not have judged its node: it judges all paths every ten minutes, and says so
// itself where it cannot.
const maxUnjudged = 6 * time.Hour

// ReportMode is the mode as a report has it.
func (m *Mode) ReportMode() *report.Mode {
	if m == nil {
		return nil
	}
	out := &report.Mode{
		Actual: m.Actual, Configured: m.Configured, Backend: m.Backend, KubeProxyVersion: m.KubeProxyVersion,
		Health: m.Health,
	}
	if m.LastSync != nil {
		out.LastSync = m.LastSync.UTC().Format(time.RFC3339)
	}
	for _, v := range m.Values {
		out.Values = append(out.Values, report.Value{Name: v.Name, Value: v.Value})
	}
	return out
}
