// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// effectKind is what becomes of connections, the least first.
type effectKind uint8

const (
	noEffect effectKind = iota
	asAsked             // what the API asks for
	maybeAffected
	notKnownYet
	uneven
	fewerEndpoints
	otherwise // they work, in another way than they should
	unnamed   // the Service's name does not lead to it
	toStranger
	failing
)

// effect is what becomes of the connections of a path.
type effect struct {
	kind     effectKind
	quantity quantity
	share    float64 // the same, to compare
	what     Phrase  // of most kinds what their clients see, with the verb first
	itself   bool    // only a pod that is sent to itself sees it
	whole    string  // in place of a sentence about connections
}

func (e effect) worseThan(o effect) bool {
	if e.kind != o.kind {
		return e.kind > o.kind
	}
	return e.share > o.share
}

// same is a phrase for any number.
func same(text string) Phrase { return Phrase{text, text} }

// of is a phrase in the number of a quantity.
func (p Phrase) of(q quantity) string {
	if q.one {
		return p.One
	}
	return p.Several
}

// quantity is how many of the connections, or of the endpoints ("1 of 3 connections").
type quantity struct {
	text string
	one  bool // of several
}

// sentence writes an effect; to and from are what the connections are to and from.
func (e effect) sentence(to, from string) string {
	if e.whole != "" {
		return e.whole
	}
	several := "connections to " + to + from
	connections, words := e.quantity.text+" to "+to+from, e.what.of(e.quantity)
	switch e.kind {
	case asAsked:
		return several + " " + e.what.Several + ", as the API asks for"
	case notKnownYet:
		return "it is not known what happens to " + several
	case uneven:
		return several + " are shared unevenly among the endpoints"
	case fewerEndpoints:
		return e.quantity.text + " of " + to + " " + words + from
	case unnamed:
		return e.quantity.text + " by name to " + to + from + " " + words
	case toStranger, maybeAffected, otherwise, failing:
		return connections + " " + words
	case noEffect:
	}
	return ""
}

// toItself writes an effect that only a pod sees which is sent to itself.
func (e effect) toItself(to string, on []placed) string {
	var of []string
	for _, p := range on {
		text := "an endpoint's pod of " + p.node
		if o := &p.Origin; !o.Sample && o.Pod != "" {
			text = "pod " + o.Pod
		}
		if !slices.Contains(of, text) {
			of = append(of, text)
		}
	}
	sentence := fmt.Sprintf("connections to %s from %s %s where they are sent back to the pod itself", to, And(of),
		e.what.Several)
	if e.quantity == allConnections { // that are sent back: where it is so is said
		return sentence
	}
	return fmt.Sprintf("%s (%s)", sentence, strings.TrimSuffix(e.quantity.text, " connections"))
}

// effectOn is what becomes of the connections of a path that is no Match.
func effectOn(p *Path) effect {
	switch p.Verdict {
	case ByDesign:
		for i := range p.Findings {
			if s := p.Findings[i].Client.Sentence; s != "" {
				return effect{kind: asAsked, whole: s}
			}
		}
		what := map[string]string{"Reject": "are refused", "Drop": "are dropped"}[p.Expected.Action]
		if what == "" {
			what = "are left alone by kube-proxy"
		}
		return effect{kind: asAsked, what: same(what)}
	case Unknown:
		return effect{kind: notKnownYet}
	case Warning:
		if e := foundEffect(p, Warn); e.kind != noEffect {
			return e
		}
		return nameEffect(p, Warn)
	case Mismatch:
		return mismatchEffect(p)
	case Match:
	}
	return effect{}
}

// refused says what clients see where they should not come to an endpoint, by what should happen and what does.
var refused = map[[2]string]string{
	{"Reject", "Accept"}: "are not refused at once, as they should be: no rule translates or rejects them, and they go " +
		"on to the address itself",
	{"Drop", "Accept"}: "are not dropped, as they should be: no rule translates or drops them, and they go on to the " +
		"address itself",
	{"Reject", "DNAT"}: "are not refused, as they should be: they reach endpoints",
	{"Drop", "DNAT"}:   "are not dropped, as they should be: they reach endpoints",
	{"Reject", "Drop"}: "hang, where they should be refused at once",
	{"Drop", "Reject"}: "are refused, where they should be dropped",
	{"None", "DNAT"}:   "are sent to endpoints, where kube-proxy should leave them alone",
}

// lost says what clients see of connections that come to no endpoint, by how they end.
var lost = map[string]Phrase{
	"Accept": {"fail: no rule translates the address", "fails: no rule translates the address"},
	"Drop":   {"hang: dropped", "hangs: dropped"},
	"None":   {"fail: the node has no route", "fails: the node has no route"},
	"Reject": {"are refused", "is refused"},
}

func mismatchEffect(p *Path) effect {
	if p.Expected.Action != "DNAT" {
		for i := range p.Actual.Outcomes {
			if what := refused[[2]string{p.Expected.Action, p.Actual.Outcomes[i].Action}]; what != "" {
				return effect{kind: failing, quantity: connections, what: same(what)}
			}
		}
		if e := foundEffect(p, Error); e.kind != noEffect {
			return e
		}
		what := same("do not end as they should (" + p.Actual.Summary + ")")
		return effect{kind: otherwise, quantity: connections, what: what}
	}
	none, strange, missing, served := 0.0, 0.0, 0, 0
	var strangers []string
	for i := range p.Actual.Outcomes {
		if o := &p.Actual.Outcomes[i]; o.Action != "DNAT" {
			none += o.Share
		}
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		switch r.Status {
		case StatusMissing:
			missing++
		case StatusStale:
			strangers = append(strangers, r.endpoint())
			if r.Actual.Share != nil {
				strange += *r.Actual.Share
			}
		case StatusOK, StatusUneven, StatusWrong, StatusSuspect:
			served++
		case StatusByDesign, StatusUnknown, StatusDropped, StatusRejected, StatusNoRoute, StatusNotTranslated:
		}
	}
	found := foundEffect(p, Error)
	switch {
	case none > 0:
		return effect{kind: failing, quantity: quantityOf(p, none), share: none, what: lostAs(p)}
	case len(strangers) > 0:
		what := strangers[0] + ", which is not one of its endpoints"
		if len(strangers) > 1 {
			what = fmt.Sprintf("%d addresses that are not its endpoints", len(strangers))
		}
		return effect{
			kind: toStranger, quantity: quantityOf(p, strange), share: strange, what: Phrase{"go to " + what, "goes to " + what},
		}
	case found.kind != noEffect:
		return found
	}
	if e := nameEffect(p, Error); e.kind != noEffect {
		return e
	}
	switch {
	case missing > 0 && served > 0:
		of := quantity{fmt.Sprintf("%d of %s", missing, count(len(p.Expected.Endpoints), "endpoint")), missing == 1}
		return effect{
			kind: fewerEndpoints, quantity: of, share: float64(missing),
			what: Phrase{"get no connections", "gets no connections"},
		}
	case missing > 0:
		return effect{kind: failing, quantity: allConnections, share: 1, what: lostAs(p)}
	}
	return effect{kind: uneven}
}

// ofShares are findings of which the comparison of shares tells all that a client sees.
var ofShares = []string{"MissingEndpoint", "UnevenShare"}

// foundEffect is the worst effect of findings of a severity that are not of the Service's name. Findings of which a
// client sees the same are taken together.
func foundEffect(p *Path, severity Severity) (worst effect) {
	shares := map[Client]map[string]float64{}
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Severity != severity || p.ofName(f.Code) || slices.Contains(ofShares, f.Code) {
			continue
		}
		c := clientOf(p, f)
		if shares[c] == nil {
			shares[c] = map[string]float64{}
		}
		for k := range p.Expected.Endpoints {
			e := &p.Expected.Endpoints[k]
			at := JoinHostPort(e.Address, e.Port)
			if len(f.Endpoints) == 0 || slices.Contains(f.Endpoints, at) {
				shares[c][at] = e.Share
			}
		}
		kind := otherwise
		switch {
		case severity == Warn:
			kind = maybeAffected
		case c.Fails:
			kind = failing
		}
		total := 0.0
		for _, s := range shares[c] {
			total += s
		}
		if len(shares[c]) == 0 || len(shares[c]) == len(p.Expected.Endpoints) {
			total = 1 // or it is about something that is no endpoint
		}
		e := effect{kind: kind, quantity: quantityOf(p, total), share: total, what: c.Words, itself: c.Itself}
		if e.worseThan(worst) {
			worst = e
		}
	}
	return worst
}

// clientOf is what a client sees of a finding; in the words of the finding itself where its kind has none.
func clientOf(p *Path, f *Finding) Client {
	c := f.Client
	if c.Words == (Phrase{}) {
		c.Words = same("may be affected: " + codeWords(f.Code))
		switch {
		case f.Effect != "":
			c.Words = same("may be affected: " + f.Effect)
		case strings.HasPrefix(f.Actual, "may "):
			c.Words = same(f.Actual)
		case f.Message != "" && len(f.Message) <= shortMessage:
			c.Words = same("may be affected: " + f.Message)
		}
	}
	own := func(e string) bool {
		at, err := netip.ParseAddrPort(e)
		return err == nil && at.Addr().String() == p.Origin.Address
	}
	if len(f.Endpoints) > 0 && !slices.ContainsFunc(f.Endpoints, func(e string) bool { return !own(e) }) {
		c.Itself = true
	}
	return c
}

// nameEffect is that of a finding of the Service's name.
func nameEffect(p *Path, severity Severity) effect {
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Severity == severity && p.ofName(f.Code) {
			e := effect{kind: unnamed, quantity: allConnections, share: 1, what: same("fail: " + codeWords(f.Code))}
			if severity == Warn {
				e.kind, e.what = maybeAffected, same("may fail: "+codeWords(f.Code))
			}
			return e
		}
	}
	return effect{}
}

// lostAs says what clients see of connections that do not arrive: as the finding has it, or by their actions.
func lostAs(p *Path) Phrase {
	var actions []string
	for i := range p.Actual.Outcomes {
		if a := p.Actual.Outcomes[i].Action; a != "DNAT" && !slices.Contains(actions, a) {
			actions = append(actions, a)
		}
	}
	if len(actions) > 1 {
		for i := range actions {
			actions[i] = ActionText(actions[i])
		}
		return Phrase{"fail: " + And(actions), "fails: " + And(actions)}
	}
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Severity == Error && f.Client.Fails && f.Client.Words != (Phrase{}) {
			return f.Client.Words
		}
	}
	if len(actions) == 1 && lost[actions[0]] != (Phrase{}) {
		return lost[actions[0]]
	}
	return Phrase{"fail: none of the endpoints is reached", "fails: none of the endpoints is reached"}
}

// shortMessage is up to how many bytes a finding's message is part of a sentence.
const shortMessage = 100

var allConnections, connections = quantity{text: "all connections"}, quantity{text: "connections"}

// mostParts is the largest denominator of a share that is written as a fraction.
const mostParts = 12

// quantityOf writes a share of connections.
func quantityOf(p *Path, s float64) quantity {
	if s > 1-sameShare {
		return allConnections
	}
	for parts := 2; parts <= max(mostParts, len(p.Expected.Endpoints)); parts++ {
		if n := math.Round(s * float64(parts)); n > 0 && math.Abs(n/float64(parts)-s) < 10*sameShare/float64(parts) {
			return quantity{fmt.Sprintf("%.0f of %d connections", n, parts), n == 1}
		}
	}
	return quantity{text: fmt.Sprintf("%.1f%% of connections", s*100)}
}
