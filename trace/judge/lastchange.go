// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// watchHangs finds a kube-proxy whose watch of the API hangs: endpoints of a Service that is wrong here changed, and
// after that kube-proxy has seen no change of anything.
func (n *node) watchHangs(paths []judged, req *Request) []issue {
	h := n.Proxy.Response()
	if h == nil || len(n.Proxy.Syncs) == 0 {
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
	seen := kubeproxy.UnixTime(0)
	for _, s := range n.Proxy.Syncs {
		if t := kubeproxy.UnixTime(s.Queued); t.After(seen) {
			seen = t
		}
	}
	if changed.Sub(seen) <= kubeproxy.RetryTime || h.CurrentTime.Sub(changed) <= kubeproxy.RetryTime {
		return nil
	}
	return []issue{{
		code: NotSyncing, subject: of, expected: "a change seen within " + kubeproxy.RetryTime.String(),
		actual:   "the last change that kube-proxy has seen is of " + seen.UTC().Format(time.RFC3339),
		message:  "kube-proxy no longer receives changes: its watch of the API hangs",
		evidence: say("endpoints of " + of + " changed at " + changed.UTC().Format(time.RFC3339)),
	}}
}

// lastChange returns when endpoints of these Services changed last, and whose.
func (n *node) lastChange(of map[types.NamespacedName]bool) (last time.Time, service string) {
	if len(of) == 0 {
		return last, ""
	}
	for _, s := range n.cluster.EndpointSlices {
		name := expect.ServiceOf(s)
		svc := n.cluster.services[name]
		if !of[name] || svc == nil {
			continue
		}
		changes := []time.Time{s.CreationTimestamp.Time}
		if t, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			changes = append(changes, t)
		}
		t := slices.MaxFunc(changes, time.Time.Compare)
		if reason, _ := n.exp.Ignored(svc); reason == "" && t.After(last) {
			last, service = t, expect.NameOf(svc).String()
		}
	}
	return last, service
}
