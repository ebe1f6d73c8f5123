// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

const (
	// virtualFile has the virtual servers.
	virtualFile = "ipvsadm.txt"
	// ipvsDevice is the interface that ipvs mode gives the addresses of Services to (pkg/proxy/ipvs/proxier.go, defaultDummyDevice).
	ipvsDevice = "kube-ipvs0"
)

func (n *node) readVirtual() error {
	data, err := n.file(virtualFile)
	if err != nil || data == nil {
		return err
	}
	if n.virtual, err = ipvs.Parse(data); err != nil {
		return fmt.Errorf("node %s: %s: %w", n.name, virtualFile, err)
	}
	n.servers = make(map[frontendKey]*ipvs.VirtualServer, len(n.virtual))
	for i := range n.virtual {
		v := &n.virtual[i]
		if v.Address.IsValid() {
			n.servers[frontendKey{v.Address.Addr(), protocolByName(v.Protocol), v.Address.Port()}] = v
		}
	}
	return nil
}

func protocolByName(name string) uint8 {
	p, _ := op.Protocol(strings.ToLower(name))
	return p
}

// addVirtual puts the virtual servers among the rules.
func (n *node) addVirtual() {
	tracked := op.Maybe
	if v, ok := n.net.Sysctl("net/ipv4/vs/conntrack"); ok {
		tracked = op.Is(v != "0")
	}
	tables := ipvs.Tables(n.virtual, tracked)
	for _, t := range tables {
		if n.isIPVS() {
			t.Name = ipvsTable
		}
	}
	n.rules.Add(tables...)
}

// virtualNotRead says why nothing can be said of a node in ipvs mode; "" where something can. Where the collector says what it could
// not read, a file that is not there is a table that the kernel does not have.
func (n *node) virtualNotRead() string {
	switch {
	case !n.isIPVS() || n.files.Has(virtualFile):
		return ""
	case n.reasons[virtualFile] != "":
		return virtualFile + " was not read: " + n.reasons[virtualFile]
	case n.reasons == nil:
		return virtualFile + " was not collected: that is where ipvs mode has its virtual servers"
	}
	return ""
}

// hasVirtual tells whether there is a virtual server of a family.
func (n *node) hasVirtual(f netfilter.Family) bool {
	return slices.ContainsFunc(n.virtual, func(v ipvs.VirtualServer) bool {
		return v.Address.IsValid() && netfilter.FamilyOf(v.Address.Addr()) == f
	})
}

// iptablesLeft tells whether rules of iptables mode are live. In ipvs mode the chain of all Services is written anew, but what
// iptables mode has refused stays refused (kubernetes/kubernetes#96034).
func (n *node) iptablesLeft() bool {
	if !n.isIPVS() || n.holds(&iptablesDialect) {
		return n.holds(&iptablesDialect)
	}
	for _, t := range n.rules.Tables {
		if t.Name != "filter" || t.Backend == netfilter.BackendNative {
			continue
		}
		reachable := reachableChains(t)
		for _, name := range frontendChains["filter"][:2] {
			if c := t.Chain(name); c != nil && reachable[c] && len(c.Rules) > 0 {
				return true
			}
		}
	}
	return false
}

// virtualLeft tells whether virtual servers serve frontends of Services that the command program has not given to them.
func (n *node) virtualLeft() bool {
	ours := n.programServers()
	for k := range n.servers {
		if n.isFrontend(k) && !ours[k] {
			return true
		}
	}
	return false
}

// addressesLeft tells whether the interface of ipvs mode has addresses of Services.
func (n *node) addressesLeft() bool { return len(n.net.AddressesOn(ipvsDevice)) > 0 }

// isFrontend tells whether an address and port, also that of a NodePort, is a frontend of a Service.
func (n *node) isFrontend(k frontendKey) bool {
	if n.frontends[k] {
		return true
	}
	local, _ := n.net.Local(k.addr)
	return local && n.frontends[frontendKey{proto: k.proto, port: k.port}]
}

// virtual judges the virtual server of a frontend, and says where the issues that the walk has found come from. What the walk has found
// and a finding about the virtual server explains is left out.
func (j *judge) virtual(want *expect.Path, got *tally, issues []issue) []issue {
	f := want.Frontend
	if want.Action == expect.None || want.Action == expect.Drop && len(issues) == 0 {
		return issues
	}
	if shared := j.sharedFrontend(want, got); shared != nil && len(issues) > 0 {
		return []issue{*shared}
	}
	v := j.servers[frontendKey{f.Address, protocolNumber(f.Protocol), f.Port}]
	local, known := j.net.Local(f.Address)
	var found []issue
	switch {
	case !j.programmed[netfilter.FamilyOf(f.Address)]:
		if len(issues) == 0 {
			return nil
		}
		is := issue{code: NotProgrammed, expected: describe(want), message: "the node has no virtual servers, or no rules, of kube-proxy's"}
		if j.programmed[netfilter.Inet&^netfilter.FamilyOf(f.Address)] {
			is.code = FamilyMissing
			is.message = fmt.Sprintf("kube-proxy has programmed %s on this node, but not %s", netfilter.Inet&^netfilter.FamilyOf(f.Address), netfilter.FamilyOf(f.Address))
		}
		return []issue{is}
	case v == nil:
		return append(without(issues, everyCode...), issue{
			code: VirtualServerMissing, subject: virtualName(f), expected: describe(want), actual: "none",
			message: "IPVS has no virtual server for this frontend",
		})
	case known && !local && want.Origin.Kind != expect.FromNode && len(issues) > 0:
		return append(without(issues, everyCode...), issue{
			code: VIPMissing, subject: f.Address.String(), expected: "on " + ipvsDevice, actual: "on no interface", evidence: []string{"ipvs " + v.String()},
			message: f.Address.String() + " is no address of the node: what comes in for it is forwarded, and IPVS never sees it",
		})
	}
	found = append(found, j.realServers(want, v)...)
	found = append(found, j.serverSettings(want, v)...)
	issues = without(issues, MissingEndpoint)
	if hasCode(found, RealServerWeightZero) || hasCode(found, MissingEndpoint) {
		issues = slices.DeleteFunc(issues, func(is issue) bool {
			return is.where.Chain != nil && isIPVSKube(is.where.Chain.Table) && is.code == RefusedWithEndpoints
		})
	}
	return append(found, j.around(want, issues)...)
}

// everyCode are those of issues that a virtual server which is not reached, or not there, explains.
var everyCode = []string{
	ServiceNotProgrammed, MissingEndpoint, RejectedCode, RefusedWithEndpoints, AcceptedWithoutEndpoints, NoRoute, UnevenShare, WrongMasquerade,
	SourceRangesMismatch, TrafficPolicyMismatch, StaleEndpoint,
}

func without(issues []issue, codes ...string) []issue {
	return slices.DeleteFunc(issues, func(is issue) bool { return slices.Contains(codes, is.code) })
}

func hasCode(issues []issue, code string) bool {
	return slices.ContainsFunc(issues, func(is issue) bool { return is.code == code })
}

func virtualName(f expect.Frontend) string {
	return string(f.Protocol) + " " + netip.AddrPortFrom(f.Address, f.Port).String()
}

// realServers holds the real servers against the endpoints that are due.
func (j *judge) realServers(want *expect.Path, v *ipvs.VirtualServer) []issue {
	var out []issue
	due := map[netip.AddrPort]bool{}
	for i := range want.Endpoints {
		at := want.Endpoints[i].Address
		due[at] = true
		k := slices.IndexFunc(v.Reals, func(r ipvs.RealServer) bool { return r.Address == at })
		switch {
		case k < 0:
			out = append(out, issue{
				code: MissingEndpoint, subject: at.String(), endpoints: []string{at.String()}, expected: percent(1 / float64(len(want.Endpoints))), actual: "none", evidence: citeVirtual(v),
				message: fmt.Sprintf("the virtual server has %d real servers, and not this one", len(v.Reals)),
			})
		case v.Reals[k].Weight == 0:
			out = append(out, issue{
				code: RealServerWeightZero, subject: at.String(), endpoints: []string{at.String()}, expected: "weight 1", actual: "weight 0", evidence: []string{"ipvs " + v.String() + " -> " + v.Reals[k].String()},
				message: "the real server gets no new connections, yet the endpoint is one to use",
			})
		}
	}
	for i := range v.Reals {
		r := &v.Reals[i]
		cite := []string{"ipvs " + v.String() + " -> " + r.String()}
		if r.Method != "Masq" && r.Method != "Local" {
			out = append(out, issue{
				code: ForwardMethod, subject: r.Address.String(), endpoints: []string{r.Address.String()}, expected: "Masq", actual: r.Method, evidence: cite,
				message: "IPVS sends connections to this real server without translating them: a pod does not answer for the Service's address",
			})
		}
		if r.Weight == 0 && !due[r.Address] && want.Action != expect.Drop {
			out = append(out, j.terminating(want, r, cite))
		}
	}
	return out
}

// terminating is a real server that kube-proxy keeps, without new connections, until its last one has ended
// (pkg/proxy/ipvs/graceful_termination.go).
func (j *judge) terminating(want *expect.Path, r *ipvs.RealServer, cite []string) issue {
	is := issue{code: RealServerTerminating, subject: r.Address.String(), endpoints: []string{r.Address.String()}, expected: "no new connections", actual: "weight 0", evidence: cite}
	is.message = "the endpoint is no longer to be used; the real server stays, without new connections, until the last one has ended"
	if r.Active > 0 || r.Inactive > 0 {
		is.message += fmt.Sprintf(" (%d active, %d inactive)", r.Active, r.Inactive)
	}
	if want.Frontend.Protocol != "TCP" {
		is.message += "; for " + string(want.Frontend.Protocol) + " kube-proxy removes it at once"
	}
	return is
}

// serverSettings holds the scheduler and the persistence against what is configured.
func (j *judge) serverSettings(want *expect.Path, v *ipvs.VirtualServer) []issue {
	var out []issue
	if old, ok := j.net.Sysctl("net/ipv4/vs/expire_quiescent_template"); ok && old == "0" && v.Persistent > 0 {
		for i := range v.Reals {
			if r := &v.Reals[i]; r.Weight == 0 {
				out = append(out, issue{
					code: PersistenceStale, subject: r.Address.String(), endpoints: []string{r.Address.String()}, expected: "net.ipv4.vs.expire_quiescent_template=1", actual: "0", evidence: citeVirtual(v),
					message: "clients that have been at this real server go on being sent to it, though it is to get no new connections",
				})
			}
		}
	}
	if v.Scheduler != j.scheduler {
		out = append(out, issue{
			code: SchedulerMismatch, subject: virtualName(want.Frontend), expected: j.scheduler, actual: v.Scheduler, evidence: citeVirtual(v),
			message: "the virtual server shares out connections by another scheduler than kube-proxy's configuration names",
		})
	}
	return append(out, j.persistence(want, v)...)
}

// persistence holds a virtual server's persistence against the Service's session affinity.
func (j *judge) persistence(want *expect.Path, v *ipvs.VirtualServer) []issue {
	due := j.exp.Affinity(want.Frontend)
	var out []issue
	if uint32(due) != v.Persistent { //nolint:gosec // seconds, at most a day
		seconds := func(s uint32) string {
			if s == 0 {
				return "none"
			}
			return "ClientIP for " + strconv.FormatUint(uint64(s), 10) + "s"
		}
		out = append(out, issue{
			code: PersistenceMismatch, subject: virtualName(want.Frontend), expected: seconds(uint32(due)), actual: seconds(v.Persistent), evidence: citeVirtual(v), //nolint:gosec // as above
			message: "the virtual server does not keep clients at their real server as the Service's session affinity asks for",
		})
	}
	return out
}

// citeVirtual quotes a virtual server and its real servers.
func citeVirtual(v *ipvs.VirtualServer) []string {
	out := []string{"ipvs " + v.String()}
	for i := range v.Reals {
		if i == maxEvidence {
			return append(out, fmt.Sprintf("… and %d more real servers", len(v.Reals)-i))
		}
		out = append(out, "  -> "+v.Reals[i].String())
	}
	return out
}

// around explains what is wrong with the rules and sets around IPVS: they mark for masquerade, and refuse.
func (j *judge) around(want *expect.Path, issues []issue) []issue {
	if len(issues) == 0 {
		return nil
	}
	res := j.walker.Walk(start(want.Frontend, want.Origin), netfilter.Options{Steps: true})
	way := j.wayOf(&res)
	missing := j.entriesMissing(want)
	var out []issue
	for i := range issues {
		is := issues[i]
		switch {
		case is.code == StaleEndpoint:
			j.stale(want, &is)
		case is.code != WrongMasquerade && is.code != SourceRangesMismatch && !byKube(is.where):
		case is.code == WrongMasquerade && is.actual == "Never" && j.untracked():
			is = issue{
				code: IPVSConntrackOff, expected: "net.ipv4.vs.conntrack=1", actual: "0", subject: is.subject, endpoints: is.endpoints,
				message: "IPVS keeps its connections from connection tracking: their source is never translated, and answers do not come back",
			}
		case len(missing) > 0:
			is = issue{
				code: IPSetMissing, subject: strings.Join(missing, ", "), expected: "an entry", actual: "none", evidence: is.evidence,
				message: "the set has no entry for the frontend: " + j.withoutEntry(&is),
			}
		case is.code == WrongMasquerade && is.actual == "Never" && way.services() == nil:
			is.code, is.message = NotProgrammed, fmt.Sprintf("%s does not lead to %s: nothing marks packets whose source is to be translated", way.baseChain(hookOf(want)), way.dialect.services)
		case is.code == WrongMasquerade:
			is.evidence = way.masquerading()
		}
		if !slices.ContainsFunc(out, func(o issue) bool { return o.code == is.code && o.subject == is.subject }) {
			out = append(out, is)
		}
	}
	return out
}

// withoutEntry says what comes of a missing entry.
func (j *judge) withoutEntry(is *issue) string {
	if is.where.Chain != nil && is.where.Chain.Name == "KUBE-IPVS-FILTER" {
		return is.where.String() + " rejects the packet as one to a port of the node itself"
	}
	return is.message
}

func (n *node) untracked() bool {
	v, ok := n.net.Sysctl("net/ipv4/vs/conntrack")
	return ok && v == "0"
}

// setEntry is an element that a set of ipvs mode must have for a frontend: the packet that it is asked for, and by which fields.
type setEntry struct {
	set    string
	flags  []string
	packet netfilter.Packet
}

// ipvsSetName is the name of a set in a family: at most 31 characters (pkg/proxy/ipvs/ipset.go, NewIPSet).
func ipvsSetName(name string, f netfilter.Family) string {
	const longest = 31
	if f == netfilter.IPv6 {
		name = strings.Replace(name, "KUBE-", "KUBE-6-", 1)
	}
	return name[:min(len(name), longest)]
}

// entriesDue lists what the sets must have for a path (pkg/proxy/ipvs/proxier.go, syncProxyRules).
func (j *judge) entriesDue(want *expect.Path) []setEntry {
	f := want.Frontend
	family := netfilter.FamilyOf(f.Address)
	svc := j.services[f.Service]
	local := policyOf(svc, expect.NodePort)
	at := netfilter.Packet{Family: family, Proto: protocolNumber(f.Protocol), Src: want.Origin.Address, Dst: f.Address, DstPort: f.Port}
	var out []setEntry
	add := func(set string, p netfilter.Packet, flags ...string) {
		out = append(out, setEntry{ipvsSetName(set, family), flags, p})
	}
	switch f.Kind {
	case expect.ClusterIP:
		add("KUBE-CLUSTER-IP", at, "dst", "dst")
	case expect.ExternalIP:
		set := "KUBE-EXTERNAL-IP"
		if local {
			set += "-LOCAL"
		}
		add(set, at, "dst", "dst")
	case expect.LoadBalancerIP:
		add("KUBE-LOAD-BALANCER", at, "dst", "dst")
		if local {
			add("KUBE-LOAD-BALANCER-LOCAL", at, "dst", "dst")
		}
		if len(svc.Spec.LoadBalancerSourceRanges) > 0 {
			add("KUBE-LOAD-BALANCER-FW", at, "dst", "dst")
			if want.Action == expect.DNAT && want.Origin.Kind != expect.FromNode {
				add("KUBE-LOAD-BALANCER-SOURCE-CIDR", at, "dst", "dst", "src")
			}
		}
	case expect.NodePort:
		flags, suffix := []string{"dst"}, string(f.Protocol)
		if f.Protocol == "SCTP" {
			flags, suffix = append(flags, "dst"), suffix+"-HASH"
		}
		add("KUBE-NODE-PORT-"+suffix, at, flags...)
		if local {
			add("KUBE-NODE-PORT-LOCAL-"+suffix, at, flags...)
		}
	}
	for i := range want.Endpoints {
		if e := &want.Endpoints[i]; e.Local {
			self := at
			self.Src, self.Dst, self.DstPort = e.Address.Addr(), e.Address.Addr(), e.Address.Port()
			add("KUBE-LOOP-BACK", self, "dst", "dst", "src")
		}
	}
	return out
}

// entriesMissing names the sets that lack what they must have for a path.
func (j *judge) entriesMissing(want *expect.Path) []string {
	if j.sets == nil {
		return nil
	}
	var out []string
	for _, e := range j.entriesDue(want) {
		c := netfilter.Context{Packet: &e.packet, Host: j.net, Sets: j.sets}
		if in, known, _ := j.sets.Match(&c, e.set, e.flags); known && !in && !slices.Contains(out, e.set) {
			out = append(out, e.set)
		}
	}
	return out
}

// staleVirtual finds virtual servers that belong to no Service. What kube-proxy is told to leave alone, and what is by firewall mark, is
// others'.
func (n *node) staleVirtual() []report.Finding {
	var out []report.Finding
	for i := range n.virtual {
		v := &n.virtual[i]
		if !v.Address.IsValid() || n.isFrontend(frontendKey{v.Address.Addr(), protocolByName(v.Protocol), v.Address.Port()}) ||
			slices.ContainsFunc(n.excluded, func(p netip.Prefix) bool { return p.Contains(v.Address.Addr()) }) {
			continue
		}
		out = append(out, n.finding(VirtualServerStale, v.Protocol+" "+v.Address.String(), issue{
			expected: "none", actual: fmt.Sprintf("%d real servers", len(v.Reals)), evidence: citeVirtual(v),
			message: "IPVS has a virtual server that belongs to no Service",
		}))
	}
	return out
}

// staleAddresses finds addresses on kube-ipvs0 that no Service has, among them those that it must never have: the node's own.
func (n *node) staleAddresses() []report.Finding {
	due := map[netip.Addr]bool{}
	for k := range n.frontends {
		due[k.addr] = true
	}
	var out []report.Finding
	for _, a := range n.net.AddressesOn(ipvsDevice) {
		if due[a] || a.IsLinkLocalUnicast() {
			continue
		}
		is := issue{expected: "not on " + ipvsDevice, actual: "on it", message: "the node takes an address for its own that no Service has: nothing that is sent to it leaves the node"}
		if a == n.internalIP(a.Is4()) {
			is.message = "the node's own address is on " + ipvsDevice + ", which kube-proxy clears of what no Service has"
		}
		out = append(out, n.finding(VIPStale, a.String(), is))
	}
	return out
}
