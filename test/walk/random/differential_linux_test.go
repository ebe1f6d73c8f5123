// SPDX-License-Identifier: Apache-2.0

package random

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// The number of cases, and the seed of the first rule set, unless the environment says otherwise.
const (
	casesVariable, defaultCases = "SVCPROXY_DIFF_CASES", 6_000
	seedVariable, defaultSeed   = "SVCPROXY_DIFF_SEED", 1
)

const (
	packetsEach   = 20   // packets through one rule set, one of a kind
	repeats       = 60   // of a packet whose path is random
	maxRepeated   = 2    // packets of a rule set that are repeated
	maxDifference = 10   // after so many the test stops
	enough        = 5000 // cases, to say whether enough is known of them
)

var tools = []string{
	"ip", "nft", "ipset", "iptables-nft-restore", "iptables-legacy-restore", "ip6tables-nft-restore",
	"ip6tables-legacy-restore",
	"iptables-nft-save", "iptables-legacy-save", "ip6tables-nft-save", "ip6tables-legacy-save",
}

// figures are what a run has come to.
type figures struct {
	cases, unknown, traced, whole, sets, rules, tests int
	ends                                              [4]int
	untaken                                           int
	why                                               map[string]int // what was not known
}

func TestRandomRuleSetsAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, tools...) {
		return
	}
	w, err := newKernelNode(t)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.load(&ruleSet{}); err != nil {
		t.Skipf("the rules that watch the packets are not taken: %v", err)
	}
	words := vocabularyOf(t, w)
	seed, cases := uint64(testutil.Count(t, seedVariable, defaultSeed)), testutil.Count(t, casesVariable, defaultCases)
	f := figures{why: map[string]int{}}
	start := time.Now()
	differences := 0
	for ; f.cases < cases; seed++ {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), vocabulary: words}
		if d := w.try(t, g, &f); d != nil {
			differences++
			w.report(t, seed, d)
			if differences == maxDifference {
				break
			}
		}
	}
	took := time.Since(start)
	t.Logf("%d cases in %v (%.0f a second), %d rule sets with %d rules, seeds up to %d", f.cases,
		took.Round(time.Millisecond), float64(f.cases)/took.Seconds(), f.sets, f.rules, seed-1)
	t.Logf("the kernel: %d dropped, %d rejected, %d sent, %d delivered", f.ends[vanished], f.ends[refused], f.ends[sent],
		f.ends[delivered])
	t.Logf("%d (%.1f%%) unknown to the walk; %d with a trace, %d of these compared rule by rule; %d shares tested; "+
		"%d rule sets not taken", f.unknown, 100*float64(f.unknown)/float64(max(f.cases, 1)), f.traced, f.whole, f.tests,
		f.untaken)
	type reason struct {
		why string
		n   int
	}
	var reasons []reason
	for why, n := range f.why {
		reasons = append(reasons, reason{why, n})
	}
	slices.SortFunc(reasons, func(a, b reason) int { return cmp.Compare(b.n, a.n) })
	for _, r := range reasons[:min(len(reasons), 12)] {
		t.Logf("  not known %d times: %s", r.n, r.why)
	}
	if f.cases < enough {
		return // one rule set may well be odd
	}
	if f.untaken*20 > f.sets {
		t.Error("too many rule sets are not taken")
	}
	if f.unknown*5 > f.cases || f.whole*25 < f.cases {
		t.Error("too little is known of the packets' paths, or seen of them")
	}
}

// difference is a case that differs, with what is needed to repeat it.
type difference struct {
	rules  *ruleSet
	packet packet
	answer answer
	judged judged
	walk   netfilter.Result
	times  int // how often the packet was sent to see it
}

// try makes a rule set and sends packets through it. It returns the first difference.
func (w *kernelNode) try(t *testing.T, g *generator, f *figures) *difference {
	t.Helper()
	rs := g.ruleSet()
	if err := w.load(rs); err != nil {
		t.Logf("not taken: %v", err)
		f.untaken++
		return nil
	}
	f.sets++
	f.rules += rs.rules()
	repeated := 0
	for range packetsEach {
		p := g.packet()
		d, j := w.try1(t, rs, p, f)
		if d != nil {
			return d
		}
		if j.verdict == unknown || len(j.shares) < 2 || repeated == maxRepeated {
			continue
		}
		repeated++
		if d := w.repeat(t, g, rs, p, f); d != nil {
			return d
		}
	}
	return nil
}

// try1 is one case.
func (w *kernelNode) try1(t *testing.T, rs *ruleSet, p packet, f *figures) (*difference, judged) {
	t.Helper()
	a, err := w.send(p)
	if err != nil {
		t.Fatalf("%v: %v\n%s", p, err, rs)
	}
	r, j := w.compare(p, &a)
	f.cases++
	f.ends[a.end]++
	switch {
	case j.verdict == differs:
		return &difference{rs, p, a, j, r, 1}, j
	case j.verdict == unknown:
		f.unknown++
		for _, u := range r.Uncertain {
			f.why[u.Why]++
		}
	case j.traced:
		f.traced++
		if j.certain {
			f.whole++
		}
	}
	return nil, j
}

// repeat sends a packet many times, each from a port of its own, and tests how often it came to each certain outcome.
// Packets to which the walk gives other shares, for their ports, are not counted together.
func (w *kernelNode) repeat(t *testing.T, g *generator, rs *ruleSet, p packet, f *figures) *difference {
	t.Helper()
	type group struct {
		shares []share
		counts []int
		n      int
		alike  bool
		last   judged
	}
	groups := map[string]*group{}
	for range repeats {
		p = g.again(p)
		d, j := w.try1(t, rs, p, f)
		if d != nil {
			return d
		}
		key := fmt.Sprint(j.shares)
		x := groups[key]
		if x == nil {
			x = &group{shares: j.shares, counts: make([]int, len(j.shares))}
			groups[key] = x
		}
		x.n++
		if j.at < 0 {
			x.alike = true // outcomes that cannot be told apart
			continue
		}
		x.counts[j.at]++
		x.last = j
	}
	for _, x := range groups {
		if x.alike || rs.odd {
			continue
		}
		for i, k := range x.counts {
			s := x.shares[i]
			if !s.certain {
				continue
			}
			f.tests++
			if atMost(k, x.n, s.p)*float64(len(x.counts)) < improbable {
				j := x.last
				j.verdict, j.what = differs, fmt.Sprintf("outcome %d came %d times of %d: its share is %v", i, k, x.n, s.p)
				r := w.walk.Walk(p.start(), netfilter.Options{Steps: true})
				return &difference{rs, p, answer{}, j, r, repeats}
			}
		}
	}
	return nil
}

// report shrinks a difference, and prints it.
func (w *kernelNode) report(t *testing.T, seed uint64, d *difference) {
	t.Helper()
	d = w.shrink(d)
	var b strings.Builder
	fmt.Fprintf(&b, "%s=%d %s=1: %v: %s\n%s\nkernel: %v\n", seedVariable, seed, casesVariable, d.packet, d.judged.what,
		d.rules, &d.answer)
	for _, e := range d.answer.events {
		fmt.Fprintf(&b, "  %s %s %s handle %d number %d type %d: %s %s\n", e.Family, e.Table, e.Chain, e.Handle, e.Rule,
			e.Kind, e.Verdict, e.To)
	}
	for i := range d.walk.Outcomes {
		o := &d.walk.Outcomes[i]
		fmt.Fprintf(&b, "walk:   %v %v, %+v %s %s\n", o.P, o.End, o.Packet, o.Where, o.Why)
	}
	for i := range d.walk.Steps {
		s := &d.walk.Steps[i]
		rule := ""
		if s.Ref.Rule != nil {
			rule = s.Ref.Rule.Text
		}
		fmt.Fprintf(&b, "  %v %s: %s -> %s\n", s.P, s.Ref, rule, s)
	}
	for _, u := range d.walk.Uncertain {
		fmt.Fprintf(&b, "  not known: %s: %s\n", u.What, u.Why)
	}
	t.Error(b.String())
}

// again is the packet from the next port.
func (g *generator) again(p packet) packet {
	return p.from(g.nextPort())
}
