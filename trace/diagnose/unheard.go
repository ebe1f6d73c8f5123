// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// unheard finds a kube-proxy whose watch of the API hangs: endpoints of a Service that is wrong here changed, and after that kube-proxy
// has seen no change of anything.
func (n *node) unheard(paths []judged, req *Request) *report.Finding {
	h := n.proxy.health
	if h == nil || len(n.proxy.syncs) == 0 {
		return nil
	}
	wrong := map[types.NamespacedName]bool{}
	for i := range paths {
		p := &paths[i]
		switch {
		case p.Verdict != report.Mismatch:
		case p.Service != nil:
			wrong[types.NamespacedName(*p.Service)] = true
		case len(req.Services) == 1:
			wrong[req.Services[0]] = true
		}
	}
	changed, of := n.lastChange(wrong)
	seen := unixTime(0)
	for _, s := range n.proxy.syncs {
		if t := unixTime(s.queued); t.After(seen) {
			seen = t
		}
	}
	if changed.Sub(seen) <= retryTime || h.CurrentTime.Sub(changed) <= retryTime {
		return nil
	}
	f := n.finding(NotSyncing, of, issue{
		expected: "a change seen within " + retryTime.String(),
		actual:   "the last change that kube-proxy has seen is of " + seen.UTC().Format(time.RFC3339),
		message:  "kube-proxy no longer hears of changes: its watch of the API hangs",
		evidence: []string{"endpoints of " + of + " changed at " + changed.UTC().Format(time.RFC3339)},
	})
	return &f
}

// lastChange returns when endpoints of these Services changed last, and whose.
func (n *node) lastChange(of map[types.NamespacedName]bool) (last time.Time, service string) {
	if len(of) == 0 {
		return last, ""
	}
	for _, s := range n.cluster.EndpointSlices {
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		if !of[name] || n.services[name] == nil {
			continue
		}
		changes := []time.Time{s.CreationTimestamp.Time}
		if t, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			changes = append(changes, t)
		}
		t := slices.MaxFunc(changes, time.Time.Compare)
		if reason, _ := n.exp.Ignored(n.services[name]); reason == "" && t.After(last) {
			last, service = t, expect.NameOf(n.services[name]).String()
		}
	}
	return last, service
}
