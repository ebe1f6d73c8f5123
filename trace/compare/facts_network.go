// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
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
	r.notRead(PartSettings, snapshot.SysctlFile)
	for key, value := range h.Sysctls() {
		if matters(key) {
			r.set(PartSettings, key, strings.Join(strings.Fields(value), " "))
		}
	}
	for _, f := range []struct {
		v4          bool
		name        string
		route, rule string
	}{{true, "IPv4", snapshot.RouteFile, snapshot.RuleFile}, {false, "IPv6", snapshot.Route6File, snapshot.Rule6File}} {
		r.notReadOf(PartRoutes, f.name, f.route)
		for table, text := range h.Routes(f.v4) {
			if !f.v4 && strings.HasPrefix(text, "fe80:") {
				continue // each interface has one, as those of pods come and go
			}
			r.add(PartRoutes, f.name+" table "+table, text, text)
		}
		r.notReadOf(PartRoutingRules, f.name, f.rule)
		for _, text := range h.RoutingRules(f.v4) {
			l := r.at(place{PartRoutingRules, "", f.name})
			l.items = append(l.items, item{key: text, text: text}) // the order of those with equal priorities counts
		}
	}
	for p, l := range r.lists {
		if p.part == PartRoutes {
			sortClasses(l.items)
		}
	}
	r.links()
	r.neighbours()
}

// always are files of what every node has: one that is not there was not collected, and nobody has to say so.
var always = []string{
	snapshot.AddrFile, snapshot.LinkFile, snapshot.RouteFile, snapshot.Route6File, snapshot.RuleFile, snapshot.Rule6File,
	snapshot.SysctlFile, snapshot.NeighbourFile, snapshot.ListenFile,
}

// notRead notes that the file of a part was not read.
func (r *reader) notRead(part, file string) {
	if why := r.state.Reading(file).Reason; why != "" {
		r.unread[part] = file + ": " + why
	} else if !r.state.Has(file) && (!r.state.ListsUnread() || slices.Contains(always, file)) {
		r.unread[part] = ""
	}
}

// notReadOf is notRead for a family.
func (r *reader) notReadOf(part, family, file string) { r.notRead(family+" "+part, file) }

// changing are settings that are counters, or that the kernel changes by itself, by their names at the end of the path,
// with "*" for any characters.
var changing = []string{
	"nf_conntrack_count", "*_cookie", "*_secret", "gc_*_last", "flush", "max_dst_opts_*", "stat*", "tcp_mem", "udp_mem",
	"ipfrag_time", "ip6frag_time", "mc_forwarding",
}

// matters tells whether a setting is compared: those of the network.
func matters(key string) bool {
	if !strings.HasPrefix(key, "net/") {
		return false
	}
	name := path.Base(key)
	for _, pattern := range changing {
		if ok, _ := path.Match(pattern, name); ok {
			return false
		}
	}
	return true
}

// links lists the interfaces with their addresses, and the labels by which sources are chosen among these.
func (r *reader) links() {
	h := r.state.Host
	for _, file := range readFrom[PartLinks] {
		r.notRead(file, file)
	}
	for _, dev := range h.Devs() {
		r.set(PartLinks, dev, h.LinkText(dev))
		for _, addr := range h.LinkAddresses(dev) { // sorted; kube-ipvs0 has one for each frontend
			r.add(PartLinks, dev, addr, addr)
		}
	}
	for entry, label := range h.AddressLabels() {
		r.set(PartLinks, "ip addrlabel "+entry, label)
	}
}

// neighbours lists the entries of next hops, nodes and endpoints, and those that somebody has set. Others come and go,
// and say nothing.
func (r *reader) neighbours() {
	h := r.state.Host
	r.notRead(PartNeighbours, snapshot.NeighbourFile)
	near := r.hops()
	h.EachNeighbour(func(dev string, ip netip.Addr, e host.Neighbour) {
		noted := e.State == "PERMANENT"
		if ip.IsMulticast() || ip.IsLoopback() || dev == "lo" || !noted && !near[ip] {
			return
		}
		text := e.MAC
		switch {
		case e.Failed:
			text = failed
		case e.Static:
			text += byHand
		case text == "":
			return
		}
		r.set(PartNeighbours, dev+" "+ip.String(), text)
	})
	h.EachProxied(func(dev string, ip netip.Addr) {
		r.set(PartNeighbours, dev+" "+ip.String()+" (proxy)", "answered for")
	})
}

// What is said of a neighbour that nobody answered for, and of one that somebody has set.
const (
	failed = "nothing answers"
	byHand = " set by hand"
)

// notable tells whether a neighbour's text says more than its link-layer address.
func notable(text string) bool { return text == failed || strings.HasSuffix(text, byHand) }

// hops are the addresses whose neighbour entries matter: of gateways, of nodes, and of endpoints.
func (r *reader) hops() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			out[a.Unmap()] = true
		}
	}
	for _, v4 := range []bool{true, false} {
		for _, text := range r.state.Host.Routes(v4) {
			words := strings.Fields(text)
			for i, w := range words[:max(len(words)-1, 0)] {
				if w == "via" {
					add(words[i+1])
				}
			}
		}
	}
	for _, n := range r.objects.Nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				add(a.Address)
			}
		}
	}
	for _, s := range r.objects.EndpointSlices {
		for i := range s.Endpoints {
			for _, a := range s.Endpoints[i].Addresses {
				add(a)
			}
		}
	}
	return out
}

// configuration lists kube-proxy's configuration and state, and the versions of kernel and tools.
func (r *reader) configuration(files *snapshot.Node) {
	for _, file := range []string{snapshot.ConfigzFile, snapshot.ProxyConfigFile} {
		if why := r.state.Reading(file).Reason; why != "" {
			r.unread[PartConfiguration] = file + ": " + why
		}
	}
	if m := r.report.Mode; m != nil {
		for _, x := range []struct{ name, value string }{
			{"actual mode", m.Actual},
			{"configured mode", m.Configured},
			{"backend", m.Backend},
			{servedBy, m.ReplacedBy},
			{"health", m.Health},
			{leftoversOf, strings.Join(m.Leftovers, ", ")},
		} {
			if x.value != "" {
				r.set(PartConfiguration, x.name, x.value)
			}
		}
		for _, v := range m.Values {
			if v.Value == "" || v.Name == "mode" {
				continue
			}
			part := PartConfiguration
			if v.Name == "version" {
				part = PartVersions
			}
			r.set(part, kubeProxys+v.Name, v.Value)
			r.sources[kubeProxys+v.Name] = cmp.Or(v.Detail, v.Source)
		}
	}
	r.versions(files)
	for _, node := range r.objects.Nodes {
		if node.Name != r.node {
			continue
		}
		for _, x := range []struct{ name, value string }{
			{"kernel by the API", node.Status.NodeInfo.KernelVersion},
			{"OS image", node.Status.NodeInfo.OSImage},
			{"container runtime", node.Status.NodeInfo.ContainerRuntimeVersion},
			{"kubelet", node.Status.NodeInfo.KubeletVersion},
		} {
			if x.value != "" {
				r.set(PartVersions, x.name, x.value)
			}
		}
	}
}

// versions lists what versions.txt tells, but for the helper's own tools.
func (r *reader) versions(files *snapshot.Node) {
	data, ok, err := files.File(snapshot.VersionsFile)
	switch {
	case err != nil:
		r.unread[PartVersions] = snapshot.Reason(err)
		return
	case !ok:
		r.unread[PartVersions] = ""
		return
	}
	var found []version
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "the helper's") {
			continue
		}
		if strings.ContainsAny(line, "<>{}") { // a page, or an object, in place of what tools print of themselves
			r.unread[PartVersions] = snapshot.VersionsFile + ": it has a line that is no version: " + line
			return
		}
		found = append(found, versionOf(line))
	}
	if len(found) == 0 {
		r.unread[PartVersions] = snapshot.VersionsFile + ": it is empty"
	}
	for _, v := range found[:min(len(found), maxVersions)] {
		r.set(PartVersions, v.of, v.is)
	}
}

// version is a line of versions.txt.
type version struct{ of, is string }

// versionOf reads one: "NAME: VERSION", what a tool prints of itself ("iptables v1.8.9"), or a kernel's release, as
// uname -r prints it.
func versionOf(line string) (v version) {
	if line[0] >= '0' && line[0] <= '9' {
		return version{"kernel", line}
	}
	var named bool
	if v.of, v.is, named = strings.Cut(line, ": "); !named {
		v.of, v.is, _ = strings.Cut(line, " ")
	}
	return v
}

// kubeProxys begins the names of the values of kube-proxy's configuration.
const kubeProxys = "kube-proxy "

// The names of values that say something where one side has them alone, and what begins the names of records.
const (
	servedBy    = "served by"
	leftoversOf = "leftovers of"
	recordsOf   = "rules of program "
)

// maxVersions is how many lines of versions.txt count. A helper writes a dozen.
const maxVersions = 50

// maxOwn is how many texts of a node count as its own: each is searched for in each text.
const maxOwn = 100

// substitution is a text of a node's own, and what stands for it where two nodes are compared.
type substitution struct{ own, name string }

// ownText notes a text of the node's own.
func (r *reader) ownText(own, name string) {
	known := slices.ContainsFunc(r.own, func(s substitution) bool { return s.own == own })
	if own != "" && !known && len(r.own) < maxOwn {
		r.own = append(r.own, substitution{own, name})
	}
}

// sortOwn puts the longest first: a name may be the beginning of another.
func (r *reader) sortOwn() {
	slices.SortStableFunc(r.own, func(a, b substitution) int { return len(b.own) - len(a.own) })
}

// identity notes the addresses, the pod CIDRs and the name of the node.
func (r *reader) identity() {
	add := r.ownText
	add(r.node, "<node>")
	for _, n := range r.objects.Nodes {
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
// behind it: the plugins of CNI (chains of ipmasq and portmap: FormatChainName in pkg/utils of
// github.com/containernetworking/plugins), kube-router, Calico.
var ofOnePod = []string{"CNI-", "KUBE-POD-FW-", "cali-"}

// clients notes what is of the pods that the paths come from: each node has others. A chain is of such a pod if a
// rule that is for its address alone leads there, or if its name has the pod's interface; an address is, if a rule
// leads from there to such a chain.
func (r *reader) clients() {
	seen, chains := map[string]bool{}, map[string]bool{}
	for i := range r.report.Paths {
		o := &r.report.Paths[i].Origin
		a, err := netip.ParseAddr(o.Address)
		if o.Kind != fromPod || seen[o.Address] || err != nil {
			continue
		}
		seen[o.Address] = true
		r.ownText(o.Address, "<client>")
		dev := r.state.Host.DevOf(a)
		for c, rule := range r.rulesOf() {
			if base, ok := strings.CutSuffix(c.Name, "-"+dev); ok && dev != "" && isOfOnePod(c.Name) {
				r.ownText(c.Name, "<client's "+base+">")
				r.ownText(dev, "<client's interface>")
			}
			if (rule.Key.Src == a || rule.Key.Dst == a) && isOfOnePod(rule.Target) {
				r.ownText(rule.Target, "<client's chain>")
				chains[rule.Target] = true
			}
		}
	}
	for _, rule := range r.rulesOf() {
		for _, a := range []netip.Addr{rule.Key.Src, rule.Key.Dst} {
			if a.IsValid() && chains[rule.Target] {
				r.ownText(a.String(), "<client>") // of the other family
			}
		}
	}
}

// rulesOf yields all rules with their chains.
func (r *reader) rulesOf() iter.Seq2[*netfilter.Chain, *netfilter.Rule] {
	return func(yield func(*netfilter.Chain, *netfilter.Rule) bool) {
		for _, t := range r.state.Rules.Tables {
			for _, c := range t.Chains {
				for _, rule := range c.Rules {
					if !yield(c, rule) {
						return
					}
				}
			}
		}
	}
}

// fromPod is the kind of a path's origin that is a pod.
const fromPod = "pod"

func isOfOnePod(chain string) bool {
	return slices.ContainsFunc(ofOnePod, func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}
