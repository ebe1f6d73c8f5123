// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// Request is the input of [For]: the Services and frontends to plan, and settings of the node.
type Request struct {
	Services []*corev1.Service
	// Select filters frontends; nil selects all.
	Select func(expect.Frontend) bool
	// Bound are addresses that are bound to the node for IPVS only: NodePorts are not programmed there.
	Bound []netip.Addr
	// Mark is the packet mark that requests masquerade, one bit.
	Mark uint32
	// NoLoopback is the reason why the kernel sends no packet with a loopback source to an endpoint, which rules out
	// NodePorts at 127.0.0.1; "": it sends them.
	NoLoopback string
}

// Values of Request.NoLoopback.
const (
	// NoLoopbackInIPVS: IPVS does not send them (crosses_local_route_boundary of net/netfilter/ipvs/ip_vs_xmit.c).
	// kube-proxy has none at 127.0.0.1.
	NoLoopbackInIPVS = "IPVS sends nothing from a loopback address to another host, " +
		"and kube-proxy serves no NodePort there in ipvs mode"
	// NoLoopbackRoute: route_localnet is not set.
	NoLoopbackRoute = "the kernel lets no packet out that has a loopback source (sysctl " +
		"net.ipv4.conf.all.route_localnet is not 1)"
)

// RefusalError is the reason why nothing is programmed, in one sentence.
type RefusalError string

func (r RefusalError) Error() string { return string(r) }

// For plans the paths of Services on a node as kube-proxy would program them there. left names the frontends that are
// left out, and why, one line each. The error is a RefusalError where the request cannot be programmed correctly.
func For(n *expect.Node, req Request) (p *Plan, left []string, err error) {
	p = &Plan{Mark: req.Mark, Scheduler: n.Scheduler()}
	seen := map[socket]bool{}
	var refused []string
	for _, svc := range req.Services {
		name := svc.Namespace + "/" + svc.Name
		p.Services = append(p.Services, name)
		if reason, why := n.Ignored(svc); reason != "" {
			return nil, nil, RefusalError(fmt.Sprintf("kube-proxy programs nothing for %s: %s", name, why))
		}
		found := false
		for _, f := range n.Frontends(svc) {
			if req.Select != nil && !req.Select(f) {
				continue
			}
			found = true
			for _, f := range atServedAddresses(n, f, req.Bound) {
				// There is a NodePort frontend for each address, and an address may be both external IP and load-balancer IP.
				at := socket{netip.AddrPortFrom(f.Address, f.Port), f.Protocol}
				if seen[at] {
					continue
				}
				seen[at] = true
				front, why, err := planFrontend(n, f, req.NoLoopback)
				switch {
				case err != nil:
					return nil, nil, err
				case why != "":
					refused = append(refused, fmt.Sprintf("%s %s/%s: %s", f.Kind, at, f.Protocol, why))
				default:
					p.Frontends = append(p.Frontends, *front)
				}
			}
		}
		if !found {
			return nil, nil, RefusalError(fmt.Sprintf("%s has no frontend on this node that was asked for", name))
		}
	}
	if len(p.Frontends) == 0 {
		return nil, nil, RefusalError("nothing can be programmed: " + strings.Join(refused, "; "))
	}
	p.Name = nameOf(p)
	err = p.Check()
	return p, refused, err
}

// nameOf returns the name of a plan, a hash of its Services and frontends: it does not depend on the endpoints.
func nameOf(p *Plan) string {
	h := sha256.New()
	for _, s := range p.Services {
		fmt.Fprintln(h, s)
	}
	for i := range p.Frontends {
		if f := &p.Frontends[i]; f.Kind != expect.NodePort { // the addresses at which it is served may change
			fmt.Fprintln(h, f.Address, f.Protocol)
		} else {
			fmt.Fprintln(h, f.Port, f.Address.Port(), f.Protocol)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// socket is an address and port of a protocol.
type socket struct {
	netip.AddrPort
	protocol corev1.Protocol
}

// atServedAddresses returns a NodePort frontend for each address of the node at which it is served, except those bound
// for IPVS; any other frontend unchanged.
func atServedAddresses(n *expect.Node, f expect.Frontend, bound []netip.Addr) []expect.Frontend {
	if f.Kind != expect.NodePort {
		return []expect.Frontend{f}
	}
	var out []expect.Frontend
	for _, a := range n.ServedAt(f.Address.Is6()) {
		if !slices.Contains(bound, a) {
			f.Address = a
			out = append(out, f)
		}
	}
	return out
}

// planFrontend plans one frontend; why is the reason where it is left out.
func planFrontend(n *expect.Node, f expect.Frontend, noLoopback string) (out *Frontend, why string, err error) {
	pol := n.Policy(f)
	port := f.Service.String()
	if f.PortName != "" {
		port += ":" + f.PortName
	}
	at := netip.AddrPortFrom(f.Address, f.Port)
	out = &Frontend{
		Port: port, Kind: f.Kind, Address: at, Protocol: string(f.Protocol), Affinity: pol.AffinitySeconds,
		Ranges: pol.Ranges, NodeExempt: pol.NodeExempt, DropOwnAddress: pol.DropOwnAddress,
	}
	outcomes := []*expect.Outcome{&pol.ForNode, &pol.ForOthers}
	if pol.Pods != nil {
		out.Pods = &Pods{CIDR: pol.Pods.CIDR, Iface: pol.Pods.Iface, Prefix: pol.Pods.Prefix}
		outcomes = append(outcomes, pol.ForPods)
	}
	translated := false
	for _, o := range outcomes {
		translated = translated || o.Action == expect.DNAT
		for i := range o.Endpoints {
			if e := &o.Endpoints[i]; e.Local && !slices.Contains(out.Local, e.Address.Addr()) {
				out.Local = append(out.Local, e.Address.Addr())
			}
		}
	}
	switch {
	case pol.Unsure != "":
		return nil, "", RefusalError(fmt.Sprintf("%s at %s is not certain: %s", port, at, pol.Unsure))
	case pol.ForNode.Action == expect.Proxy || pol.ForOthers.Action == expect.Proxy:
		return nil, "kube-proxy itself listens there, and no rule leads to it", nil
	case !translated:
		return nil, reasonOf(outcomes), nil
	case f.Address.IsLoopback() && noLoopback != "":
		return nil, noLoopback, nil
	}
	out.ForNode, out.ForOthers = destinationOf(&pol.ForNode), destinationOf(&pol.ForOthers)
	if pol.ForPods != nil {
		d := destinationOf(pol.ForPods)
		out.ForPods = &d
	}
	return out, "", nil
}

func reasonOf(outcomes []*expect.Outcome) string {
	for _, o := range outcomes {
		if o.Why != "" {
			return o.Why
		}
	}
	return "kube-proxy programs nothing for it"
}

// destinationOf returns the destination of an outcome. Rejected packets are dropped. Where it is not known whether the
// source is masqueraded, it is: replies then return through the node in any network.
func destinationOf(o *expect.Outcome) Destination {
	if o.Action != expect.DNAT {
		return Destination{}
	}
	out := Destination{Masquerade: o.Masquerade == expect.MasqAlways || o.Masquerade == expect.MasqUnknown}
	for i := range o.Endpoints {
		out.Endpoints = append(out.Endpoints, o.Endpoints[i].Address)
	}
	return out
}
