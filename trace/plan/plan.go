// SPDX-License-Identifier: Apache-2.0

// Package plan turns the expectation for Services on a node into what is to be programmed there. A Plan contains no
// rules; nodehelper/program writes it as rules of one mode. The plugin sends it to the helper as JSON, and the helper
// validates all of it: see [Plan.Check].
package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// Plan is the paths of one or more Services on one node.
type Plan struct {
	// Name is the part of the names of chains and tables that identifies the plan: eight hexadecimal digits.
	Name string `json:"name"`
	// Services are those of the plan, namespace/name, for display.
	Services []string `json:"services"`
	// Mark is the packet mark that requests masquerade: the same as kube-proxy's, so that the rules of both work together.
	Mark uint32 `json:"mark"`
	// Scheduler is the IPVS scheduler of kube-proxy's configuration, used in ipvs mode where no other is requested.
	Scheduler string     `json:"scheduler,omitempty"`
	Frontends []Frontend `json:"frontends"`
}

// Frontend is one address and port, and the destinations of packets to it.
type Frontend struct {
	// Port is the Service port that it belongs to: namespace/name:port, or namespace/name where the port has no name.
	Port     string              `json:"port"`
	Kind     expect.FrontendKind `json:"kind"`
	Address  netip.AddrPort      `json:"address"`
	Protocol string              `json:"protocol"` // TCP, UDP, SCTP
	// Affinity is the session affinity timeout in seconds; 0: none.
	Affinity int32 `json:"affinity,omitempty"`
	// Ranges are the allowed sources; packets of others are dropped. Empty: all are allowed.
	Ranges []netip.Prefix `json:"ranges,omitempty"`
	// NodeExempt: packets of the node itself are not subject to Ranges. DropOwnAddress: packets that it sends from the
	// frontend's own address are dropped. Only in ipvs mode (expect.Policy).
	NodeExempt     bool `json:"nodeExempt,omitempty"`
	DropOwnAddress bool `json:"dropOwnAddress,omitempty"`
	// Pods matches packets of the node's pods; nil: there is no ForPods.
	Pods      *Pods        `json:"pods,omitempty"`
	ForPods   *Destination `json:"forPods,omitempty"`
	ForNode   Destination  `json:"forNode"`   // for packets of the node itself, from any of its addresses
	ForOthers Destination  `json:"forOthers"` // for all other packets
	// Local are the addresses of the endpoints on the node itself: their own packets may be sent back to them (hairpin).
	Local []netip.Addr `json:"local,omitempty"`
}

// Pods matches packets of the node's pods by source address or by incoming interface.
type Pods struct {
	CIDR   netip.Prefix `json:"cidr,omitzero"`
	Iface  string       `json:"iface,omitempty"`
	Prefix bool         `json:"prefix,omitempty"` // Iface is a prefix of the interface's name
}

// Destination is where the packets of one class of clients are sent.
type Destination struct {
	// Endpoints have equal shares. None: the packet is dropped.
	Endpoints []netip.AddrPort `json:"endpoints,omitempty"`
	// Masquerade: the source is always translated; otherwise only where the endpoint is the source itself.
	Masquerade bool `json:"masquerade,omitempty"`
}

// Equal tells whether two destinations are the same.
func (d *Destination) Equal(other *Destination) bool {
	return d.Masquerade == other.Masquerade && slices.Equal(d.Endpoints, other.Endpoints)
}

// Equal tells whether two plans are the same but for their names.
func (p *Plan) Equal(other *Plan) bool {
	a, b := *p, *other
	a.Name, b.Name = "", ""
	return reflect.DeepEqual(a, b)
}

// Has tells whether there is a frontend of a family; a nil plan has none.
func (p *Plan) Has(v6 bool) bool {
	return p != nil && slices.ContainsFunc(p.Frontends, func(f Frontend) bool { return f.V6() == v6 })
}

// V6 tells whether a frontend is of IPv6.
func (f *Frontend) V6() bool { return f.Address.Addr().Is6() }

// Destinations returns the destinations of all classes of clients: the node, others and, where there are, pods.
func (f *Frontend) Destinations() []*Destination {
	out := []*Destination{&f.ForNode, &f.ForOthers}
	if f.ForPods != nil {
		out = append(out, f.ForPods)
	}
	return out
}

// Limits of a plan, far above any real one.
const (
	maxFrontends = 200_000
	maxEndpoints = 1_000_000
)

var (
	names      = lazyregexp.New(`^[0-9a-f]{8}$`)
	ports      = lazyregexp.New(`^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}(:[a-z0-9-]{1,63})?$`)
	services   = lazyregexp.New(`^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}$`)
	schedulers = lazyregexp.New(`^[a-z]{0,16}$`)
	ifaces     = lazyregexp.New(`^[A-Za-z0-9_.:@-]{1,15}$`)
	protocols  = []string{"TCP", "UDP", "SCTP"}
)

// IsName tells whether a text can be the name of a plan.
func IsName(text string) bool { return names().MatchString(text) }

// Check returns what is wrong with a plan: a plan that passes has no value that could change the meaning of a rule in
// which it is inserted.
func (p *Plan) Check() error {
	switch {
	case !names().MatchString(p.Name):
		return fmt.Errorf("%q is not a name of a plan: eight hexadecimal digits were expected", p.Name)
	case len(p.Frontends) == 0:
		return errors.New("there is nothing to program")
	case len(p.Frontends) > maxFrontends:
		return fmt.Errorf("%d frontends are too many: at most %d", len(p.Frontends), maxFrontends)
	case !schedulers().MatchString(p.Scheduler):
		return fmt.Errorf("%q is not a name of a scheduler", p.Scheduler)
	case p.Mark == 0 || p.Mark&(p.Mark-1) != 0:
		return fmt.Errorf("the mark 0x%x is not one bit", p.Mark)
	}
	for _, s := range p.Services {
		if !services().MatchString(s) {
			return fmt.Errorf("%q is not a namespace/name of a Service", s)
		}
	}
	type key struct {
		netip.AddrPort
		protocol string
	}
	seen := map[key]bool{}
	endpoints := 0
	for i := range p.Frontends {
		f := &p.Frontends[i]
		k := key{f.Address, f.Protocol}
		if seen[k] {
			return fmt.Errorf("%s/%s is there twice", f.Address, f.Protocol)
		}
		seen[k] = true
		if err := f.check(); err != nil {
			return fmt.Errorf("%s %s: %w", f.Port, f.Address, err)
		}
		for _, d := range f.Destinations() {
			endpoints += len(d.Endpoints)
		}
	}
	if endpoints > maxEndpoints {
		return fmt.Errorf("%d endpoints are too many: at most %d", endpoints, maxEndpoints)
	}
	return nil
}

func (f *Frontend) check() error {
	switch {
	case !ports().MatchString(f.Port):
		return fmt.Errorf("%q is not a name of a Service port", f.Port)
	case !plain(f.Address):
		return errors.New("this is not an address and port")
	case !slices.Contains(protocols, f.Protocol):
		return fmt.Errorf("the protocol %q is not one of %v", f.Protocol, protocols)
	case f.Affinity < 0 || f.Affinity > 86400:
		return fmt.Errorf("an affinity of %d seconds: it may be 0 to 86400", f.Affinity)
	case (f.Pods == nil) != (f.ForPods == nil):
		return errors.New("how pods are recognized and where they are sent belong together")
	}
	for _, r := range f.Ranges {
		if !r.IsValid() || r.Addr().Is6() != f.V6() || r.Addr().Zone() != "" {
			return fmt.Errorf("the source range %s is of another family, or none", r)
		}
	}
	if f.Pods != nil {
		byIface := f.Pods.Iface != ""
		if c := f.Pods.CIDR; c.IsValid() == byIface || c.IsValid() && (c.Addr().Is6() != f.V6() || c.Addr().Zone() != "") {
			return errors.New("pods are told by a CIDR of the frontend's family, or by an interface")
		}
		if byIface && !ifaces().MatchString(f.Pods.Iface) {
			return fmt.Errorf("%q is not a name of an interface", f.Pods.Iface)
		}
	}
	for _, d := range f.Destinations() {
		for _, e := range d.Endpoints {
			if !plain(e) || e.Addr().Is6() != f.V6() {
				return fmt.Errorf("the endpoint %s is of another family, or none", e)
			}
		}
	}
	for _, a := range f.Local {
		if !slices.ContainsFunc(f.Destinations(), func(d *Destination) bool {
			return slices.ContainsFunc(d.Endpoints, func(e netip.AddrPort) bool { return e.Addr() == a })
		}) {
			return fmt.Errorf("%s is not the address of an endpoint", a)
		}
	}
	return nil
}

// plain tells whether an address and port is complete, without a zone, and not an IPv4-mapped one.
func plain(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && a.Addr().Zone() == "" && !a.Addr().Is4In6() && !a.Addr().IsUnspecified()
}
