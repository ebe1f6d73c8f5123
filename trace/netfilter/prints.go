// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/digest"
)

// Prints are digests of a linked ruleset, by which it is compared with another reading of the same node. They keep
// nothing of it alive.
type Prints struct {
	// frame is of the tables, their base chains, and all that these have.
	frame  digest.Sum
	chains []chainPrint // by Chain.number
	at     map[digest.Sum]int32
	loops  loops
	// unfit says that what packets meet may differ though the texts are the same: a rule goes by the time, a jump leads
	// to a chain that is not there, two chains have one name.
	unfit bool
}

// chainPrint is of one chain. loops is of the sets that its rules look packets up in as looksUpLoops has it, which are
// not part of content.
type chainPrint struct{ name, content, loops digest.Sum }

// loops are the elements of sets that hold packets from an address to itself, as kube-proxy's of hairpin connections
// does (since 1.36): of one that comes or goes only the paths to its address are others. By the digests of table, set
// and element; of one that is no such element the address is zero.
type loops map[digest.Sum]netip.Addr

// looksUpLoops is a rule that looks a packet up by both of its addresses, as nft prints it, up to the set's name.
var looksUpLoops = lazyregexp.New(`^(ct status \S+ )?ip6? saddr \. ip6? daddr \. meta l4proto \. th dport $`)

// Prints returns the prints of a ruleset. The virtual servers of IPVS have real servers that no text shows, and count
// as the same.
func (rs *Ruleset) Prints() *Prints {
	out := &Prints{chains: make([]chainPrint, rs.count), at: make(map[digest.Sum]int32, rs.count), loops: loops{}}
	frame, p := digest.New(), digest.New()
	for i, t := range rs.Tables {
		frame.Number(int(t.Family))
		frame.Text(string(t.Backend))
		frame.Text(t.Name)
		frame.Text(t.Holes)
		sets := setPrints(t, p)
		apart := map[string]string{} // sets of loops, if there are any, with their declarations
		for _, s := range t.Sets {
			if s.Unread() == "" && !s.Expires() {
				apart[s.Name()] = s.Declaration()
			}
		}
		for _, c := range t.Chains {
			p.Reset()
			p.Number(i)
			p.Text(c.Name)
			name := p.Sum()
			if _, twice := out.at[name]; twice || t.timed(c) || t.leadsNowhere(c) {
				out.unfit = true
			}
			p.Reset()
			looped := c.print(p, sets, apart)
			content := p.Sum()
			p.Reset()
			for _, name := range looped {
				p.Add(sets[name])
				out.loops.add(i, t.Set(name))
			}
			out.at[name], out.chains[c.number] = c.number, chainPrint{name, content, p.Sum()}
			if c.Base != nil {
				frame.Text(c.Name)
				c.print(frame, sets, nil)
			}
		}
	}
	out.frame = frame.Sum()
	return out
}

// timed tells whether a rule of a chain asks for the time (xt_time), so that the same rule does not do the same later.
func (t *Table) timed(c *Chain) bool {
	if t.Backend != BackendNFT && t.Backend != BackendLegacy {
		return false
	}
	for _, r := range c.Rules {
		if strings.Contains(r.Text, " -m time ") {
			return true
		}
	}
	return false
}

// leadsNowhere tells whether a rule of a chain leads to one that the table does not have: once it has, the rule does
// something else.
func (t *Table) leadsNowhere(c *Chain) bool {
	for name := range c.JumpTargets() {
		if t.byName[name] == nil {
			return true
		}
	}
	return false
}

// setPrints are those of a table's sets and maps, by name.
func setPrints(t *Table, p *digest.Digest) map[string]digest.Sum {
	if len(t.Sets) == 0 {
		return nil
	}
	out := make(map[string]digest.Sum, len(t.Sets))
	for _, s := range t.Sets {
		p.Reset()
		p.Text(s.Declaration())
		p.Text(s.Unread())
		s.Texts(p.Text)
		out[s.Name()] = p.Sum()
	}
	return out
}

// add adds the elements of a set of the table with a number.
func (l loops) add(table int, s Set) {
	p := digest.New()
	var addresses []netip.Addr
	s.Each(func(e SetElement) { addresses = append(addresses, e.Addr) })
	i := 0
	s.Texts(func(text string) {
		a := addresses[i]
		i++
		if !a.IsValid() || !strings.HasPrefix(text, a.String()+" . "+a.String()+" . ") {
			a = netip.Addr{}
		}
		p.Reset()
		p.Number(table)
		p.Text(s.Name())
		p.Text(text)
		l[p.Sum()] = a
	})
}

// touched returns the addresses of the elements that are not in both; ok is false where one of them has none.
func (l loops) touched(later loops) (addresses map[netip.Addr]bool, ok bool) {
	addresses = map[netip.Addr]bool{}
	for _, pair := range [][2]loops{{l, later}, {later, l}} {
		for sum, a := range pair[0] {
			if _, both := pair[1][sum]; !both {
				addresses[a] = true
			}
		}
	}
	return addresses, !addresses[netip.Addr{}]
}

// print adds all that decides what a chain does: its texts, and the sets and maps that these name, but for those of
// loops that are in apart, which it returns.
func (c *Chain) print(p *digest.Digest, sets map[string]digest.Sum, apart map[string]string) (looped []string) {
	p.Text(c.Unread)
	p.Flag(c.Base != nil)
	if b := c.Base; b != nil {
		p.Number(int(b.Hook))
		p.Number(b.Priority)
		p.Number(int(b.Type))
		p.Number(int(b.Policy))
		p.Flag(b.Devices != nil)
		p.Number(len(b.Devices))
		for _, d := range b.Devices {
			p.Text(d)
		}
	}
	p.Number(len(c.Rules))
	if sets == nil && c.mayBeReordered() {
		c.printRules(p)
		return nil
	}
	for _, r := range c.Rules {
		p.Number(r.Num)
		r.print(p)
		if sets == nil {
			continue
		}
		for rest := r.Text; ; {
			before, after, found := strings.Cut(rest, "@")
			if !found {
				break
			}
			end := strings.IndexAny(after, " ,}")
			if end < 0 {
				end = len(after)
			}
			name := after[:end]
			if declaration := apart[name]; declaration != "" && len(rest) == len(r.Text) &&
				looksUpLoops().MatchString(before) {
				p.Text(declaration)
				looped = append(looped, name)
			} else {
				p.Add(sets[name]) // zero of what is no set ("@th,16,16")
			}
			rest = after
		}
	}
	return looped
}

// Changed is what a chain's number becomes whose content is not what it was, or that is gone.
const Changed = -1

// Moves says what became of the chains of a reading in a later one.
type Moves struct {
	// Numbers has for each chain its number in the later reading, or Changed.
	Numbers []int32
	// ButFor has the same of chains that do the same with all packets but those to the addresses of Touched. Where these
	// are not known it is Numbers.
	ButFor  []int32
	Touched map[netip.Addr]bool
}

// Moved compares with a later reading; ok is false where more may have changed than chains that are only jumped to.
func (x *Prints) Moved(later *Prints) (m Moves, ok bool) {
	if x.unfit || later.unfit || x.frame != later.frame {
		return Moves{}, false
	}
	m.Numbers, m.ButFor = make([]int32, len(x.chains)), make([]int32, len(x.chains))
	for i := range x.chains {
		c := &x.chains[i]
		m.Numbers[i], m.ButFor[i] = Changed, Changed
		if at, there := later.at[c.name]; there && later.chains[at].content == c.content {
			m.ButFor[i] = at
			if later.chains[at].loops == c.loops {
				m.Numbers[i] = at
			}
		}
	}
	var known bool
	if m.Touched, known = x.loops.touched(later.loops); !known {
		m.ButFor, m.Touched = m.Numbers, nil
	}
	return m, true
}

// Trail has the chains that the walks of a Walker come to, by their numbers ([Prints.Moved]). It is for one goroutine.
type Trail struct {
	seen  []uint32 // by number: the round in which the walks last came to the chain
	round uint32
	met   []int32
}

// NewTrail makes a Trail for walks through a linked ruleset.
func (rs *Ruleset) NewTrail() *Trail { return &Trail{seen: make([]uint32, rs.count), round: 1} }

// Begin forgets the walks before. Of nil there are none.
func (t *Trail) Begin() {
	if t == nil {
		return
	}
	t.round++
	t.met = t.met[:0]
}

// Met returns the numbers of the chains, each once. They are good until the next Begin.
func (t *Trail) Met() []int32 { return t.met }

func (t *Trail) add(c *Chain) {
	if n := c.number; t.seen[n] != t.round {
		t.seen[n] = t.round
		t.met = append(t.met, n)
	}
}

// WithTrails has a Walker note the chains that it comes to: those of what it asks for one path, and those of what it
// finds out for all packets of a class, and remembers.
func WithTrails(path, classes *Trail) WalkerOption {
	return func(w *Walker) { w.trail, w.classTrail = path, classes }
}

// Number is the chain's among all of its linked ruleset.
func (c *Chain) Number() int32 { return c.number }
