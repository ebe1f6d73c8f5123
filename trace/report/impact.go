// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Impact says in a sentence what the verdict of a TraceReport means for connections to its Service: how many of them,
// from where, and what becomes of those ("1 of 3 connections to shop/web from pods of worker-1 fails: dropped"). It is
// that of the worst that was found, and of all paths of which the same is true. It is empty for a Match, and where no
// path was judged.
func Impact(r *Report) string {
	var worst effect
	var on []placed
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for k := range n.Paths {
			p := &n.Paths[k]
			if p.Verdict != r.Verdict {
				continue
			}
			switch e := effectOn(p); {
			case e.kind == noEffect:
			case e.worseThan(worst):
				worst, on = e, append(on[:0], placed{p, n.Node})
			case e == worst:
				on = append(on, placed{p, n.Node})
			}
		}
	}
	service := "the Service"
	if r.Service != nil {
		service = r.Service.Namespace + "/" + r.Service.Name
	}
	if len(on) == 0 {
		if r.Summary.Paths > 0 && (r.Verdict == Mismatch || r.Verdict == Warning) {
			return "no path to " + service + " is wrong, but what was found about the node may affect its connections"
		}
		return ""
	}
	return worst.sentence(service+frontendsOf(r, on), originsOf(on))
}

// placed is a path with its node.
type placed struct {
	*Path
	node string
}

// effectKind is what becomes of connections, the least first.
type effectKind uint8

const (
	noEffect effectKind = iota
	refusedByDesign
	maybeAffected
	notKnownYet
	uneven
	fewerEndpoints
	otherEnd // they should end without an endpoint, and end in another way
	affected
	unnamed // the Service's name does not lead to it
	toStranger
	failing
)

// effect is what becomes of the connections of a path.
type effect struct {
	kind effectKind
	// quantity is how many of the connections ("1 of 3 connections"), or of the endpoints; share is the same, to compare.
	quantity string
	share    float64
	what     string
}

func (e effect) worseThan(o effect) bool {
	if e.kind != o.kind {
		return e.kind > o.kind
	}
	return e.share > o.share
}

// sentence writes an effect; to and from are what the connections are to and from.
func (e effect) sentence(to, from string) string {
	one := strings.HasPrefix(e.quantity, "1 of ")
	verb := func(singular, plural string) string {
		if one {
			return singular
		}
		return plural
	}
	several := "connections to " + to + from
	connections := e.quantity + " to " + to + from
	switch e.kind {
	case refusedByDesign:
		return several + " " + e.what + ", as the API asks for"
	case maybeAffected:
		if strings.HasPrefix(e.what, "may ") {
			return connections + " " + e.what
		}
		return connections + " may be affected: " + e.what
	case notKnownYet:
		return "it is not known what happens to " + several
	case uneven:
		return several + " are shared unevenly among the endpoints"
	case fewerEndpoints:
		return e.quantity + " of " + to + " " + verb("gets", "get") + " no connections" + from
	case otherEnd:
		return several + ": " + e.what
	case affected:
		return connections + " " + verb("is", "are") + " affected: " + e.what
	case unnamed:
		return e.quantity + " by name to " + to + from + " " + verb("fails", "fail") + ": " + e.what
	case toStranger:
		return connections + " " + verb("goes", "go") + " to " + e.what
	case failing:
		return connections + " " + verb("fails", "fail") + ": " + e.what
	case noEffect:
	}
	return ""
}

// effectOn is what becomes of the connections of a path that is no Match.
func effectOn(p *Path) effect {
	switch p.Verdict {
	case ByDesign:
		what := map[string]string{"Reject": "are refused", "Drop": "are dropped"}[p.Expected.Action]
		if what == "" {
			what = "lead to no endpoint"
		}
		return effect{kind: refusedByDesign, what: what}
	case Unknown:
		return effect{kind: notKnownYet}
	case Warning:
		if e := codedEffect(p, StatusSuspect, maybeAffected); e.kind != noEffect {
			return e
		}
		return nameEffect(p, Warn, maybeAffected)
	case Mismatch:
		return mismatchEffect(p)
	case Match:
	}
	return effect{}
}

func mismatchEffect(p *Path) effect {
	if p.Expected.Action != "DNAT" {
		return effect{kind: otherEnd, what: "expected " + p.Expected.Summary + ", actual " + p.Actual.Summary}
	}
	lost, strange, missing, served := 0.0, 0.0, 0, 0
	var strangers []string
	for i := range p.Actual.Outcomes {
		if o := &p.Actual.Outcomes[i]; o.Action != "DNAT" {
			lost += o.Share
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
	switch {
	case lost > 0:
		return effect{failing, quantityOf(p, lost), lost, lostAs(p)}
	case len(strangers) == 1:
		return effect{toStranger, quantityOf(p, strange), strange, strangers[0] + ", which is not one of its endpoints"}
	case len(strangers) > 1:
		return effect{
			toStranger, quantityOf(p, strange), strange, fmt.Sprintf("%d addresses that are not its endpoints", len(strangers)),
		}
	}
	if e := codedEffect(p, StatusWrong, affected); e.kind != noEffect {
		return e
	}
	if e := nameEffect(p, Error, unnamed); e.kind != noEffect {
		return e
	}
	switch {
	case missing > 0 && served > 0:
		quantity := fmt.Sprintf("%d of %s", missing, count(len(p.Expected.Endpoints), "endpoint"))
		return effect{kind: fewerEndpoints, quantity: quantity, share: float64(missing)}
	case missing > 0:
		return effect{failing, allConnections, 1, lostAs(p)}
	}
	return effect{kind: uneven}
}

// codedEffect is that of the finding that the rows of a status name.
func codedEffect(p *Path, status Status, kind effectKind) effect {
	total, code := 0.0, ""
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Status != status || code != "" && r.Code != code {
			continue
		}
		code = r.Code
		switch {
		case r.Actual.Share != nil:
			total += *r.Actual.Share
		case r.Address != "" && len(p.Expected.Endpoints) > 0:
			total += 1 / float64(len(p.Expected.Endpoints))
		default:
			total = 1
		}
	}
	if code == "" {
		return effect{}
	}
	out := effect{kind, quantityOf(p, total), total, codeWords(code)}
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Code != code {
			continue
		}
		if len(f.Endpoints) == 0 { // it is about all of them
			out.quantity, out.share = allConnections, 1
		}
		switch {
		case f.Effect != "":
			out.what = f.Effect
		case inWords(f.Actual):
			out.what = f.Actual
		case f.Message != "" && len(f.Message) <= shortMessage:
			out.what = f.Message
		}
		break
	}
	return out
}

// nameEffect is that of a finding of the Service's name.
func nameEffect(p *Path, severity Severity, kind effectKind) effect {
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Severity == severity && p.ofName(f.Code) {
			return effect{kind, allConnections, 1, codeWords(f.Code)}
		}
	}
	return effect{}
}

// lostAs says how connections end that do not arrive: as the finding has it, or by their action.
func lostAs(p *Path) string {
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Severity == Error && inWords(f.Actual) {
			return f.Actual
		}
	}
	for i := range p.Actual.Outcomes {
		if o := &p.Actual.Outcomes[i]; o.Action != "DNAT" {
			return ActionText(o.Action)
		}
	}
	return "none of the endpoints is reached"
}

// inWords tells whether a finding's expected or actual value is a text, and not a share.
func inWords(s string) bool { return s != "" && s != "none" && !strings.Contains(s, "%") }

// shortMessage is up to how many bytes a finding's message is part of a sentence.
const shortMessage = 100

const allConnections = "all connections"

// mostParts is the largest denominator of a share that is written as a fraction.
const mostParts = 12

// quantityOf writes a share of connections.
func quantityOf(p *Path, s float64) string {
	if s > 1-sameShare {
		return allConnections
	}
	for parts := 2; parts <= max(mostParts, len(p.Expected.Endpoints)); parts++ {
		if n := math.Round(s * float64(parts)); n > 0 && math.Abs(n/float64(parts)-s) < 10*sameShare/float64(parts) {
			return fmt.Sprintf("%.0f of %d connections", n, parts)
		}
	}
	return fmt.Sprintf("%.1f%% of connections", s*100)
}

// frontendsOf names the frontends of paths, where a report has others; "" where it has none.
func frontendsOf(r *Report, on []placed) string {
	distinct := func(paths []placed) (out []Frontend) {
		for _, p := range paths {
			if !slices.Contains(out, p.Frontend) {
				out = append(out, p.Frontend)
			}
		}
		return out
	}
	var every []placed
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			every = append(every, placed{&r.Nodes[i].Paths[k], r.Nodes[i].Node})
		}
	}
	all, hit := distinct(every), distinct(on)
	switch {
	case len(hit) == len(all):
		return ""
	case len(hit) == 1:
		f := &hit[0]
		return " at " + strings.TrimSpace(f.Kind+" "+JoinHostPort(f.Address, f.Port))
	}
	return fmt.Sprintf(" at %d of its %d frontends", len(hit), len(all))
}

// originsOf says where the packets of paths come from: " from pods of worker-1 and worker-1 itself".
func originsOf(on []placed) string {
	var keys []string
	nodes := map[string][]string{}
	for _, p := range on {
		key := originKey(p.Path)
		if nodes[key] == nil {
			keys = append(keys, key)
		}
		if !slices.Contains(nodes[key], p.node) {
			nodes[key] = append(nodes[key], p.node)
		}
	}
	parts := make([]string, len(keys))
	for i, key := range keys {
		of := nodes[key]
		const few = 3
		where := And(of)
		if len(of) > few {
			where = fmt.Sprintf("%d nodes", len(of))
		}
		switch {
		case !strings.Contains(key, "%s"):
			parts[i] = key
		case key == "%s itself" && len(of) > 1:
			parts[i] = where + " themselves"
		default:
			parts[i] = fmt.Sprintf(key, where)
		}
	}
	return " from " + And(parts)
}

// originKey is the text for an origin, with %s for its node where it depends on that.
func originKey(p *Path) string {
	o := &p.Origin
	switch {
	case o.Kind == "node":
		return "%s itself"
	case o.Kind == "pod" && len(o.Pods) > 0:
		return count(len(o.Pods), "pod") + " of %s"
	case o.Kind == "pod" && !o.Sample && o.Pod != "":
		return "pod " + strings.ReplaceAll(o.Pod, "%", "")
	case o.Kind == "pod":
		return "pods of %s"
	case o.Kind == "external" && !o.Sample && o.Address != "":
		return strings.ReplaceAll(o.Address, "%", "")
	}
	return "outside the cluster"
}

// And joins words as in a sentence.
func And(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Guilty are the rules and policies at which findings of severity error or warning point, that could not be judged, or
// that end packets which should have come to an endpoint.
func (p *Path) Guilty() map[RuleRef]bool {
	out := map[RuleRef]bool{}
	for _, x := range placesOf(p) {
		out[x.where] = true
	}
	return out
}
