// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// maxRouteTo is how many destinations of one routing decision are listed; a Service may have thousands of endpoints.
const maxRouteTo = 8

// routesOf are the routing decisions of a walk, each with the step that follows. Destinations that have the same rule
// and route are one decision.
func routesOf(res *netfilter.Result) []report.Route {
	var out []report.Route
	for i := range res.Routes {
		r := &res.Routes[i]
		x := report.Route{
			Before: r.Before.String(), Step: r.Behind, Type: string(r.Route.Type), Dev: r.Route.Dev,
			Rule: r.By.Rule(), Entry: r.By.Entry(),
		}
		if r.Route.Gateway.IsValid() {
			x.Via = r.Route.Gateway.String()
		}
		at := slices.IndexFunc(out, func(o report.Route) bool {
			return o.Before == x.Before && o.Rule == x.Rule && o.Entry == x.Entry && o.Type == x.Type && o.Dev == x.Dev &&
				o.Via == x.Via
		})
		if at < 0 {
			at = len(out)
			out = append(out, x)
		}
		o := &out[at]
		if to := r.Dst.String(); !slices.Contains(o.To, to) {
			o.Count++
			if len(o.To) < maxRouteTo {
				o.To = append(o.To, to)
			}
		}
		o.Share = min(o.Share+r.P, 1)
	}
	return out
}
