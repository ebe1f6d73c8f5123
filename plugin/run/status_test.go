// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

var statusNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// published makes nodes worker-1, worker-2, … in three zones, and what their agents have published: nothing wrong.
func published(nodes int) ([]*corev1.Node, []*cluster.NodeReport) {
	var objects []*corev1.Node
	var reports []*cluster.NodeReport
	for i := range nodes {
		name := fmt.Sprintf("worker-%d", i+1)
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID("uid-" + name),
				Labels:            map[string]string{corev1.LabelTopologyZone: "abc"[i%3 : i%3+1]},
				CreationTimestamp: metav1.NewTime(statusNow.Add(-time.Duration(i*37%101) * time.Hour)),
			},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0", OSImage: "Debian 12"}},
		}
		at := metav1.NewTime(statusNow.Add(-time.Duration(i%180) * time.Second))
		o := &nodereport.Object{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{UID: n.UID}}},
			Status: nodereport.Status{
				Agent: peer.Peer{Protocol: peer.Protocol}, Verdict: report.Match, RenewedAt: at, RenewSeconds: 180, JudgedAt: &at,
				Mode:  &nodereport.Mode{Actual: "iptables", Backend: "nft", KubeProxyVersion: "v1.37.2"},
				Paths: nodereport.Paths{Total: 10, Matched: 10},
			},
		}
		sync := metav1.NewTime(at.Add(-time.Duration(i*31%29) * time.Second))
		o.Status.Mode.LastSync = &sync
		objects, reports = append(objects, n), append(reports, &cluster.NodeReport{Node: name, Object: o})
	}
	return objects, reports
}

// wrong gives a node a finding.
func wrong(p *cluster.NodeReport, since time.Duration, f nodereport.Finding) {
	at := metav1.NewTime(statusNow.Add(-since))
	f.Since = &at
	s := &p.Object.Status
	s.Verdict, s.FindingsTotal = report.Mismatch, s.FindingsTotal+1
	s.Findings = append(s.Findings, f)
}

var missing = nodereport.Finding{
	Code: "MissingEndpoint", Severity: report.Error, Namespace: "shop", Service: "web", Paths: 2,
}

// groupsOf says the groups of a report in lines.
func groupsOf(r *report.StatusReport) []string {
	out := make([]string, 0, len(r.Groups))
	for i := range r.Groups {
		g := &r.Groups[i]
		name := "-"
		if g.Service != nil {
			name = g.Service.Namespace + "/" + g.Service.Name
		}
		line := fmt.Sprintf("%s %s %s on %d without %d not known %d paths %d since %s on %s folded %d:", g.Severity, g.Code,
			name, len(g.Nodes), g.Without, g.NotKnown, g.Paths, g.Since, g.SinceNode, g.Folded)
		for _, s := range g.Shared {
			line += fmt.Sprintf(" %s %s %s %d/%d %d/%d;", s.Property, s.Relation, s.Value, s.With, s.OfWith, s.Without,
				s.OfWithout)
		}
		out = append(out, line)
	}
	return out
}

// Of a thousand nodes 37 have an older kernel and a finding, and of some nothing is known: they are counted, and are
// not among those that are right.
func TestStatusOfAThousandNodes(t *testing.T) {
	objects, reports := published(1000)
	for i := range 37 {
		objects[i].Status.NodeInfo.KernelVersion = "5.10.0-28"
		wrong(reports[i], time.Duration(i+1)*time.Hour, missing)
	}
	reports[500] = &cluster.NodeReport{Node: "worker-501", Err: errors.New("its report cannot be read")}
	reports[501].Object.Status.RenewedAt = metav1.NewTime(statusNow.Add(-time.Hour))
	reports[502].Object.Status.RenewedAt = metav1.NewTime(statusNow.Add(time.Hour))
	reports[503].Object.Status.Error = "the node could not be judged: no rules"
	reports[504].Object.OwnerReferences[0].UID = "another"
	reports[505].Object.Status.JudgedAt = nil
	objects[506].Labels[corev1.LabelOSStable] = "windows"
	reports = slices.Delete(reports, 506, 508)
	reports = append(reports, &cluster.NodeReport{Node: "gone", Object: reports[0].Object})
	slices.Reverse(objects)
	r := statusOf(objects, reports, nil, nil, statusNow)
	want := []string{"error MissingEndpoint shop/web on 37 without 955 not known 8 paths 74 since 2026-11-18T23:00:00Z " +
		"on worker-37 folded 0: kernel is 5.10.0-28 37/37 0/955;"}
	if got := groupsOf(r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	sum := report.StatusSummary{
		Nodes: 1000, Right: 955, Mismatched: 37, NotKnown: 8, Findings: 1, Affected: 37, Paths: 9920,
		OldestJudgedAt: "2026-11-20T11:57:01Z",
	}
	if r.Summary != sum || r.Verdict != report.Mismatch {
		t.Errorf("%s, %+v", r.Verdict, r.Summary)
	}
	var unknown []string
	for _, n := range r.Nodes {
		if n.Error != "" {
			unknown = append(unknown, n.Node+": "+n.Error)
			if n.Verdict != report.Unknown {
				t.Errorf("%s is %s", n.Node, n.Verdict)
			}
		}
	}
	wantUnknown := []string{
		"worker-501: its report cannot be read",
		"worker-502: its report is stale: it is due every 3m0s, and was not written for more than 9m0s",
		"worker-503: its report was written at 2026-11-20T13:00:00Z, which is ahead of the clock here: compare the clocks",
		"worker-504: its agent says: the node could not be judged: no rules",
		"worker-505: its report is of an earlier Node of this name",
		"worker-506: its agent has not judged it yet",
		"worker-507: it runs Windows, where there is no agent",
		"worker-508: there is no report of it: no agent of deploy/watch runs there, or it cannot reach the API server",
	}
	if !slices.Equal(unknown, wantUnknown) {
		t.Errorf("%s\nwant\n%s", strings.Join(unknown, "\n"), strings.Join(wantUnknown, "\n"))
	}
	if r.Nodes[1].Node != "worker-2" || r.Nodes[9].Node != "worker-10" {
		t.Error("the nodes are not in natural order")
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// Where all is right, that is said of all nodes; with one that is not known nothing is claimed.
func TestStatusWithoutFindings(t *testing.T) {
	objects, reports := published(5)
	if r := statusOf(objects, reports, nil, nil, statusNow); r.Verdict != report.Match || r.Summary.Right != 5 ||
		len(r.Groups) != 0 {
		t.Errorf("%+v", r)
	}
	if r := statusOf(objects, reports[1:], nil, nil, statusNow); r.Verdict != report.Unknown || r.Summary.NotKnown != 1 {
		t.Errorf("%+v", r)
	}
	reports[0].Object.Status.Findings = []nodereport.Finding{missing} // and says Match
	if r := statusOf(objects, reports, nil, nil, statusNow); r.Verdict != report.Mismatch {
		t.Error("a finding beside the verdict Match does not count")
	}
}

// What a node's object has no room for is counted, and the node is not among those that do not have a finding of that
// code.
func TestStatusFolded(t *testing.T) {
	objects, reports := published(10)
	other := missing
	other.Service = "db"
	for i := range 3 {
		wrong(reports[i], time.Hour, missing)
	}
	wrong(reports[3], time.Hour, other)
	reports[3].Object.Status.Folded = []nodereport.Folded{
		{Code: "MissingEndpoint", Severity: report.Error, Services: 300, Paths: 600},
	}
	got := groupsOf(statusOf(objects, reports, nil, nil, statusNow))
	want := []string{
		"error MissingEndpoint shop/web on 3 without 6 not known 1 paths 6 since 2026-11-20T11:00:00Z on worker-1 folded 0:",
		"error MissingEndpoint - on 1 without 9 not known 0 paths 600 since  on  folded 300:",
		"error MissingEndpoint shop/db on 1 without 9 not known 0 paths 2 since 2026-11-20T11:00:00Z on worker-4 folded 0:",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// shopWeb is a Service of an hour ago, with an endpoint.
func shopWeb() (*corev1.Service, []*discoveryv1.EndpointSlice) {
	made := metav1.NewTime(statusNow.Add(-time.Hour))
	web := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: made},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"}, Ports: []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
		}},
	}
	return web, []*discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", CreationTimestamp: made,
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))},
		},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
		},
	}}
}

// Of a Service that no node has to lead anywhere it is not said that it is right everywhere.
func TestStatusOfAServiceWithNothingBehind(t *testing.T) {
	for name, c := range map[string]struct {
		change func(web *corev1.Service, slice *discoveryv1.EndpointSlice)
		want   string
	}{
		"headless":     {func(web *corev1.Service, _ *discoveryv1.EndpointSlice) { web.Spec.ClusterIP = "None" }, "headless"},
		"ExternalName": {func(web *corev1.Service, _ *discoveryv1.EndpointSlice) { web.Spec.Type = "ExternalName" }, "DNS"},
		"another proxy": {func(web *corev1.Service, _ *discoveryv1.EndpointSlice) {
			web.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "cilium"}
		}, "another proxy"},
		"no endpoint": {func(_ *corev1.Service, slice *discoveryv1.EndpointSlice) { slice.Endpoints = nil }, "no endpoint"},
		"none is ready": {func(_ *corev1.Service, slice *discoveryv1.EndpointSlice) {
			slice.Endpoints[0].Conditions.Ready = new(false)
		}, "no endpoint"},
		"one that ends, and serves": {func(_ *corev1.Service, slice *discoveryv1.EndpointSlice) {
			slice.Endpoints[0].Conditions = discoveryv1.EndpointConditions{
				Ready: new(false), Serving: new(true), Terminating: new(true),
			}
		}, ""},
		"one that is ready": {func(*corev1.Service, *discoveryv1.EndpointSlice) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects, reports := published(4)
			web, endpoints := shopWeb()
			c.change(web, endpoints[0])
			r := statusOf(objects, reports, web, endpoints, statusNow)
			want := report.ByDesign
			if c.want == "" {
				want = report.Match
			}
			if r.Verdict != want || !strings.Contains(r.ByDesign, c.want) || (r.ByDesign == "") != (c.want == "") {
				t.Errorf("%s, %q", r.Verdict, r.ByDesign)
			}
			wrong(reports[0], time.Hour, missing)
			if r := statusOf(objects, reports, web, endpoints, statusNow); r.Verdict != report.Mismatch {
				t.Errorf("with a finding: %s", r.Verdict)
			}
		})
	}
}

// A node with a warning, some of whose paths could not be judged, is among those with findings.
func TestNodesWithFindingsAreCounted(t *testing.T) {
	objects, reports := published(8)
	wrong(reports[0], time.Hour, nodereport.Finding{Code: "KubeProxyDown", Severity: report.Warn})
	reports[0].Object.Status.Findings = append(reports[0].Object.Status.Findings,
		nodereport.Finding{Code: "NotCollected", Severity: report.Info, Namespace: "shop", Service: "web", Paths: 1})
	wrong(reports[1], time.Hour, missing)
	wrong(reports[2], time.Hour, missing)
	reports[2].Object.Status.Folded = []nodereport.Folded{{Code: "MissingEndpoint", Severity: report.Error, Services: 73}}
	if s := statusOf(objects, reports, nil, nil, statusNow).Summary; s.Affected != 3 || s.Findings != 2 || s.Folded != 73 {
		t.Errorf("%+v", s)
	}
}

// With a Service, what concerns others is left out, and what may concern it is not called right.
func TestStatusOfAService(t *testing.T) {
	objects, reports := published(6)
	web, endpoints := shopWeb()
	other := missing
	other.Service = "db"
	wrong(reports[0], time.Hour, missing)
	wrong(reports[1], time.Hour, other)
	wrong(reports[2], time.Hour, other)
	reports[2].Object.Status.Folded = []nodereport.Folded{{Code: "UnevenShare", Severity: report.Warn, Services: 4}}
	wrong(reports[3], time.Hour, nodereport.Finding{Code: "SyncFailing", Severity: report.Warn})
	reports[4].Object.Status.Findings = []nodereport.Finding{
		{Code: "ProgramOnPath", Severity: report.Info, Namespace: "shop", Service: "web", Paths: 2},
	}
	r := statusOf(objects, reports, web, endpoints, statusNow)
	var verdicts []report.Verdict
	for _, n := range r.Nodes {
		verdicts = append(verdicts, n.Verdict)
	}
	wantVerdicts := []report.Verdict{
		report.Mismatch, report.Match, report.Unknown, report.Warning, report.Unknown, report.Match,
	}
	if !slices.Equal(verdicts, wantVerdicts) {
		t.Errorf("%v, want %v", verdicts, wantVerdicts)
	}
	got := groupsOf(r)
	want := []string{
		"error MissingEndpoint shop/web on 1 without 4 not known 1 paths 2 since 2026-11-20T11:00:00Z on worker-1 folded 0:",
		"info ProgramOnPath shop/web on 1 without 5 not known 0 paths 2 since  on  folded 0:",
		"warning SyncFailing - on 1 without 5 not known 0 paths 0 since 2026-11-20T11:00:00Z on worker-4 folded 0:",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	web.CreationTimestamp = metav1.NewTime(statusNow.Add(-2 * time.Second)) // workers 4 to 6 were judged before
	if r := statusOf(objects, reports, web, endpoints, statusNow); r.Summary.NotKnown != 4 {
		t.Errorf("of a new Service %d nodes are not known", r.Summary.NotKnown)
	}
}

// A node that was judged before the Service or its endpoints changed last is not right for that: nobody knows. A
// finding stays, and so does what agents say where nothing of that changed.
func TestStatusOfAServiceThatHasChanged(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		t := metav1.NewTime(statusNow.Add(time.Duration(seconds) * time.Second))
		return &t
	}
	fields := func(text string, seconds int) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Time: at(seconds), FieldsV1: metav1.NewFieldsV1(text)}}
	}
	made := metav1.NewTime(statusNow.Add(-time.Hour))
	for name, c := range map[string]struct {
		change func(web *corev1.Service, slice *discoveryv1.EndpointSlice)
		want   string // of each node: wrong, right, or not known
	}{
		"no change": {func(*corev1.Service, *discoveryv1.EndpointSlice) {}, "x==="},
		"a port": {func(web *corev1.Service, _ *discoveryv1.EndpointSlice) {
			web.ManagedFields = fields(`{"f:spec":{"f:ports":{}}}`, -2)
		}, "x=??"},
		"an annotation": {func(web *corev1.Service, _ *discoveryv1.EndpointSlice) {
			web.ManagedFields = fields(`{"f:metadata":{"f:annotations":{}}}`, -2)
		}, "x==="},
		"endpoints": {func(_ *corev1.Service, slice *discoveryv1.EndpointSlice) {
			slice.ManagedFields = fields(`{"f:endpoints":{}}`, 0)
		}, "x???"},
		"endpoints, as the controller says": {func(_ *corev1.Service, slice *discoveryv1.EndpointSlice) {
			slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at(-2).UTC().Format(time.RFC3339)}
		}, "x=??"},
		"a slice that is new": {func(_ *corev1.Service, slice *discoveryv1.EndpointSlice) {
			slice.CreationTimestamp = *at(-2)
		}, "x=??"},
		"endpoints of another Service": {func(_ *corev1.Service, slice *discoveryv1.EndpointSlice) {
			slice.Labels[discoveryv1.LabelServiceName], slice.CreationTimestamp = "db", *at(-2)
		}, "x==="},
	} {
		t.Run(name, func(t *testing.T) {
			objects, reports := published(4) // judged 0, 1, 2 and 3 seconds ago
			reports[0].Object.Status.JudgedAt = at(-60)
			wrong(reports[0], time.Hour, missing)
			web, endpoints := shopWeb()
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web-1", CreationTimestamp: made,
				Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			}}
			c.change(web, slice)
			r := statusOf(objects, reports, web, append(endpoints, slice), statusNow)
			var got []string
			unknown := 0
			for _, n := range r.Nodes {
				signs := map[report.Verdict]string{report.Mismatch: "x", report.Match: "=", report.Unknown: "?"}
				got = append(got, signs[n.Verdict])
				if n.Verdict == report.Unknown {
					unknown++
				}
				if n.Verdict == report.Unknown && !strings.HasPrefix(n.Error, "its report is older than the last change") {
					t.Errorf("%s: %q", n.Node, n.Error)
				}
			}
			if text := strings.Join(got, ""); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
			if len(r.Groups) != 1 || r.Groups[0].NotKnown != unknown || r.Groups[0].Without != 3-unknown {
				t.Errorf("%q", groupsOf(r))
			}
		})
	}
}

// TestALaterReportIsNoLaterSync: objects are written at different times. The nodes with a finding have written theirs
// just now, with a last sync of just now, and the others some minutes ago: that is no difference between them.
func TestALaterReportIsNoLaterSync(t *testing.T) {
	objects, reports := published(30)
	for i, p := range reports {
		at := metav1.NewTime(statusNow.Add(-2 * time.Minute))
		if i < 5 {
			at = metav1.NewTime(statusNow)
			wrong(p, time.Minute, missing)
		}
		sync := metav1.NewTime(at.Add(-time.Second))
		p.Object.Status.JudgedAt, p.Object.Status.RenewedAt, p.Object.Status.Mode.LastSync = &at, at, &sync
	}
	if r := statusOf(objects, reports, nil, nil, statusNow); len(r.Groups) != 1 || len(r.Groups[0].Shared) != 0 {
		t.Errorf("%q", groupsOf(r))
	}
	// kube-proxy on them stands still: they were read after the others' syncs.
	for _, p := range reports[:5] {
		sync := metav1.NewTime(statusNow.Add(-time.Hour))
		p.Object.Status.Mode.LastSync = &sync
	}
	r := statusOf(objects, reports, nil, nil, statusNow)
	if len(r.Groups) != 1 || len(r.Groups[0].Shared) != 1 || r.Groups[0].Shared[0].Relation != report.SharedUntil {
		t.Errorf("%q", groupsOf(r))
	}
}

// Hostile objects with findings of many Services each cost no more than the groups that are listed.
func TestStatusIsBounded(t *testing.T) {
	objects, reports := published(200)
	for i, p := range reports {
		for k := range 80 {
			f := missing
			f.Service = fmt.Sprintf("web-%d", (i*31+k*17)%5000)
			wrong(p, time.Hour, f)
		}
	}
	r := statusOf(objects, reports, nil, nil, statusNow)
	if len(r.Groups) != maxStatusGroups || len(r.Groups)+r.GroupsLeft != r.Summary.Findings {
		t.Errorf("%d groups, %d left of %d", len(r.Groups), r.GroupsLeft, r.Summary.Findings)
	}
}

// A node whose clock is ahead, as the API server's own time of the write tells, was not judged after a Service that is
// newer by the API server's clock.
func TestTheClockOfANodeThatIsAhead(t *testing.T) {
	objects, reports := published(1)
	judged := statusNow.Add(-150 * time.Second) // by the API server's clock
	shown, written := metav1.NewTime(judged.Add(100*time.Second)), metav1.NewTime(judged)
	o := reports[0].Object
	o.Status.JudgedAt, o.Status.RenewedAt = &shown, shown
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(judged.Add(90 * time.Second)),
	}}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &written}}
	if r := statusOf(objects, reports, svc, nil, statusNow); r.Nodes[0].Error == "" {
		t.Errorf("%s, judged before the Service was there", r.Nodes[0].Verdict)
	}
	later := metav1.NewTime(shown.Time)
	o.ManagedFields[0].Time = &later
	if r := statusOf(objects, reports, svc, nil, statusNow); r.Nodes[0].Error != "" {
		t.Errorf("its clock is right, and %s", r.Nodes[0].Error)
	}
}
