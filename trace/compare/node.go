// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// network lists settings, routes, rules of routing, interfaces and neighbours.
func (r *reader) network() {
	h := r.state.Host
	r.read(PartSettings, snapshot.SysctlFile)
	for name, value := range h.Sysctls() {
		if matters(name) {
			r.object(PartSettings, name, snapshot.SysctlFile).set(strings.Join(strings.Fields(value), " ")).weak = true
		}
	}
	for _, f := range []struct {
		v4                bool
		name, route, rule string
	}{{true, "IPv4", snapshot.RouteFile, snapshot.RuleFile}, {false, "IPv6", snapshot.Route6File, snapshot.Rule6File}} {
		r.read(PartRoutes, f.route)
		for table, text := range h.Routes(f.v4) {
			if f.v4 || !strings.HasPrefix(text, "fe80:") { // each interface has one, as those of pods come and go
				r.object(PartRoutes, f.name+" table "+table, f.route).add(text)
			}
		}
		r.read(PartRoutingRules, f.rule)
		for _, text := range h.RoutingRules(f.v4) { // the order of those with equal priorities counts
			r.object(PartRoutingRules, f.name, f.rule).set(text)
		}
	}
	r.read(PartLinks, snapshot.LinkFile)
	r.read(PartLinks, snapshot.AddrFile)
	for _, dev := range h.Devs() {
		o := r.object(PartLinks, dev, snapshot.AddrFile).set(h.LinkText(dev))
		for _, addr := range h.LinkAddresses(dev) { // kube-ipvs0 has one for each frontend
			o.add(addr)
		}
	}
	for entry, label := range h.AddressLabels() {
		r.object(PartLinks, "ip addrlabel "+entry, snapshot.AddrFile).set(label)
	}
	r.neighbours()
}

// changing are settings that are counters, or that the kernel changes by itself, by their names at the end of the path.
var changing = []string{
	"nf_conntrack_count", "*_cookie", "*_secret", "gc_*_last", "flush", "max_dst_opts_*", "stat*", "tcp_mem", "udp_mem",
	"ipfrag_time", "ip6frag_time", "mc_forwarding",
}

// matters reports whether a setting is compared: those of the network.
func matters(name string) bool {
	return strings.HasPrefix(name, "net/") && !slices.ContainsFunc(changing, func(pattern string) bool {
		ok, err := path.Match(pattern, path.Base(name))
		return ok && err == nil
	})
}

// neighbours lists the entries of next hops, nodes and endpoints, and those that somebody has set. Others come and go,
// and say nothing; so does the link-layer address of one that a side has alone.
func (r *reader) neighbours() {
	h := r.state.Host
	r.read(PartNeighbours, snapshot.NeighbourFile)
	near := r.hops()
	h.EachNeighbour(func(dev string, ip netip.Addr, e host.Neighbour) {
		noted := e.State == "PERMANENT"
		if ip.IsMulticast() || ip.IsLoopback() || dev == "lo" || !noted && !near[ip] {
			return
		}
		text, weak := e.MAC, false
		switch {
		case e.Failed:
			text = "nothing answers"
		case e.Static:
			text += " set by hand"
		case text == "":
			return
		default:
			weak = true
		}
		r.object(PartNeighbours, dev+" "+ip.String(), snapshot.NeighbourFile).set(text).weak = weak
	})
	h.EachProxied(func(dev string, ip netip.Addr) {
		r.object(PartNeighbours, dev+" "+ip.String()+" (proxy)", snapshot.NeighbourFile).set("answered for")
	})
}

// hops are the addresses whose neighbour entries matter: of gateways, of nodes, and of endpoints.
func (r *reader) hops() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			out[a.Unmap()] = true
		}
	}
	for via := range r.vias() {
		add(via)
	}
	for _, n := range r.cluster.Nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				add(a.Address)
			}
		}
	}
	for _, s := range r.cluster.EndpointSlices {
		for i := range s.Endpoints {
			for _, a := range s.Endpoints[i].Addresses {
				add(a)
			}
		}
	}
	return out
}

// vias yields the gateways of routes.
func (r *reader) vias() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v4 := range []bool{true, false} {
			for _, text := range r.state.Host.Routes(v4) {
				words := strings.Fields(text)
				for i, w := range words[:max(len(words)-1, 0)] {
					if w == "via" && !yield(words[i+1]) {
						return
					}
				}
			}
		}
	}
}

// gateways notes the gateways of a pod, which are its node's, as its own.
func (r *reader) gateways() {
	for via := range r.vias() {
		r.ownText(via, "<gateway>")
	}
}

// configuration lists kube-proxy's configuration and state, what the command program has recorded, and versions.
func (r *reader) configuration() {
	value := func(part, name, text string) *Object {
		if text == "" {
			return &Object{}
		}
		o := r.object(part, name, "").set(text)
		o.weak = true // known on one side alone
		return o
	}
	for _, file := range []string{snapshot.ConfigzFile, snapshot.ProxyConfigFile} {
		if why := r.state.Reading(file).Reason; why != "" {
			r.unread[source{PartConfiguration, file}] = why
		}
	}
	if m := r.report.Mode; m != nil {
		value(PartConfiguration, "actual mode", m.Actual)
		value(PartConfiguration, "configured mode", m.Configured)
		value(PartConfiguration, "backend", m.Backend)
		value(PartConfiguration, "health", m.Health)
		value(PartConfiguration, "served by", m.ReplacedBy).weak = false
		value(PartConfiguration, "leftovers of", strings.Join(m.Leftovers, ", ")).weak = false
		for _, v := range m.Values {
			part := PartConfiguration
			if v.Name == "version" {
				part = PartVersions
			}
			if v.Name != "mode" {
				value(part, "kube-proxy "+v.Name, v.Value).from = cmp.Or(v.Detail, v.Source)
			}
		}
	}
	if r.state.Proxy.Listed {
		names := make([]string, 0, len(r.state.Proxy.Processes))
		for name := range r.state.Proxy.Processes {
			names = append(names, name)
		}
		slices.Sort(names)
		value(PartConfiguration, "processes", strings.Join(names, ", "))
	}
	r.read(PartConfiguration, snapshot.JournalFile)
	if j := r.state.Journal; j != nil {
		for i := range j.Records {
			x := &j.Records[i]
			if len(x.Frontends) <= maxLines { // program writes a few
				r.object(PartConfiguration, "rules of program "+x.Plan, snapshot.JournalFile).
					set(strings.TrimSpace(x.Mode + " " + strings.Join(x.Frontends, " ") + " " + x.Unread))
			}
		}
	}
	lines := 0
	r.file(PartVersions, snapshot.VersionsFile, func(line string) {
		lines++
		switch {
		case strings.HasPrefix(line, "the helper's"):
		case strings.ContainsAny(line, "<>{}"): // a page, or an object, in place of what tools print of themselves
			r.unread[source{PartVersions, snapshot.VersionsFile}] = "it has a line that is no version: " + line
		case lines < maxVersions:
			of, is, named := strings.Cut(line, ": ")
			if line[0] >= '0' && line[0] <= '9' { // as uname -r prints it
				of, is = "kernel", line
			} else if !named { // what a tool prints of itself: "iptables v1.8.9"
				of, is, _ = strings.Cut(line, " ")
			}
			value(PartVersions, of, is)
		}
	})
	for _, node := range r.cluster.Nodes {
		if node.Name != r.node {
			continue
		}
		info := &node.Status.NodeInfo
		if r.objects[key{PartVersions, "kernel"}] == nil {
			value(PartVersions, "kernel by the API", info.KernelVersion)
		}
		value(PartVersions, "OS image", info.OSImage)
		value(PartVersions, "container runtime", info.ContainerRuntimeVersion)
		value(PartVersions, "kubelet", info.KubeletVersion)
	}
}

// maxVersions is how many lines of versions.txt count. A helper writes a dozen.
const maxVersions = 50

// ephemeral is the first of the ports that the kernel chooses for sockets that ask for none
// (net.ipv4.ip_local_port_range).
const ephemeral = 32768

// listeners lists the sockets that listen, without their processes' numbers and the lengths of their queues. Those at
// ports that the kernel has chosen come and go, and are left out unless they are the port of an endpoint.
func (r *reader) listeners() {
	r.read(PartListeners, snapshot.ListenFile)
	if !r.state.SocketsRead {
		return
	}
	ports := map[int32]bool{}
	for _, s := range r.cluster.EndpointSlices {
		for i := range s.Ports {
			ports[pointer(s.Ports[i].Port)] = true
		}
	}
	seen := map[string]bool{} // several sockets of a process, one for each thread, are one
	for i := range r.state.Sockets {
		s := &r.state.Sockets[i]
		chosen := s.Port >= ephemeral && (s.Protocol != "tcp" || s.Address.IsLoopback())
		text := listenerText(s)
		if seen[s.Protocol+text] || chosen && !ports[int32(s.Port)] {
			continue
		}
		seen[s.Protocol+text] = true
		r.object(PartListeners, s.Protocol, snapshot.ListenFile).add(text)
	}
}

func listenerText(s *host.Socket) string {
	words := []string{fmt.Sprintf("%s:%d", s.Bound(), s.Port)}
	for _, x := range []struct {
		is   bool
		text string
	}{
		{s.Device != "", "on " + s.Device},
		{s.Process != "", "process " + s.Process},
		{s.Stopped && !s.Frozen, "stopped"},
		{s.Frozen, "frozen"},
		{s.Full() && s.Protocol == "tcp", "its backlog is full"},
		{s.Full() && s.Protocol == "udp", "its buffer is full"},
	} {
		if x.is {
			words = append(words, x.text)
		}
	}
	return strings.Join(words, " ")
}

// resolver lists the lines of a pod's resolv.conf, in their order, and counts the sockets that take frames before IP
// does.
func (r *reader) resolver() {
	r.file(PartResolver, snapshot.ResolvConfFile, func(line string) {
		if at := strings.IndexAny(line, "#;"); at >= 0 {
			line = strings.TrimSpace(line[:at])
		}
		if line != "" {
			r.object(PartResolver, snapshot.ResolvConfFile, snapshot.ResolvConfFile).set(line)
		}
	})
	sockets := -1 // the first line is a head
	r.file(PartListeners, snapshot.PacketFile, func(string) { sockets++ })
	r.object(PartListeners, "packet sockets", snapshot.PacketFile).set(fmt.Sprint(max(sockets, 0)))
}

// tunnels lists the parameters of tunnels, the ends that frames go to, the peers of WireGuard, and what bridges were
// told.
func (r *reader) tunnels() {
	h := r.state.Host
	r.read(PartBridges, snapshot.BridgeFDBFile)
	r.read(PartTunnels, snapshot.BridgeFDBFile)
	r.read(PartTunnels, snapshot.LinkFile)
	for _, dev := range h.Devs() {
		if text := h.TunnelText(dev); text != "" {
			r.object(PartTunnels, dev, snapshot.LinkFile).set(text)
		}
		for _, text := range h.SetForwardings(dev) {
			r.object(PartBridges, dev, snapshot.BridgeFDBFile).add(text)
		}
		list, _ := h.Forwardings(dev)
		for _, x := range list {
			if x.Dst.IsValid() {
				r.object(PartTunnels, dev+" forwarding", snapshot.BridgeFDBFile).
					add(strings.TrimSpace(x.MAC + " dst " + x.Dst.String() + " " + x.Outer()))
			}
		}
	}
	r.read(PartWireGuard, snapshot.WireGuardFile)
	for _, dev := range h.WireGuards() {
		w := h.WireGuard(dev)
		o := r.object(PartWireGuard, dev, snapshot.WireGuardFile)
		o.set(fmt.Sprintf("public key %s listening port %d fwmark %#x", w.PublicKey, w.Port, w.Mark))
		for i := range w.Peers {
			o.add(peerText(&w.Peers[i]))
		}
	}
}

// peerText describes a peer of WireGuard without what changes as packets go over it, but for one that has never
// answered.
func peerText(p *host.WireGuardPeer) string {
	words := []string{"peer", p.PublicKey}
	if p.Endpoint.IsValid() {
		words = append(words, "endpoint", p.Endpoint.String())
	}
	allowed := make([]string, len(p.Allowed))
	for i, a := range p.Allowed {
		allowed[i] = a.String()
	}
	slices.Sort(allowed)
	words = append(words, "allowed ips", strings.Join(allowed, ", "))
	if p.Preshared {
		words = append(words, "preshared key")
	}
	if p.Handshake == "" && p.Sent != "" {
		words = append(words, "without a handshake")
	}
	return strings.Join(words, " ")
}

// ownText notes a text of the node's own.
func (r *reader) ownText(own, name string) {
	known := slices.ContainsFunc(r.own, func(s substitution) bool { return s.own == own })
	if own != "" && !known && len(r.own) < maxOwn {
		r.own = append(r.own, substitution{own, name})
	}
}

// identity notes the addresses, the pod CIDRs and the name of the node, and what is of the pods that paths come from.
func (r *reader) identity() {
	add := r.ownText
	add(r.node, "<node>")
	for _, n := range r.cluster.Nodes {
		if n.Name != r.node {
			continue
		}
		for _, c := range append(slices.Clone(n.Spec.PodCIDRs), n.Spec.PodCIDR) {
			add(c, "<pod CIDR>")
		}
		for _, a := range n.Status.Addresses {
			add(a.Address, "<node address>")
		}
	}
	r.clients()
	for _, dev := range r.state.Host.WireGuards() {
		add(r.state.Host.WireGuard(dev).PublicKey, "<node key>")
	}
	for _, dev := range r.state.Host.Devs() {
		if dev == kubeproxy.IPVSDevice {
			continue // the addresses of Services, which every node has there in IPVS mode
		}
		for _, a := range r.state.Host.AddressesOn(dev) {
			if !a.IsLoopback() {
				add(a.String(), "<node address>")
			}
		}
	}
}

// ofOnePod begin the names of chains that a network plugin makes for a single pod, with a digest or the pod's interface
// after it: the plugins of CNI (chains of ipmasq and portmap: FormatChainName in pkg/utils of
// github.com/containernetworking/plugins), kube-router, Calico.
var ofOnePod = []string{"CNI-", "KUBE-POD-FW-", "cali-"}

func isOfOnePod(chain string) bool {
	return slices.ContainsFunc(ofOnePod, func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}

// clients notes what is of the pods that the paths come from: each node has others. A chain is of such a pod if a
// rule that is for its address alone leads there, or if its name has the pod's interface; an address is, if a rule
// leads from there to such a chain.
func (r *reader) clients() {
	seen, chains := map[string]bool{}, map[string]bool{}
	for i := range r.report.Paths {
		o := &r.report.Paths[i].Origin
		a, err := netip.ParseAddr(o.Address)
		if o.Kind != "pod" || seen[o.Address] || err != nil {
			continue
		}
		seen[o.Address] = true
		r.ownText(o.Address, "<client>")
		dev := r.state.Host.DevOf(a)
		r.eachRule(func(c *netfilter.Chain, rule *netfilter.Rule) {
			if base, ok := strings.CutSuffix(c.Name, "-"+dev); ok && dev != "" && isOfOnePod(c.Name) {
				r.ownText(c.Name, "<client's "+base+">")
				r.ownText(dev, "<client's interface>")
			}
			if (rule.Key.Src == a || rule.Key.Dst == a) && isOfOnePod(rule.Target) {
				r.ownText(rule.Target, "<client's chain>")
				chains[rule.Target] = true
			}
		})
	}
	r.eachRule(func(_ *netfilter.Chain, rule *netfilter.Rule) {
		for _, a := range []netip.Addr{rule.Key.Src, rule.Key.Dst} {
			if a.IsValid() && chains[rule.Target] {
				r.ownText(a.String(), "<client>") // of the other family
			}
		}
	})
}

func (r *reader) eachRule(do func(*netfilter.Chain, *netfilter.Rule)) {
	for _, t := range r.state.Rules.Tables {
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				do(c, rule)
			}
		}
	}
}
