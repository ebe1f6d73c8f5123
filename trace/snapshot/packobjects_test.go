// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// objectsOf are the objects of a captured cluster.
func objectsOf(t testing.TB) *Cluster {
	t.Helper()
	s, err := Open("../../testdata/snapshots/real-2node-iptables")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPackedObjects: what is unpacked is what was packed, the empty names of ports included.
func TestPackedObjects(t *testing.T) {
	c := objectsOf(t)
	c.Missing, c.Unread = []string{"pods"}, map[string]string{"cluster/pods.json": "forbidden"}
	packed, err := PackObjects(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := UnpackObjects(packed)
	if err != nil {
		t.Fatal(err)
	}
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) || len(got.Services) == 0 {
		t.Errorf("%.2000s\nwant\n%.2000s", a, b)
	}
}

// TestWhatIsTakenOutIsPutBack: whatever objects have in the places of what is packed as lists.
func TestWhatIsTakenOutIsPutBack(t *testing.T) {
	named := func(namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	of := func(service string) map[string]string {
		return map[string]string{discoveryv1.LabelServiceName: service}
	}
	node, unknown := "b", "gone"
	when := func(trigger string) map[string]string {
		return map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger, "other": "stays"}
	}
	c := &Cluster{
		Services: []*corev1.Service{
			{
				ObjectMeta: named("x", "one", nil),
				Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}},
			},
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "two", CreationTimestamp: metav1.Unix(1_790_000_000, 0)},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.2"},
			},
			{
				ObjectMeta: named("y", "one", nil),
				Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.3", ClusterIPs: []string{"10.0.0.3", "fd00::3"}},
			},
			{ObjectMeta: named("y", "none", nil), Spec: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}}},
		},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			{ObjectMeta: named("y", "none-abcde", of("none")), Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.1.0.1"}, NodeName: &node},
				{Addresses: []string{"10.1.0.2", "10.1.0.3"}, NodeName: &unknown},
				{NodeName: nil},
			}},
			{ObjectMeta: named("x", "one-1", of("one"))},
			{ObjectMeta: named("x", "one-2", map[string]string{discoveryv1.LabelServiceName: "one", "a": "b"})},
			{ObjectMeta: named("x", "mine", of("one"))},
			{ObjectMeta: named("y", "one-", of("one"))},
			{ObjectMeta: named("y", "two-1", of("two"))}, // of no Service of the namespace
			{ObjectMeta: metav1.ObjectMeta{
				Namespace: "x", Name: "two-3", Labels: of("two"), CreationTimestamp: metav1.Unix(1_790_000_007, 0),
				Annotations: when("2026-11-24T10:00:00Z"),
			}},
			{ObjectMeta: metav1.ObjectMeta{
				Namespace: "x", Name: "two-4", Labels: of("two"), Annotations: when("2026-11-24T10:00:00.5Z"),
			}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "two-5", Annotations: when("2026-11-24T12:00:00+02:00")}},
			{ObjectMeta: named("x", "alone", nil), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.4"}}}},
		},
		Nodes: []*corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.Unix(1_780_000_000, 0)}},
			{ObjectMeta: named("", "b", nil)},
		},
	}
	before, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := PackObjects(c)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := json.Marshal(c); err != nil || !bytes.Equal(now, before) {
		t.Errorf("packing has changed the objects, or %v", err)
	}
	got, err := UnpackObjects(packed)
	if err != nil {
		t.Fatal(err)
	}
	after, err := json.Marshal(got)
	if err != nil || !bytes.Equal(after, before) {
		t.Errorf("%v\n%s\nwant\n%s", err, after, before)
	}
}

// deflated compresses a text.
func deflated(t testing.TB, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestObjectsThatCannotBeUnpacked: an error, and within the limits one of these.
func TestObjectsThatCannotBeUnpacked(t *testing.T) {
	for name, c := range map[string]struct {
		packed []byte
		limit  bool
	}{
		"nothing":          {nil, false},
		"not compressed":   {[]byte(`{"s":[]}`), false},
		"no JSON":          {deflated(t, `{"s":`), false},
		"of another shape": {deflated(t, `{"s":{"a":1}}`), false},
		"null":             {deflated(t, `{"e":[null]}`), false},
		"no columns":       {deflated(t, `{"s":[{}]}`), false},
		"too many columns": {deflated(t, `{"x":{"a":["10.0.0.1"],"w":[0]}}`), false},
		"a Node that is not there": {
			deflated(t, `{"e":[{"endpoints":[{}]}],"x":{"o":[0],"n":[""],"te":[0],"tt":[0],"a":[""],"w":[1]}}`), false,
		},
		"a Service that is not there": {
			deflated(t, `{"s":[{}],"e":[{}],"x":{"i":[""],"ts":[0],"te":[0],"tt":[0],"o":[1],"n":["a"]}}`), false,
		},
		"a time that nothing has": {deflated(t, `{"s":[{}],"x":{"i":[""],"ts":[1099511627777]}}`), false},
		"a Service before the first": {
			deflated(t, `{"s":[{}],"e":[{}],"x":{"i":[""],"ts":[0],"te":[0],"tt":[0],"o":[-1],"n":["a"]}}`), false,
		},
		"a bomb":   {deflated(t, strings.Repeat(" ", bounds.File+1)), true},
		"too deep": {deflated(t, strings.Repeat("[", bounds.JSONDepth+1)), true},
	} {
		_, err := UnpackObjects(c.packed)
		if err == nil || bounds.Is(err) != c.limit {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnpackObjects(f *testing.F) {
	packed, err := PackObjects(objectsOf(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Add(deflated(f, `{"s":[{"metadata":{"name":"a"}}],"e":[null],"m":["pods"],"u":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := UnpackObjects(data)
		if err != nil {
			return
		}
		if _, err := PackObjects(c); err != nil {
			t.Error(err)
		}
	})
}
