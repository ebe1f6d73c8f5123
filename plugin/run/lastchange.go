// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// The fields of objects whose changes ask for other rules, as managedFields names them.
var (
	serviceFields = []string{`"f:spec"`, `"f:loadBalancer"`}
	sliceFields   = []string{`"f:endpoints"`, `"f:ports"`}
)

// lastChange is when a Service or its endpoints were last changed, as far as their objects tell: by when they were
// made, by when somebody last wrote these fields, and by the time that the controller of slices notes. That a slice was
// deleted does not show.
func lastChange(service *corev1.Service, all []*discoveryv1.EndpointSlice) time.Time {
	last := written(&service.ObjectMeta, serviceFields)
	for _, s := range all {
		if expect.ServiceOf(s) != expect.NameOf(service) {
			continue
		}
		times := []time.Time{last, written(&s.ObjectMeta, sliceFields)}
		if t, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			times = append(times, t)
		}
		last = slices.MaxFunc(times, time.Time.Compare)
	}
	return last
}

// written is when an object was made, or when somebody last wrote some of its fields. A controller that writes
// annotations alone has none of them.
func written(o *metav1.ObjectMeta, fields []string) time.Time {
	last := o.CreationTimestamp.Time
	for i := range o.ManagedFields {
		m := &o.ManagedFields[i]
		if m.Time == nil || m.FieldsV1 == nil || !m.Time.After(last) {
			continue
		}
		written := m.FieldsV1.GetRawString()
		if slices.ContainsFunc(fields, func(f string) bool { return strings.Contains(written, f) }) {
			last = m.Time.Time
		}
	}
	return last
}
