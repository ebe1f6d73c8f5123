// SPDX-License-Identifier: Apache-2.0

package compare

import (
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

// nftables is the source of native rules.
const nftables = "nftables"

// rules lists the rules of all tables, but for those that stand for virtual servers.
func (r *reader) rules() {
	for _, f := range nodestate.Families {
		for _, file := range nodestate.SaveFiles[f] {
			known := r.state.ListsUnread() && !r.state.Has(file.Name) && r.state.Unread(file.Name) == "" // there are none
			if file.Backend != "" && !known && !r.state.Have[f][file.Backend] {
				r.unread[source{PartRules, saved(f, file.Backend)}] = ""
			}
		}
		if x := r.state.NotAll[f]; x != nil {
			for b := range r.state.Have[f] {
				r.unread[source{PartRules, saved(f, b)}] = x.String()
			}
		}
	}
	if !r.state.HasNFT() {
		r.unread[source{PartRules, nftables}] = ""
	}
	for _, file := range []string{snapshot.ProgramsFile, snapshot.LinkFile, snapshot.XfrmFile, snapshot.EbtablesFile} {
		r.read(PartRules, file)
	}
	for _, file := range r.state.UnreadFiles() {
		if nodestate.IsRules(file) {
			r.unread[source{PartRules, file}] = r.state.Unread(file)
		}
	}
	for _, t := range r.state.Rules.Tables {
		if t.Backend == netfilter.BackendIPVS {
			continue
		}
		r.tables[tableName(t)] = true
		if t.Holes != "" { // of another table nobody knows whether it is there
			r.unread[source{PartRules, sourceOf(t)}] = tableName(t) + ": " + t.Holes
		}
		endpointOf := map[*netfilter.Chain]netip.AddrPort{}
		for _, c := range t.Chains {
			for _, rule := range c.Rules {
				if rule.NAT.IsValid() {
					endpointOf[c] = rule.NAT
				}
			}
		}
		for _, c := range t.Chains {
			r.chain(t, c, endpointOf)
		}
		r.nativeSets(t)
	}
	if why, unread := r.unread[source{PartRules, nftables}]; unread {
		r.unread[source{PartSets, nftables}] = why // they are of the same file
	}
	r.file(PartRules, snapshot.NFTHooksFile, func(text string) {
		r.object(PartRules, "order at hooks", snapshot.NFTHooksFile).set(text)
	})
	for i := range r.state.GroupPrograms {
		g := &r.state.GroupPrograms[i]
		r.object(PartRules, "program cgroup "+g.Group+" "+g.Hook, snapshot.ProgramsFile).add(g.Text)
	}
}

// saved is the source of the rules of one of iptables' backends.
func saved(f netfilter.Family, b netfilter.Backend) string {
	return f.String() + " iptables-" + string(b)
}

// sourceOf is what the rules of a table are read from.
func sourceOf(t *netfilter.Table) string {
	files := map[string]string{
		"xdp": snapshot.LinkFile, "macvlan": snapshot.LinkFile, "xfrm": snapshot.XfrmFile, "ebtables": snapshot.EbtablesFile,
	}
	switch {
	case t.Backend == netfilter.BackendNative:
		return nftables
	case t.Backend != netfilter.BackendProgram:
		return saved(t.Family, t.Backend)
	case files[t.Name] != "":
		return files[t.Name]
	}
	return snapshot.ProgramsFile
}

// tableName names a table: "IPv4 nat", of iptables-legacy "IPv4 legacy nat", of nftables "IPv4 nft kube-proxy".
func tableName(t *netfilter.Table) string {
	name := map[netfilter.Backend]string{
		netfilter.BackendLegacy: "legacy ", netfilter.BackendNative: "nft ", netfilter.BackendProgram: "program ",
	}[t.Backend] + t.Name
	if t.Family == 0 {
		return name
	}
	return t.Family.String() + " " + name
}

// chain lists the rules of a chain.
func (r *reader) chain(t *netfilter.Table, c *netfilter.Chain, endpointOf map[*netfilter.Chain]netip.AddrPort) {
	o := r.object(PartRules, tableName(t)+" "+c.Name, sourceOf(t))
	o.table, o.unread = tableName(t), c.Unread
	native := t.Backend == netfilter.BackendNative
	if c.Base != nil {
		policy := "policy ACCEPT"
		if c.Base.Policy == netfilter.Drop {
			policy = "policy DROP"
		}
		// Whoever lists the rules makes the tables of iptables: an empty chain is none.
		o.weak = !native && policy == "policy ACCEPT" && len(c.Rules) == 0
		if native {
			policy += fmt.Sprintf(", hook %s, priority %d", c.Base.Hook, c.Base.Priority)
			if len(c.Base.Devices) > 0 {
				policy += ", devices " + strings.Join(c.Base.Devices, " ")
			}
		}
		o.set(policy)
	}
	class := classOf(t, c)
	var shares []float64
	left := 1.0
	for _, rule := range c.Rules {
		l := Line{
			Canonical: withoutComment(strings.TrimPrefix(rule.Text, "-A "+c.Name+" "), native), Text: rule.Text,
			Number: rule.Num, target: rule.Target, dst: rule.Key.Dst, port: rule.Key.DstPort, endpoint: rule.NAT,
			class: class(rule),
		}
		if to := t.Chain(rule.Target); to != nil && to != c {
			l.endpoint, l.jumps = endpointOf[to], true
		}
		if l.class == choices && native {
			if some := chosen(&l, t, endpointOf); some != nil {
				o.Lines = append(o.Lines, some...)
				continue
			}
		}
		if l.class == choices {
			var p float64
			l.Canonical, p = withoutProbability(l.Canonical)
			shares = append(shares, left*p)
			left *= 1 - p
		}
		o.Lines = append(o.Lines, l)
	}
	if text := uneven(shares); text != "" {
		o.set("shares: " + text)
	}
}

// classOf tells what is known of the order of rules in a chain of kube-proxy's; in every other each place counts.
// kube-proxy goes through maps of Services and endpoints, so that these are in another order after each start
// (pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go, syncProxyRules).
func classOf(t *netfilter.Table, c *netfilter.Chain) func(*netfilter.Rule) string {
	has := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) })
	}
	native := t.Backend == netfilter.BackendNative
	switch {
	case native && t.Name == kubeproxy.NFTTable && has(kubeproxy.NFTPrefixCluster, kubeproxy.NFTPrefixLocal):
		return func(r *netfilter.Rule) string {
			switch {
			case strings.Contains(r.Text, "saddr @"+kubeproxy.NFTPrefixAffinity):
				return affinity
			case strings.Contains(r.Text, choice):
				return choices
			}
			return ""
		}
	case !native && has(kubeproxy.PrefixCluster, kubeproxy.PrefixLocal):
		return func(r *netfilter.Rule) string {
			switch {
			case !strings.HasPrefix(r.Target, kubeproxy.PrefixEndpoint):
				return ""
			case strings.Contains(r.Text, " --rcheck "):
				return affinity
			}
			return choices
		}
	case !native && slices.Contains([]string{
		kubeproxy.ChainServices, kubeproxy.ChainNodePorts, kubeproxy.ChainExternalServices, kubeproxy.ChainProxyFirewall,
	}, c.Name):
		return func(r *netfilter.Rule) string {
			if r.Key.Dst.IsValid() || r.Key.DstPort != 0 {
				return frontends
			}
			return ""
		}
	}
	return func(*netfilter.Rule) string { return "" }
}

// choice is a rule of nftables that chooses at random: "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }".
const choice = "numgen random mod "

// maxChoices is how many bytes the texts of the values of a choice may have.
const maxChoices = 16 << 20

// chosen makes a line of each value that a rule chooses from, with its share where that is another than the others';
// nil where the rule has another form.
func chosen(l *Line, t *netfilter.Table, endpointOf map[*netfilter.Chain]netip.AddrPort) (out []Line) {
	before, rest, _ := strings.Cut(l.Text, choice)
	_, rest, ok := strings.Cut(rest, " ")
	how, rest, ok2 := strings.Cut(rest, " { ")
	values, _, ok3 := strings.Cut(rest, " }")
	if !ok || !ok2 || !ok3 || len(before)*strings.Count(values, ", ") > maxChoices {
		return nil
	}
	count, n := map[string]int{}, 0
	for value := range strings.SplitSeq(values, ", ") {
		_, to, ok := strings.Cut(value, " : ")
		if !ok {
			return nil
		}
		count[to]++
		n++
	}
	for to, times := range count {
		text := before + strings.TrimSuffix(choice, " mod ") + " " + how + " " + to
		if times*len(count) != n {
			text += fmt.Sprintf(" (%d of %d)", times, n)
		}
		x := Line{Canonical: text, Text: text, Number: l.Number, class: choices}
		if _, chain, ok := strings.Cut(to, "goto "); ok {
			x.target, x.endpoint = chain, endpointOf[t.Chain(chain)]
		} else if a, port, ok := strings.Cut(to, " . "); ok {
			x.endpoint = addrPort(a, port)
		}
		out = append(out, x)
	}
	return out
}

// withoutProbability returns a rule of iptables without its match that chooses at random, and the probability of that.
func withoutProbability(text string) (string, float64) {
	const match = " -m statistic --mode random --probability "
	before, after, ok := strings.Cut(" "+text, match)
	if !ok {
		return text, 1
	}
	word, rest, _ := strings.Cut(after, " ")
	p, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return text, 1
	}
	return strings.TrimSpace(before + " " + rest), p
}

// sameShare is how far shares may be apart: the kernel keeps a probability in 31 bits.
const sameShare = 1e-6

// uneven says how connections are spread over the endpoints of a chain; "" where each gets the same share.
func uneven(shares []float64) string {
	words, even := make([]string, len(shares)), true
	for i, s := range shares {
		even = even && math.Abs(s-1/float64(len(shares))) <= sameShare
		words[i] = strconv.FormatFloat(100*s, 'f', 1, 64) + "%"
	}
	if even {
		return ""
	}
	return strings.Join(words, ", ")
}

// maxComments is how many comments of a rule are taken out: each costs a copy of its text.
const maxComments = 8

// withoutComment returns a rule without its comments: kube-proxy leaves them out above 1,000 endpoints.
func withoutComment(text string, native bool) string {
	lead := " -m comment --comment "
	if native {
		lead = " comment "
	}
	text = " " + text
	for range maxComments {
		before, after, ok := strings.Cut(text, lead)
		if !ok {
			break
		}
		if quoted, err := strconv.QuotedPrefix(after); err == nil {
			after = after[len(quoted):]
		} else if _, rest, more := strings.Cut(after, " "); more {
			after = " " + rest
		} else {
			after = ""
		}
		text = before + after
	}
	return strings.TrimSpace(text)
}

// nativeSets lists the sets and maps of a table of nftables. Those whose elements expire are a memory of packets: what
// is in them is no difference.
func (r *reader) nativeSets(t *netfilter.Table) {
	for _, s := range t.Sets {
		o := r.object(PartSets, tableName(t)+" "+s.Name(), nftables)
		o.table, o.unread = tableName(t), s.Unread()
		if s.Expires() {
			o.set("its elements expire")
			continue
		}
		var shown []netfilter.SetElement
		s.Each(func(e netfilter.SetElement) { shown = append(shown, e) })
		s.Texts(func(text string) {
			o.add(text)
			if i := len(o.Lines) - 1; i < len(shown) {
				o.Lines[i].target, o.Lines[i].dst, o.Lines[i].port = shown[i].Chain, shown[i].Addr, shown[i].Port
			}
		})
	}
}

// ipsets lists the sets of ipset.
func (r *reader) ipsets() {
	r.read(PartSets, snapshot.IPSetFile)
	data, _, err := r.files.File(snapshot.IPSetFile)
	if err != nil {
		r.unread[source{PartSets, snapshot.IPSetFile}] = snapshot.Reason(err)
		return
	}
	ipset.Members(data, func(set, member, text string) {
		o := r.object(PartSets, "ipset "+set, snapshot.IPSetFile)
		if member == "" {
			o.set(text)
			return
		}
		o.add(text)
		l := &o.Lines[len(o.Lines)-1]
		addr, _, _ := strings.Cut(member, ",")
		if a, err := netip.ParseAddr(addr); err == nil {
			l.dst = a
		} else if n, err := strconv.ParseUint(addr, 10, 16); err == nil {
			l.port = uint16(n)
		}
	})
}

// servers lists the virtual servers of IPVS with their real servers.
func (r *reader) servers() {
	r.read(PartServers, snapshot.IPVSFile)
	for i := range r.state.Virtual {
		v := &r.state.Virtual[i]
		name, rest, _ := strings.Cut(v.String(), " ")
		at, options, _ := strings.Cut(rest, " ")
		o := r.object(PartServers, name+" "+at, snapshot.IPVSFile).set(options)
		for k := range v.Reals {
			o.add(v.Reals[k].String())
			o.Lines[k+1].endpoint = v.Reals[k].Address
		}
		for k := range o.Lines {
			o.Lines[k].dst, o.Lines[k].port = v.Address.Addr(), v.Address.Port()
		}
	}
}

// addrPort is the zero AddrPort where the texts are no address and port.
func addrPort(address, port string) netip.AddrPort {
	a, err := netip.ParseAddr(address)
	p, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(p))
}
