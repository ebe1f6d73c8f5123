// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/ipset"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// rules lists the rules of all tables, but for those that stand for virtual servers.
func (r *reader) rules() {
	for _, f := range nodestate.Families {
		for b, have := range r.state.Have[f] {
			r.tables[tableKind{f, b}] = have
		}
		if r.state.ListsUnread() {
			for _, file := range nodestate.SaveFiles[f] {
				if file.Backend != "" && !r.state.Has(file.Name) && r.state.Unread(file.Name) == "" {
					r.tables[tableKind{f, file.Backend}] = true // the node has none
				}
			}
		}
	}
	r.tables[tableKind{0, netfilter.BackendNative}] = r.state.HasNFT()
	for name, file := range programFiles {
		r.tables[tableKind{0, netfilter.Backend(name)}] = r.known(file)
	}
	r.tables[tableKind{0, netfilter.BackendProgram}] = r.known(snapshot.ProgramsFile)
	for _, file := range besideRules {
		if why := r.state.Reading(file).Reason; why != "" {
			r.unread[file] = why
		}
	}
	for _, file := range r.state.UnreadFiles() {
		if nodestate.IsRules(file) {
			r.unread[PartRules] = file + ": " + r.state.Unread(file)
		}
	}
	for f, x := range r.state.NotAll {
		for b := range r.state.Have[f] {
			if x != nil {
				r.holesOf[tableKind{f, b}] = x.String()
			}
		}
	}
	for _, t := range r.state.Rules.Tables {
		if t.Backend == netfilter.BackendIPVS {
			continue
		}
		r.named[tableName(t)] = true
		if t.Holes != "" {
			r.holes[tableName(t)], r.holesOf[kindOf(t)] = t.Holes, tableName(t)+": "+t.Holes
		}
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				if rule.NAT.IsValid() {
					r.endpointOf[c] = rule.NAT
				}
			}
		}
		for _, c := range t.Chains {
			r.chain(t, c)
		}
		r.nativeSets(t)
	}
}

// programFiles are the files of what is no rule and is not in programs.txt, by the names of their tables.
var programFiles = map[string]string{
	"xdp": snapshot.LinkFile, "macvlan": snapshot.LinkFile, "xfrm": snapshot.XfrmFile, "ebtables": snapshot.EbtablesFile,
}

// besideRules are the files of what decides about packets beside rules.
var besideRules = []string{
	snapshot.ProgramsFile, snapshot.XfrmFile, snapshot.EbtablesFile, snapshot.NFTHooksFile,
}

// kindOf is what a table counts as where one side may not have been read.
func kindOf(t *netfilter.Table) tableKind {
	if t.Backend == netfilter.BackendProgram && programFiles[t.Name] != "" {
		return tableKind{0, netfilter.Backend(t.Name)}
	}
	if t.Backend == netfilter.BackendNative || t.Backend == netfilter.BackendProgram {
		return tableKind{0, t.Backend}
	}
	return tableKind{t.Family, t.Backend}
}

// tableName names a table: "IPv4 nat", of iptables-legacy "IPv4 legacy nat", of nftables "IPv4 nft kube-proxy".
func tableName(t *netfilter.Table) string {
	name := t.Name
	switch t.Backend {
	case netfilter.BackendLegacy:
		name = "legacy " + name
	case netfilter.BackendNative:
		name = "nft " + name
	case netfilter.BackendProgram:
		name = "program " + name
	case netfilter.BackendNFT, netfilter.BackendIPVS:
	}
	if t.Family == 0 {
		return name
	}
	return t.Family.String() + " " + name
}

// chain lists the rules of a chain.
func (r *reader) chain(t *netfilter.Table, c *netfilter.Chain) {
	p := place{PartRules, tableName(t), c.Name}
	l := r.at(p)
	l.kind = kindOf(t)
	if c.Base != nil {
		policy := "policy ACCEPT"
		if c.Base.Policy == netfilter.Drop {
			policy = "policy DROP"
		}
		if t.Backend == netfilter.BackendNative {
			policy += fmt.Sprintf(", hook %s, priority %d", c.Base.Hook, c.Base.Priority)
			if len(c.Base.Devices) > 0 {
				policy += ", devices " + strings.Join(c.Base.Devices, " ")
			}
		}
		l.base = policy
	}
	if l.unread = c.Unread; c.Unread != "" && t.Holes == "" {
		r.unread[PartRules] = p.String() + ": " + c.Unread
	}
	own := ownChain(t, c)
	for _, rule := range c.Rules {
		if own != nil && own.choice && t.Backend == netfilter.BackendNative {
			if r.choices(l, t, rule) {
				continue
			}
		}
		x := item{
			key: effectOf(t, c, rule.Text), text: rule.Text, number: rule.Num, target: rule.Target, dst: rule.Key.Dst,
			port: rule.Key.DstPort, endpoint: rule.NAT,
		}
		if to := t.Chain(rule.Target); to != nil && to != c {
			x.endpoint, x.jumps = r.endpointOf[to], true
		}
		if own != nil {
			x.class = own.class(rule)
			if own.choice {
				x.key = withoutProbability(x.key)
			}
		}
		l.items = append(l.items, x)
	}
	if own != nil && own.choice && t.Backend != netfilter.BackendNative {
		l.shares(c.Rules)
	}
	sortClasses(l.items)
}

// ownRule says what kube-proxy writes into a chain in no order of its own.
type ownRule struct {
	choice bool // it chooses an endpoint at random
	class  func(*netfilter.Rule) string
}

// ownChain tells what is known of the order of rules in a chain of kube-proxy's; nil for every other, where each place
// counts. kube-proxy goes through maps of Services and endpoints, so that these are in another order after each start
// (pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go, syncProxyRules).
func ownChain(t *netfilter.Table, c *netfilter.Chain) *ownRule {
	if t.Backend == netfilter.BackendNative {
		if t.Name != kubeproxy.NFTTable {
			return nil
		}
		if strings.HasPrefix(c.Name, kubeproxy.NFTPrefixCluster) || strings.HasPrefix(c.Name, kubeproxy.NFTPrefixLocal) {
			return &ownRule{choice: true, class: func(r *netfilter.Rule) string {
				if strings.Contains(r.Text, "saddr @"+kubeproxy.NFTPrefixAffinity) {
					return "affinity"
				}
				return ""
			}}
		}
		return nil
	}
	switch c.Name {
	case kubeproxy.ChainServices, kubeproxy.ChainNodePorts, kubeproxy.ChainExternalServices,
		kubeproxy.ChainProxyFirewall:
		return &ownRule{class: func(r *netfilter.Rule) string {
			if r.Key.Dst.IsValid() || r.Key.DstPort != 0 {
				return "frontend"
			}
			return ""
		}}
	}
	if strings.HasPrefix(c.Name, kubeproxy.PrefixCluster) || strings.HasPrefix(c.Name, kubeproxy.PrefixLocal) {
		return &ownRule{choice: true, class: func(r *netfilter.Rule) string {
			switch {
			case !strings.HasPrefix(r.Target, kubeproxy.PrefixEndpoint):
				return ""
			case strings.Contains(r.Text, " --rcheck "):
				return "affinity"
			}
			return "endpoint"
		}}
	}
	return nil
}

// choice is a rule of nftables that chooses at random: "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }".
const choice = "numgen random mod "

// maxChoices is how many bytes the texts of the values of a choice may have.
const maxChoices = 16 << 20

// choices lists each value that a rule chooses from as an entry of its own. ok is false where the rule is another one.
func (r *reader) choices(l *list, t *netfilter.Table, rule *netfilter.Rule) (ok bool) {
	before, rest, ok := strings.Cut(rule.Text, choice)
	if !ok {
		return false
	}
	_, rest, ok = strings.Cut(rest, " ")
	how, rest, ok2 := strings.Cut(rest, " { ")
	values, after, ok3 := strings.Cut(rest, " }")
	if !ok || !ok2 || !ok3 {
		return false
	}
	count := map[string]int{}
	for value := range strings.SplitSeq(values, ", ") {
		_, to, ok := strings.Cut(value, " : ")
		if !ok {
			return false
		}
		count[to]++
	}
	if len(before)*strings.Count(values, ", ") > maxChoices {
		return false // each value would get a text of its own
	}
	lead := before + strings.TrimSuffix(choice, " mod ") + " " + how + " "
	n, most := 0, 0
	for to, times := range count {
		x := item{
			key: lead + to + withoutComment(after, true), text: lead + to, number: rule.Num, class: "endpoint",
		}
		if _, chain, ok := strings.Cut(to, "goto "); ok {
			x.target = chain
			if c := t.Chain(chain); c != nil {
				x.endpoint = r.endpointOf[c]
			}
		} else if a, port, ok := strings.Cut(to, " . "); ok {
			x.endpoint = endpointOf(a, port)
		}
		l.items = append(l.items, x)
		n, most = n+times, max(most, times)
	}
	l.endpoints = len(count)
	if most*len(count) != n {
		var shares []string
		for to, times := range count {
			shares = append(shares, fmt.Sprintf("%s %d of %d", to, times, n))
		}
		slices.Sort(shares)
		l.probabilities = strings.Join(shares, ", ")
	}
	return true
}

func endpointOf(addr, port string) netip.AddrPort {
	a, err1 := netip.ParseAddr(addr)
	p, err2 := strconv.ParseUint(port, 10, 16)
	if err1 != nil || err2 != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(p))
}

// probability is the match of iptables that chooses at random.
const probability = " -m statistic --mode random --probability "

// withoutProbability returns a rule without that.
func withoutProbability(text string) string {
	before, after, ok := strings.Cut(" "+text, probability)
	if !ok {
		return text
	}
	_, rest, _ := strings.Cut(after, " ")
	return strings.TrimSpace(before + " " + rest)
}

// sameShare is how far shares may be apart: the kernel keeps a probability in 31 bits.
const sameShare = 1e-6

// shares tells whether the rules that choose at random give each endpoint the same share.
func (l *list) shares(rules []*netfilter.Rule) {
	left := 1.0
	var shares []float64
	for _, r := range rules {
		if !strings.HasPrefix(r.Target, kubeproxy.PrefixEndpoint) || strings.Contains(r.Text, " --rcheck ") {
			continue
		}
		p := 1.0
		if _, after, ok := strings.Cut(r.Text, probability); ok {
			word, _, _ := strings.Cut(after, " ")
			if n, err := strconv.ParseFloat(word, 64); err == nil {
				p = n
			}
		}
		shares = append(shares, left*p)
		left *= 1 - p
	}
	l.endpoints = len(shares)
	text, even := make([]string, 0, len(shares)), true
	for _, s := range shares {
		if math.Abs(s-1/float64(len(shares))) > sameShare {
			even = false
		}
		text = append(text, strconv.FormatFloat(100*s, 'f', 1, 64)+"%")
	}
	if !even {
		l.probabilities = strings.Join(text, ", ")
	}
}

// effectOf is a rule without what does nothing: its chain, which is its place, and comments.
func effectOf(t *netfilter.Table, c *netfilter.Chain, text string) string {
	native := t.Backend == netfilter.BackendNative
	if !native {
		text = strings.TrimPrefix(text, "-A "+c.Name+" ")
	}
	return withoutComment(text, native)
}

// withoutComment returns a rule without its comments: kube-proxy leaves them out above 1,000 endpoints.
func withoutComment(text string, native bool) string {
	lead := " -m comment --comment "
	if native {
		lead = ` comment "`
	}
	text = " " + text
	for range maxComments {
		before, after, ok := strings.Cut(text, lead)
		if !ok {
			break
		}
		if native {
			after = `"` + after
		}
		text = before + after[endOfWord(after):]
	}
	return strings.TrimSpace(text)
}

// maxComments is how many comments of a rule are taken out: each costs a copy of its text.
const maxComments = 8

// endOfWord is where the first word of a text ends, which may be quoted.
func endOfWord(s string) int {
	if !strings.HasPrefix(s, `"`) {
		if at := strings.IndexByte(s, ' '); at >= 0 {
			return at
		}
		return len(s)
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// nativeSets lists the sets and maps of a table of nftables. Those whose elements expire are a memory of packets: what
// is in them is no difference.
func (r *reader) nativeSets(t *netfilter.Table) {
	for _, s := range t.Sets {
		p := place{PartSets, tableName(t), s.Name()}
		l := r.at(p)
		l.kind = kindOf(t)
		if s.Expires() {
			l.base = "its elements expire"
			continue
		}
		if l.unread = s.Unread(); l.unread != "" {
			r.unread[PartSets] = p.String() + ": " + l.unread
		}
		var shown []netfilter.SetElement
		s.Each(func(e netfilter.SetElement) { shown = append(shown, e) })
		i := 0
		s.Texts(func(text string) {
			x := item{key: text, text: text, class: "any"}
			if i < len(shown) {
				x.target, x.dst, x.port = shown[i].Chain, shown[i].Addr, shown[i].Port
			}
			l.items = append(l.items, x)
			i++
		})
		sortClasses(l.items)
	}
}

// tableIPSet stands for a table in the places of ipsets.
const tableIPSet = "ipset"

// sets lists the ipsets.
func (r *reader) sets(files *snapshot.Node) {
	data, ok, err := files.File(snapshot.IPSetFile)
	why := cmp.Or(r.state.Unread(snapshot.IPSetFile), r.state.Reading(snapshot.IPSetFile).Reason)
	switch {
	case why != "":
		r.unread[ipsets] = why
		return
	case err != nil:
		r.unread[ipsets] = snapshot.Reason(err)
		return
	case !ok && !r.state.ListsUnread():
		r.unread[ipsets] = ""
		return
	}
	ipset.Members(data, func(set, member, text string) {
		l := r.at(place{PartSets, tableIPSet, set})
		if member == "" {
			l.base = text
			return
		}
		x := item{key: text, text: text, class: "any"}
		addr, _, _ := strings.Cut(member, ",")
		if a, err := netip.ParseAddr(addr); err == nil {
			x.dst = a
		} else if n, err := strconv.ParseUint(addr, 10, 16); err == nil {
			x.port = uint16(n)
		}
		l.items = append(l.items, x)
	})
	for p, l := range r.lists {
		if p.table == tableIPSet {
			sortClasses(l.items)
		}
	}
}

// servers lists the virtual servers of IPVS with their real servers. The order of real servers means nothing.
func (r *reader) servers() {
	if !r.state.Has(snapshot.IPVSFile) && !r.state.ListsUnread() {
		r.unread[PartServers] = ""
	}
	if why := r.state.Unread(snapshot.IPVSFile); why != "" {
		r.unread[PartServers] = why
	}
	for i := range r.state.Virtual {
		v := &r.state.Virtual[i]
		name, rest, _ := strings.Cut(v.String(), " ")
		at, options, _ := strings.Cut(rest, " ")
		l := r.at(place{PartServers, "", name + " " + at})
		l.base = options
		for k := range v.Reals {
			text := v.Reals[k].String()
			l.items = append(l.items, item{
				key: text, text: text, class: "any", dst: v.Address.Addr(), port: v.Address.Port(),
				endpoint: v.Reals[k].Address,
			})
		}
		sortClasses(l.items)
	}
}
