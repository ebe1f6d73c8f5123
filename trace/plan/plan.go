// SPDX-License-Identifier: Apache-2.0

// Package plan turns the expectation for Services on a node into what is to be programmed there. A Plan knows nothing
// of rules; nodehelper/program writes it as rules of one mode. It travels from the plugin to the helper as JSON, and
// the helper trusts none of it: see [Plan.Check].
package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// Plan is the paths of one or more Services on one node.
type Plan struct {
	// Name is what chains and tables are called by: eight hexadecimal digits.
	Name string `json:"name"`
	// Services are those of the plan, namespace/name, for people.
	Services []string `json:"services"`
	// Mark is the packet mark that asks for masquerade: kube-proxy's own, so that either's rules understand the other's.
	Mark uint32 `json:"mark"`
	// Scheduler is the one that kube-proxy's ipvs mode is set to, for ipvs mode where no other is asked for.
	Scheduler string     `json:"scheduler,omitempty"`
	Frontends []Frontend `json:"frontends"`
}

// Frontend is one address and port, and where packets to it are led.
type Frontend struct {
	// Port is the Service port that it belongs to: namespace/name:port, or namespace/name where the port has no name.
	Port     string              `json:"port"`
	Kind     expect.FrontendKind `json:"kind"`
	Address  netip.AddrPort      `json:"address"`
	Protocol string              `json:"protocol"` // TCP, UDP, SCTP
	// Affinity is for how many seconds a client stays with its endpoint; 0: not at all.
	Affinity int32 `json:"affinity,omitempty"`
	// Ranges are the sources that are let in; packets of others are dropped. Empty: all.
	Ranges []netip.Prefix `json:"ranges,omitempty"`
	// NodeFree: what the node itself sends is not held to Ranges. OwnKept: what it sends from the frontend's own address
	// is dropped. Of ipvs mode alone (expect.Policy).
	NodeFree bool `json:"nodeFree,omitempty"`
	OwnKept  bool `json:"ownKept,omitempty"`
	// Pods tells packets of the node's pods; nil: there is no ByPod.
	Pods     *Pods `json:"pods,omitempty"`
	ByPod    *Way  `json:"byPod,omitempty"`
	ByNode   Way   `json:"byNode"`   // of what the node itself sends, from any of its addresses
	ByOthers Way   `json:"byOthers"` // of everything else
	// Local are the addresses of the endpoints that are on the node itself: what these send, it may lead back to them.
	Local []netip.Addr `json:"local,omitempty"`
}

// Pods tells packets of the node's pods by source address or by incoming interface.
type Pods struct {
	CIDR   netip.Prefix `json:"cidr,omitzero"`
	Iface  string       `json:"iface,omitempty"`
	Prefix bool         `json:"prefix,omitempty"` // Iface is the beginning of its name
}

// Way is where packets are led.
type Way struct {
	// Endpoints have equal shares. None: the packet is dropped.
	Endpoints []netip.AddrPort `json:"endpoints,omitempty"`
	// Masquerade says that the source is translated; otherwise only where the endpoint is the sender.
	Masquerade bool `json:"masquerade,omitempty"`
}

// Equal tells whether two ways lead to the same.
func (w *Way) Equal(other *Way) bool {
	return w.Masquerade == other.Masquerade && slices.Equal(w.Endpoints, other.Endpoints)
}

// Equal tells whether two plans lead to the same, whatever they are called.
func (p *Plan) Equal(other *Plan) bool {
	a, b := *p, *other
	a.Name, b.Name = "", ""
	return reflect.DeepEqual(a, b)
}

// Has tells whether there is a frontend of a family; a nil plan has none.
func (p *Plan) Has(v6 bool) bool {
	return p != nil && slices.ContainsFunc(p.Frontends, func(f Frontend) bool { return f.V6() == v6 })
}

// V6 tells the family of a frontend.
func (f *Frontend) V6() bool { return f.Address.Addr().Is6() }

// Ways returns the ways of a frontend: of pods, of the node, of others.
func (f *Frontend) Ways() []*Way {
	out := []*Way{&f.ByNode, &f.ByOthers}
	if f.ByPod != nil {
		out = append(out, f.ByPod)
	}
	return out
}

// Bounds of a plan, which are far above any real one.
const (
	maxFrontends = 200_000
	maxEndpoints = 1_000_000
)

var (
	names      = regexp.MustCompile(`^[0-9a-f]{8}$`)
	ports      = regexp.MustCompile(`^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}(:[a-z0-9-]{1,63})?$`)
	services   = regexp.MustCompile(`^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}$`)
	schedulers = regexp.MustCompile(`^[a-z]{0,16}$`)
	ifaces     = regexp.MustCompile(`^[A-Za-z0-9_.:@-]{1,15}$`)
	protocols  = []string{"TCP", "UDP", "SCTP"}
)

// Check says what is wrong with a plan, so that no word of it can become something else in a rule than what it is meant
// to be.
func (p *Plan) Check() error {
	switch {
	case !names.MatchString(p.Name):
		return fmt.Errorf("%q is no name of a plan: eight hexadecimal digits are", p.Name)
	case len(p.Frontends) == 0:
		return errors.New("there is nothing to program")
	case len(p.Frontends) > maxFrontends:
		return fmt.Errorf("%d frontends are too many: at most %d", len(p.Frontends), maxFrontends)
	case !schedulers.MatchString(p.Scheduler):
		return fmt.Errorf("%q is no name of a scheduler", p.Scheduler)
	case p.Mark == 0 || p.Mark&(p.Mark-1) != 0:
		return fmt.Errorf("the mark 0x%x is not one bit", p.Mark)
	}
	for _, s := range p.Services {
		if !services.MatchString(s) {
			return fmt.Errorf("%q is no namespace/name of a Service", s)
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
		for _, w := range f.Ways() {
			endpoints += len(w.Endpoints)
		}
	}
	if endpoints > maxEndpoints {
		return fmt.Errorf("%d endpoints are too many: at most %d", endpoints, maxEndpoints)
	}
	return nil
}

func (f *Frontend) check() error {
	switch {
	case !ports.MatchString(f.Port):
		return fmt.Errorf("%q is no name of a Service port", f.Port)
	case !plain(f.Address):
		return errors.New("this is no address and port")
	case !slices.Contains(protocols, f.Protocol):
		return fmt.Errorf("the protocol %q is none of %v", f.Protocol, protocols)
	case f.Affinity < 0 || f.Affinity > 86400:
		return fmt.Errorf("an affinity of %d seconds: it may be 0 to 86400", f.Affinity)
	case (f.Pods == nil) != (f.ByPod == nil):
		return errors.New("what tells pods and where they are led belong together")
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
		if byIface && !ifaces.MatchString(f.Pods.Iface) {
			return fmt.Errorf("%q is no name of an interface", f.Pods.Iface)
		}
	}
	for _, w := range f.Ways() {
		for _, e := range w.Endpoints {
			if !plain(e) || e.Addr().Is6() != f.V6() {
				return fmt.Errorf("the endpoint %s is of another family, or none", e)
			}
		}
	}
	for _, a := range f.Local {
		if !slices.ContainsFunc(f.Ways(), func(w *Way) bool {
			return slices.ContainsFunc(w.Endpoints, func(e netip.AddrPort) bool { return e.Addr() == a })
		}) {
			return fmt.Errorf("%s is the address of no endpoint", a)
		}
	}
	return nil
}

// plain tells whether an address and port is complete, and nothing besides.
func plain(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && a.Addr().Zone() == "" && !a.Addr().Is4In6() && !a.Addr().IsUnspecified()
}
