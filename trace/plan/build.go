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

// Request says what to plan.
type Request struct {
	Services []*corev1.Service
	// Select picks frontends; nil takes all.
	Select func(expect.Frontend) bool
	// Bound are addresses that the node has for its own so that IPVS sees what is sent to them: NodePorts are not
	// programmed there.
	Bound []netip.Addr
	// Mark is the packet mark that asks for masquerade, one bit.
	Mark uint32
	// NoLoopback is why no packet with a loopback source gets out to an endpoint, for NodePorts at 127.0.0.1; "": it does.
	NoLoopback string
}

// What Request.NoLoopback may be.
const (
	// NoLoopbackInIPVS: of a virtual server (crosses_local_route_boundary of net/netfilter/ipvs/ip_vs_xmit.c). kube-proxy
	// has none at 127.0.0.1.
	NoLoopbackInIPVS = "IPVS sends nothing from a loopback address to another host, " +
		"and kube-proxy serves no NodePort there in ipvs mode"
	// NoLoopbackRoute: by the kernel's setting.
	NoLoopbackRoute = "the kernel lets no packet out that has a loopback source (sysctl " +
		"net.ipv4.conf.all.route_localnet is not 1)"
)

// RefusalError is why nothing is programmed, in one sentence.
type RefusalError string

func (r RefusalError) Error() string { return string(r) }

// For plans the paths of Services on a node as kube-proxy would program them there. left names what is left out, and
// why, one line each. The error is a RefusalError where what was asked for cannot be programmed rightly.
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
			for _, f := range everywhere(n, f, req.Bound) {
				// A NodePort comes once for each address, and an address may be external IP and load-balancer IP.
				at := socket{netip.AddrPortFrom(f.Address, f.Port), f.Protocol}
				if seen[at] {
					continue
				}
				seen[at] = true
				front, why, err := of(n, f, req.NoLoopback)
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

// nameOf makes the name of a plan: that of the same Services and frontends is the same, whatever their endpoints.
func nameOf(p *Plan) string {
	h := sha256.New()
	for _, s := range p.Services {
		fmt.Fprintln(h, s)
	}
	for i := range p.Frontends {
		if f := &p.Frontends[i]; f.Kind != expect.NodePort { // at whose addresses it is served may change
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

// everywhere returns a NodePort at each address of the node that it is served at, but for those that are bound for
// IPVS; any other frontend alone.
func everywhere(n *expect.Node, f expect.Frontend, bound []netip.Addr) []expect.Frontend {
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

// of plans a frontend; why says why it is left out.
func of(n *expect.Node, f expect.Frontend, noLoopback string) (out *Frontend, why string, err error) {
	pol := n.Policy(f)
	port := f.Service.String()
	if f.PortName != "" {
		port += ":" + f.PortName
	}
	at := netip.AddrPortFrom(f.Address, f.Port)
	out = &Frontend{Port: port, Kind: f.Kind, Address: at, Protocol: string(f.Protocol), Affinity: pol.AffinitySeconds,
		Ranges: pol.Ranges, NodeFree: pol.NodeFree, OwnKept: pol.OwnKept}
	ways := []*expect.Way{&pol.ByNode, &pol.ByOthers}
	if pol.Pods != nil {
		out.Pods = &Pods{CIDR: pol.Pods.CIDR, Iface: pol.Pods.Iface, Prefix: pol.Pods.Prefix}
		ways = append(ways, pol.ByPod)
	}
	leads := false
	for _, w := range ways {
		leads = leads || w.Action == expect.DNAT
		for i := range w.Endpoints {
			if e := &w.Endpoints[i]; e.Local && !slices.Contains(out.Local, e.Address.Addr()) {
				out.Local = append(out.Local, e.Address.Addr())
			}
		}
	}
	switch {
	case pol.Unsure != "":
		return nil, "", RefusalError(fmt.Sprintf("%s at %s is not certain: %s", port, at, pol.Unsure))
	case pol.ByNode.Action == expect.Proxy || pol.ByOthers.Action == expect.Proxy:
		return nil, "kube-proxy itself listens there, and no rule leads to it", nil
	case !leads:
		return nil, reasonOf(ways), nil
	case f.Address.IsLoopback() && noLoopback != "":
		return nil, noLoopback, nil
	}
	out.ByNode, out.ByOthers = wayOf(&pol.ByNode), wayOf(&pol.ByOthers)
	if pol.ByPod != nil {
		w := wayOf(pol.ByPod)
		out.ByPod = &w
	}
	return out, "", nil
}

func reasonOf(ways []*expect.Way) string {
	for _, w := range ways {
		if w.Why != "" {
			return w.Why
		}
	}
	return "kube-proxy programs nothing for it"
}

// wayOf takes what is refused for what is dropped: either way the packet goes nowhere. A masquerade that cannot be told
// is one: answers then come back through the node whatever the network between is like.
func wayOf(w *expect.Way) Way {
	if w.Action != expect.DNAT {
		return Way{}
	}
	out := Way{Masquerade: w.Masquerade == expect.MasqAlways || w.Masquerade == expect.MasqUnknown}
	for i := range w.Endpoints {
		out.Endpoints = append(out.Endpoints, w.Endpoints[i].Address)
	}
	return out
}
