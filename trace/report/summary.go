// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// notKnown stands for what could not be judged.
const notKnown = "?"

// expectedSummary says in a word or two what should become of the connections of a path.
func expectedSummary(p *Path) string {
	switch p.Expected.Action {
	case "DNAT":
		return count(len(p.Expected.Endpoints), "endpoint")
	case "Proxy":
		return "kube-proxy listens"
	case "Reject", "Drop":
		return strings.ToLower(p.Expected.Action)
	}
	return "-"
}

// actualSummary says in a few words what becomes of the connections of a path. Where the path is a Mismatch, it always
// differs from what should: it then names what makes the difference.
func actualSummary(p *Path) string {
	parts := ends(p)
	if p.Expected.Action == "Proxy" { // that no rule translates the packet is as it should be
		if s := listener(p); s != "" {
			return s
		}
		if p.Verdict == Mismatch && slices.Equal(parts, []string{ActionText("Accept")}) {
			return strings.Join(effects(p), ", ")
		}
	}
	if p.Verdict == Mismatch {
		parts = append(parts, differences(p)...)
		if joined(parts) == p.Expected.Summary {
			parts = append(parts, effects(p)...)
		}
	}
	return joined(parts)
}

// joined are the parts of a summary, or a dash for none.
func joined(parts []string) string {
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// listener names the process that a packet comes to on the node itself; "" where none is known.
func listener(p *Path) string {
	for i := range p.Actual.Outcomes {
		if o := &p.Actual.Outcomes[i]; o.Listener != "" {
			return o.Listener
		}
	}
	return ""
}

// ends counts the endpoints that get connections, and names what becomes of others. Of a Mismatch, what becomes of
// those that were sent to an endpoint and do not get there is one of the differences.
func ends(p *Path) []string {
	if len(p.Actual.Uncertain) > 0 || len(p.Actual.Outcomes) == 0 && p.Verdict == Unknown {
		return []string{notKnown}
	}
	endpoints := map[endpointKey]bool{}
	var others []string
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		switch {
		case o.Action == "DNAT" && o.Endpoint != nil:
			endpoints[endpointKey{o.Endpoint.Address, o.Endpoint.Port}] = true
		case o.Action == "DNAT", p.Verdict == Mismatch && p.Expected.Action == "DNAT" && o.Endpoint != nil:
		default:
			w := ActionText(o.Action)
			if p.Expected.Action != "DNAT" && (o.Action == "Drop" || o.Action == "Reject") {
				w = strings.ToLower(o.Action) // as a refusal is called that is expected
			}
			if !slices.Contains(others, w) {
				others = append(others, w)
			}
		}
	}
	if len(endpoints) > 0 {
		return append([]string{count(len(endpoints), "endpoint")}, others...)
	}
	return others
}

// differing are the statuses of endpoints that a summary names, in its order.
var differing = []struct {
	status Status
	word   string
}{
	{StatusMissing, "missing"},
	{StatusStale, "stale"},
	{StatusDropped, "dropped"},
	{StatusRejected, "rejected"},
	{StatusNoRoute, "without a route"},
	{StatusNotTranslated, "not translated"},
	{StatusUneven, "uneven"},
}

// differences names the endpoint that is not as it should be, or counts them by what is wrong with them.
func differences(p *Path) []string {
	byStatus := map[Status][]*Row{}
	served, expected, all := 0, 0, 0
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Address == "" {
			continue
		}
		if r.Status != StatusStale {
			expected++
		}
		if r.Actual.Share == nil || *r.Actual.Share > 0 {
			served++ // or may be
		}
		if r.Status.compared() && r.Status != StatusUneven && r.Code == "" {
			all++
		}
		byStatus[r.Status] = append(byStatus[r.Status], r)
	}
	var out []string
	for _, d := range differing {
		rows := byStatus[d.status]
		switch n := len(rows); {
		case n == 0:
		case d.status == StatusUneven:
			if all == 0 { // else it is a consequence
				out = append(out, d.word)
			}
		case d.status == StatusMissing && served == 0: // how they end has been said
		case n == expected && served == 0:
			out = append(out, d.word)
		case all == 1:
			out = append(out, rows[0].endpoint()+" "+d.word)
		default:
			out = append(out, strconv.Itoa(n)+" "+d.word)
		}
	}
	return out
}

// effects says what the errors found on a path mean for its connections, each once.
func effects(p *Path) []string {
	var out []string
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Severity != Error {
			continue
		}
		text := f.Effect
		if text == "" {
			text = codeWords(f.Code)
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// codeWords writes a finding's code as words: "IPVSConntrackOff" is "IPVS conntrack off".
func codeWords(code string) string {
	var b strings.Builder
	r := []rune(code)
	for i, c := range r {
		begins := unicode.IsUpper(c) && i > 0 && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1]))
		if begins {
			b.WriteByte(' ')
		}
		abbreviation := i+1 < len(r) && unicode.IsUpper(r[i+1]) || i > 0 && unicode.IsUpper(r[i-1]) && !begins
		if !abbreviation {
			c = unicode.ToLower(c)
		}
		b.WriteRune(c)
	}
	return b.String()
}

// ActionText says what becomes of connections that end in an action other than DNAT.
func ActionText(action string) string {
	switch action {
	case "Accept":
		return "not translated"
	case "Drop":
		return "dropped"
	case "Reject":
		return "rejected"
	case "None":
		return "no route"
	}
	return strings.ToLower(action)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
