// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// MirrorStale says that someone has written the endpoints of a Service as Endpoints, which kube-proxy does not read,
// and that the EndpointSlices that mirror them say something else.
const MirrorStale = "MirrorStale"

var _ = register(kind{
	code: MirrorStale, severity: warning, scope: onPath, by: staleMirrors,
	issues: []string{"kubernetes/kubernetes#105987"},
})

// mirrored is an address of Endpoints, or of a slice that mirrors them.
type mirrored struct {
	at   netip.AddrPort
	port string // its name
	of   corev1.Protocol
}

func (m mirrored) String() string {
	out := m.at.String()
	if m.of != corev1.ProtocolTCP && m.of != "" {
		out += "/" + string(m.of)
	}
	return out
}

// mirror is what is written of a Service's endpoints and what is not mirrored, each with whether it is ready, and what
// slices have that is not written.
type mirror struct {
	slices     bool
	lost, left map[mirrored]bool
}

// mirrorsOf compares Endpoints with the slices that mirror them. Services with the same in both are left out.
func mirrorsOf(c *snapshot.Cluster) map[types.NamespacedName]*mirror {
	if slices.Contains(c.Missing, "endpoints") {
		return nil
	}
	written := make(map[types.NamespacedName]*snapshot.Endpoints, len(c.Endpoints))
	for _, e := range c.Endpoints {
		written[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = e
	}
	out := map[types.NamespacedName]*mirror{}
	for _, name := range c.Mirrored() {
		m := &mirror{lost: map[mirrored]bool{}, left: map[mirrored]bool{}}
		if e := written[name]; e != nil {
			m.write(e)
		}
		out[name] = m
	}
	for _, s := range c.EndpointSlices {
		if m := out[expect.ServiceOf(s)]; m != nil {
			m.compare(s)
		}
	}
	maps.DeleteFunc(out, func(_ types.NamespacedName, m *mirror) bool { return len(m.lost)+len(m.left) == 0 })
	return out
}

// write adds what Endpoints have.
func (m *mirror) write(e *snapshot.Endpoints) {
	for i := range e.Subsets {
		subset := &e.Subsets[i]
		add := func(ip string, isReady bool) {
			a, err := netip.ParseAddr(ip)
			if err != nil {
				return
			}
			for k := range subset.Ports {
				p := &subset.Ports[k]
				m.lost[mirrored{netip.AddrPortFrom(a, uint16(p.Port)), p.Name, p.Protocol}] = isReady //nolint:gosec // a port
			}
		}
		for k := range subset.Addresses {
			add(subset.Addresses[k].IP, true)
		}
		for k := range subset.NotReadyAddresses {
			add(subset.NotReadyAddresses[k].IP, false)
		}
	}
}

// compare takes off what a slice has, and notes what is not written.
func (m *mirror) compare(s *discoveryv1.EndpointSlice) {
	m.slices = true
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		isReady := expect.IsReady(e)
		for _, ip := range e.Addresses {
			a, err := netip.ParseAddr(ip)
			if err != nil {
				continue
			}
			for k := range s.Ports {
				p := &s.Ports[k]
				if p.Port == nil {
					continue
				}
				x := mirrored{at: netip.AddrPortFrom(a, uint16(*p.Port)), of: corev1.ProtocolTCP} //nolint:gosec // a port
				if p.Name != nil {
					x.port = *p.Name
				}
				if p.Protocol != nil {
					x.of = *p.Protocol
				}
				if was, ok := m.lost[x]; ok && was == isReady {
					delete(m.lost, x)
				} else {
					m.left[x] = isReady
				}
			}
		}
	}
}

// differences are the addresses of one side, ready or not, for the path's port and family.
func differences(p *pathCase, of map[mirrored]bool) (out []string) {
	for x, isReady := range of {
		if x.port != p.want.Frontend.PortName || x.at.Addr().Is4() != p.want.Frontend.Address.Is4() {
			continue
		}
		text := x.String()
		if !isReady {
			text += " (not ready)"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

var staleMirrors = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	name := expect.NameOf(p.svc)
	m := p.cluster.mirrors[name]
	if m == nil {
		return nil
	}
	lost, left := differences(p, m.lost), differences(p, m.left)
	if len(lost)+len(left) == 0 {
		return nil
	}
	is := issue{
		code: MirrorStale, subject: name.String(), endpoints: slices.Concat(lost, left),
		message: "its endpoints are written as Endpoints, which kube-proxy does not read, and the EndpointSlices that " +
			"mirror them differ",
	}
	if !m.slices {
		is.message = "its endpoints are written as Endpoints, which kube-proxy does not read, and no EndpointSlice " +
			"mirrors them: by the API it has no endpoints, and connections to it are refused"
	}
	for _, x := range []struct {
		what  string
		which []string
	}{{"Endpoints alone have ", lost}, {"EndpointSlices alone have ", left}} {
		if len(x.which) > 0 {
			is.evidence = append(is.evidence, report.Evidence{Text: x.what + cut(x.which, 8)})
		}
	}
	is.remedy = report.Remedy{
		Text: "if Endpoints are right, find out why kube-controller-manager does not mirror them (its log; the label " +
			discoveryv1.LabelSkipMirror + "; it mirrors at most 1,000 addresses of each subset); if the slices are " +
			"right, correct Endpoints. Better: write an EndpointSlice in place of Endpoints, which are deprecated",
		Commands: []report.Command{
			{Line: report.ShellLine("kubectl", "get", "endpoints", "-n", name.Namespace, "-o", "yaml", "--", name.Name)},
			{Line: report.ShellLine("kubectl", "get", "endpointslices", "-n", name.Namespace, "-o", "yaml", "-l",
				discoveryv1.LabelServiceName+"="+name.Name)},
		},
	}
	return []issue{is}
}}
