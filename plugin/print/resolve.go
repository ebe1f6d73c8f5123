// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// KindResolve is the kind of Resolve.
const KindResolve = "ResolveReport"

// Resolve is the API's side of a Service alone: what clients are told, and which endpoints are behind it. What the
// kernel makes of it is not in here.
type Resolve struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Service    report.ServiceInfo `json:"service"`
	DNS        DNS                `json:"dns"`
	Policy     Policy             `json:"policy"`
	// Node is the node whose view this is; empty for the whole cluster's.
	Node string `json:"node,omitempty"`
	Zone string `json:"zone,omitempty"` // of Node
	// NotProxied is why kube-proxy programs nothing for the Service, where it does not.
	NotProxied *Reason            `json:"notProxied,omitempty"`
	Frontends  []report.Frontend  `json:"frontends,omitempty"`
	Endpoints  []ResolvedEndpoint `json:"endpoints,omitempty"`
}

// DNS is what the cluster's DNS says of the Service. The name ends in cluster.local, which the API does not tell
// otherwise.
type DNS struct {
	Name    string   `json:"name"`
	Records []string `json:"records,omitempty"` // "A 10.96.0.10"
	Note    string   `json:"note,omitempty"`
}

// Policy is how the Service wants its traffic handled.
type Policy struct {
	Internal                 string   `json:"internalTrafficPolicy,omitempty"`
	External                 string   `json:"externalTrafficPolicy,omitempty"`
	TrafficDistribution      string   `json:"trafficDistribution,omitempty"`
	AffinitySeconds          int32    `json:"affinitySeconds,omitempty"`
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
	PublishNotReadyAddresses bool     `json:"publishNotReadyAddresses,omitempty"`
}

// Reason is a by-design code with its explanation.
type Reason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ResolvedEndpoint is one endpoint of one port, and whether connections may be sent to it.
type ResolvedEndpoint struct {
	PortName    string   `json:"portName,omitempty"`
	Protocol    string   `json:"protocol,omitempty"`
	Address     string   `json:"address"`
	Port        int32    `json:"port,omitempty"`
	Pod         string   `json:"pod,omitempty"` // namespace/name
	Node        string   `json:"node,omitempty"`
	Zone        string   `json:"zone,omitempty"`
	Slices      []string `json:"slices,omitempty"`
	Ready       bool     `json:"ready"`
	Serving     bool     `json:"serving"`
	Terminating bool     `json:"terminating"`
	HintZones   []string `json:"hintZones,omitempty"`
	HintNodes   []string `json:"hintNodes,omitempty"`
	// Used is whether traffic of any policy may go there; the reason is in Why.
	Used bool   `json:"used"`
	Why  string `json:"why"`
	// Cluster and Local tell the two traffic policies apart, in a node's view.
	Cluster *Use `json:"cluster,omitempty"`
	Local   *Use `json:"local,omitempty"`
}

// Use is what one traffic policy makes of an endpoint.
type Use struct {
	Used bool   `json:"used"`
	Why  string `json:"why"`
}

// GetObjectKind makes Resolve a runtime.Object.
func (r *Resolve) GetObjectKind() schema.ObjectKind { return r }

// DeepCopyObject makes Resolve a runtime.Object.
func (r *Resolve) DeepCopyObject() runtime.Object {
	out := &Resolve{}
	deepCopy(r, out)
	return out
}

// SetGroupVersionKind sets the kind, as schema.ObjectKind asks for.
func (r *Resolve) SetGroupVersionKind(gvk schema.GroupVersionKind) {
	r.APIVersion, r.Kind = gvk.ToAPIVersionAndKind()
}

// GroupVersionKind returns the kind.
func (r *Resolve) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
}

// Resolve prints a ResolveReport.
func (p *Printer) Resolve(out *terminal.Stream, r *Resolve, v View) error {
	if p.object != nil {
		return p.Object(out, r)
	}
	t := p.newText(v, nil)
	if p.format == "name" {
		t.Linef("service/%s/%s", r.Service.Namespace, r.Service.Name)
	} else {
		t.resolve(r)
	}
	return out.Text(t.Text)
}

func (t *text) resolve(r *Resolve) {
	if t.noHeaders {
		t.endpointTable(r)
		return
	}
	t.serviceHeader(&r.Service)
	dns := r.DNS.Name
	if len(r.DNS.Records) > 0 {
		dns += " → " + t.list(r.DNS.Records, 6, ", ")
	}
	t.say(plain, "DNS", dns, true)
	if r.DNS.Note != "" {
		t.say(plain, "", r.DNS.Note, true)
	}
	if p := policyText(&r.Policy); p != "" {
		t.say(plain, "Policy", p, true)
	}
	if r.Node != "" {
		view := r.Node
		if r.Zone != "" {
			view += " in zone " + r.Zone
		}
		t.say(plain, "Seen by", view, true)
	}
	label := "Reached"
	for i := range r.Frontends {
		f := &r.Frontends[i]
		s := frontendText(f)
		if f.PortName != "" {
			s += "  " + f.PortName
		}
		t.say(plain, label, s, true)
		label = ""
	}
	if r.NotProxied != nil {
		t.say(cyan, "Proxy", "none: "+r.NotProxied.Message+" ("+r.NotProxied.Code+")", true)
	}
	t.Blank()
	t.endpointTable(r)
	t.Blank()
	t.title(resolveConclusion(r))
}

func policyText(p *Policy) string {
	var parts []string
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("internal %s", p.Internal)
	add("external %s", p.External)
	add("distribution %s", p.TrafficDistribution)
	if p.AffinitySeconds > 0 {
		parts = append(parts, fmt.Sprintf("client affinity %d s", p.AffinitySeconds))
	}
	add("load balancer open to %s", strings.Join(p.LoadBalancerSourceRanges, ", "))
	if p.PublishNotReadyAddresses {
		parts = append(parts, "endpoints always count as ready")
	}
	return strings.Join(parts, ", ")
}

func (t *text) endpointTable(r *Resolve) {
	if len(r.Endpoints) == 0 {
		return
	}
	tab := &table{columns: []column{
		{"PORT", false},
		{"ENDPOINT", false},
		{"POD", false},
		{"NODE", false},
		{"ZONE", false},
		{"SLICE", false},
		{"CONDITIONS", false},
		{"USED", false},
		{"WHY", false},
	}}
	port := func(e *ResolvedEndpoint) string {
		if e.PortName != "" {
			return e.PortName
		}
		return e.Protocol
	}
	last := ""
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		used := "no"
		if e.Used {
			used = "yes"
		}
		first := port(e)
		if first == last && !t.noHeaders {
			first = ""
		}
		last = port(e)
		zone, slice := "", ""
		if t.wide {
			zone, slice = e.Zone, strings.Join(e.Slices, ",")
		}
		tab.add(
			first,
			report.JoinHostPort(e.Address, e.Port),
			t.podText(e.Pod),
			e.Node,
			zone,
			slice,
			conditions(e),
			used,
			e.Why,
		)
	}
	tab = tab.dropEmpty("PORT", "POD", "NODE", "ZONE", "SLICE")
	tab = tab.fit(t.columns, nil, "SLICE", "ZONE", "CONDITIONS", "NODE", "POD", "WHY")
	for i := range tab.below {
		if !t.wide && r.Endpoints[i].Used {
			tab.below[i] = nil
		}
	}
	t.table(tab, func(row int) terminal.Color {
		if r.Endpoints[row].Used {
			return green
		}
		return yellow
	})
}

// conditions are those of the EndpointSlice that are set, in its words.
func conditions(e *ResolvedEndpoint) string {
	var out []string
	for _, c := range []struct {
		name string
		set  bool
	}{{"ready", e.Ready}, {"serving", e.Serving && !e.Ready}, {"terminating", e.Terminating}} {
		if c.set {
			out = append(out, c.name)
		}
	}
	if len(out) == 0 {
		return "not ready"
	}
	return strings.Join(out, ",")
}

func resolveConclusion(r *Resolve) string {
	name := r.Service.Namespace + "/" + r.Service.Name
	if r.Service.Type == "ExternalName" {
		return name + " is a DNS alias: it has no endpoints of its own"
	}
	used := 0
	for i := range r.Endpoints {
		if r.Endpoints[i].Used {
			used++
		}
	}
	view := "in the whole cluster (--node NODE shows what that node uses)"
	if r.Node != "" {
		view = "from " + r.Node
	}
	if len(r.Endpoints) == 0 {
		return name + " has no endpoints: do its selector and its pods' labels agree?"
	}
	what, verb := "used", "are"
	if r.NotProxied != nil && len(r.Service.ClusterIPs) == 0 {
		what, view = "in DNS", ""
	}
	if used == 1 || len(r.Endpoints) == 1 {
		verb = "is"
	}
	all := plaintext.Plural(len(r.Endpoints), "endpoint")
	return strings.TrimSpace(fmt.Sprintf("%d of %s of %s %s %s %s", used, all, name, verb, what, view))
}
