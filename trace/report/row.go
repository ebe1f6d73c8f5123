// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// sameShare is how far shares may differ and still count as equal (docs/report.md, Shares).
const sameShare = 1e-4

// Status is what the comparison of a row's expected and actual part comes to.
type Status string

// The statuses of rows; of steps only Wrong, Suspect and Unknown.
const (
	StatusOK            Status = "OK"            // as expected
	StatusByDesign      Status = "ByDesign"      // refused, and the API says that it has to be
	StatusUnknown       Status = "Unknown"       // not judged: no claim
	StatusUneven        Status = "Uneven"        // the endpoint gets connections, in another share than it should
	StatusMissing       Status = "Missing"       // the endpoint should get connections and gets none
	StatusStale         Status = "Stale"         // the endpoint gets connections and should not
	StatusDropped       Status = "Dropped"       // connections are dropped, before or after an endpoint is chosen
	StatusRejected      Status = "Rejected"      // the same with an answer
	StatusNoRoute       Status = "NoRoute"       // the node has no route for them
	StatusNotTranslated Status = "NotTranslated" // they pass, to the frontend's own address
	StatusWrong         Status = "Wrong"         // the shares are right, and an error (Row.Code) was found
	StatusSuspect       Status = "Suspect"       // the same with a warning
)

// compared tells whether a status says of itself that something is not as it should be.
func (s Status) compared() bool {
	return s != StatusOK && s != StatusByDesign && s != StatusUnknown
}

// Row is one part of the connections to a frontend, as it should be and as it is: those to one endpoint, those that end
// without one (Action), or all of them, where the frontend is not to be sent to endpoints (neither).
type Row struct {
	Address string `json:"address,omitempty"` // of the endpoint
	Port    int32  `json:"port,omitempty"`
	Pod     string `json:"pod,omitempty"` // namespace/name
	Node    string `json:"node,omitempty"`
	// Action is how the connections end that no endpoint gets: Drop, Reject, Accept, None as in an Outcome; Proxy where
	// kube-proxy itself is to accept them.
	Action   string       `json:"action,omitempty"`
	Expected Part         `json:"expected,omitzero"`
	Actual   Part         `json:"actual,omitzero"`
	Observed *RowObserved `json:"observed,omitempty"` // of real connections (trace --live)
	Status   Status       `json:"status"`
	// Code is the finding's that the status Wrong, Suspect or, of a refusal, ByDesign is due to.
	Code string `json:"code,omitempty"`
}

// Part is how much of the connections a row has. The zero Part is one that is not known.
type Part struct {
	Share *float64 `json:"share,omitempty"` // of all connections to the frontend, 0 to 1
	By    string   `json:"by,omitempty"`    // Actual.Sharing, where IPVS's scheduler comes to no fixed share
	Text  string   `json:"text,omitempty"`  // of all connections together, what becomes of them in words: "reject"
}

// Known tells whether anything is known of the part.
func (p Part) Known() bool { return p != Part{} }

// RowObserved is how many real connections a row got. With neither field none could be tried (Observed.Error).
type RowObserved struct {
	Count *int `json:"count,omitempty"` // sent there, of Observed.Probes
	// Connected is how many of these were accepted.
	Connected int `json:"connected,omitempty"`
	// Events is how the others of these ended. Those of which nothing tells where they were sent stand in the first row
	// that no connection was sent to.
	Events []Event `json:"events,omitempty"`
}

// endpoint is a row's endpoint as findings name it; "" where the row has none.
func (r *Row) endpoint() string {
	if r.Address == "" {
		return ""
	}
	return JoinHostPort(r.Address, r.Port)
}

// JoinHostPort writes an address with its port, an IPv6 address in brackets; without the port where it is 0.
func JoinHostPort(address string, port int32) string {
	switch {
	case port == 0:
		return address
	case strings.Contains(address, ":"):
		return "[" + address + "]:" + strconv.Itoa(int(port))
	}
	return address + ":" + strconv.Itoa(int(port))
}

// Complete fills in what follows from the rest of a path: its rows, the summaries of what is expected and what happens,
// and the status of its steps. It is called when verdict, findings and observations are settled, and again where one of
// them is changed.
func Complete(p *Path) {
	p.Expected.Summary = expectedSummary(p)
	p.Rows = rowsOf(p)
	p.Actual.Summary = actualSummary(p)
	for i := range p.Rows {
		if r := &p.Rows[i]; r.Expected.Text != "" {
			r.Actual.Text = p.Actual.Summary
		}
	}
	markSteps(p)
}

// rowsOf compares what should happen on a path with what does, endpoint by endpoint.
func rowsOf(p *Path) []Row {
	var rows []Row
	switch {
	case p.Verdict == ByDesign && reachesEndpoints(p): // and no answer comes back from them
		rows = endpointRows(p)
		for i := range rows {
			rows[i].Status = StatusByDesign
		}
		return rows
	case p.Verdict == ByDesign:
		return []Row{{Expected: Part{Text: p.Expected.Summary}, Status: StatusByDesign, Code: byDesignCode(p)}}
	case p.Expected.Action == "DNAT":
		rows = endpointRows(p)
	case p.Expected.Action == "Proxy":
		rows = []Row{{Action: "Proxy", Expected: Part{Text: "listens"}, Status: StatusOK}}
	default:
		rows = []Row{{Expected: Part{Text: p.Expected.Summary}, Status: StatusOK}}
	}
	if p.Verdict == Unknown {
		for i := range rows {
			r := &rows[i]
			if r.Status == StatusOK || r.Status == StatusUneven || !r.Actual.Known() {
				r.Status = StatusUnknown
			}
		}
	}
	markCodes(p, rows)
	markObserved(p, rows)
	return rows
}

// reachesEndpoints tells whether packets should be sent to endpoints, and all are.
func reachesEndpoints(p *Path) bool {
	return p.Expected.Action == "DNAT" && len(p.Actual.Outcomes) > 0 &&
		!slices.ContainsFunc(p.Actual.Outcomes, func(o Outcome) bool { return o.Endpoint == nil })
}

// byDesignCode is the code of the finding that explains a refusal; it is the last that the judge adds.
func byDesignCode(p *Path) string {
	if len(p.Findings) == 0 {
		return p.Expected.Action
	}
	return p.Findings[len(p.Findings)-1].Code
}

// endpointKey is an endpoint in comparisons.
type endpointKey struct {
	address string
	port    int32
}

// arrival is what becomes of the connections meant for an endpoint.
type arrival struct {
	share float64 // arrives
	ended string  // the action that ends the others; "" where none does
}

func arrivals(p *Path) map[endpointKey]arrival {
	out := make(map[endpointKey]arrival, len(p.Expected.Endpoints))
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		if o.Endpoint == nil {
			continue
		}
		k := endpointKey{o.Endpoint.Address, o.Endpoint.Port}
		a := out[k]
		if o.Action == "DNAT" {
			a.share += o.Share
		} else {
			a.ended = o.Action
		}
		out[k] = a
	}
	return out
}

// endpointRows are the endpoints that are expected, then those that get connections besides, then the connections that
// no endpoint gets.
func endpointRows(p *Path) []Row {
	got := arrivals(p)
	rows := make([]Row, 0, len(p.Expected.Endpoints))
	seen := make(map[endpointKey]bool, len(p.Expected.Endpoints))
	for i := range p.Expected.Endpoints {
		e := &p.Expected.Endpoints[i]
		k := endpointKey{e.Address, e.Port}
		seen[k] = true
		rows = append(rows, expectedRow(p, e, got[k]))
	}
	for i := range p.Actual.Outcomes {
		e := p.Actual.Outcomes[i].Endpoint
		if e == nil || seen[endpointKey{e.Address, e.Port}] {
			continue
		}
		k := endpointKey{e.Address, e.Port}
		seen[k] = true
		r := Row{
			Address:  e.Address,
			Port:     e.Port,
			Expected: Part{Share: new(float64)},
			Actual:   certainPart(p, got[k].share),
			Status:   StatusStale,
		}
		if ended := got[k].ended; ended != "" {
			r.Status = statusOf(ended)
		}
		if p.Verdict == Unknown {
			r.Status = StatusUnknown
		}
		rows = append(rows, r)
	}
	return append(rows, otherRows(p)...)
}

// expectedRow is the row of an endpoint that connections should come to.
func expectedRow(p *Path, e *Endpoint, got arrival) Row {
	r := Row{
		Address: e.Address, Port: e.Port, Pod: e.Pod, Node: e.Node, Status: StatusOK,
		Expected: partOf(p, e.Share), Actual: certainPart(p, got.share),
	}
	switch {
	case len(p.Actual.Outcomes) == 0:
		r.Actual, r.Status = Part{}, StatusUnknown
	case got.ended != "":
		r.Status = statusOf(got.ended)
	case got.share == 0:
		r.Actual, r.Status = Part{Share: new(float64)}, StatusMissing
	case !r.Actual.Known():
		r.Status = StatusUnknown
	case p.Actual.Sharing == "" && math.Abs(got.share-e.Share) > sameShare:
		r.Status = StatusUneven
	}
	return r
}

// partOf is a share, or that by which IPVS distributes connections.
func partOf(p *Path, share float64) Part {
	if p.Actual.Sharing != "" {
		return Part{By: p.Actual.Sharing}
	}
	return Part{Share: &share}
}

// certainPart is what is known of a share. Where a rule could not be judged, the outcomes have what follows where it
// matches and where it does not: their sum is no share.
func certainPart(p *Path, share float64) Part {
	switch {
	case len(p.Actual.Uncertain) > 0:
		return Part{}
	case share == 0:
		return Part{Share: new(float64)}
	}
	return partOf(p, share)
}

// otherRows are the connections that no endpoint gets, by how they end.
func otherRows(p *Path) []Row {
	var rows []Row
	var sums []float64
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		if o.Endpoint != nil {
			continue
		}
		k := slices.IndexFunc(rows, func(r Row) bool { return r.Action == o.Action })
		if k < 0 {
			k = len(rows)
			rows = append(rows, Row{Action: o.Action, Expected: Part{Share: new(float64)}, Status: statusOf(o.Action)})
			sums = append(sums, 0)
		}
		sums[k] += o.Share
	}
	for i := range rows {
		rows[i].Actual = partOf(p, sums[i])
		if len(p.Actual.Uncertain) > 0 || p.Verdict == Unknown {
			rows[i].Actual, rows[i].Status = Part{}, StatusUnknown
		}
	}
	return rows
}

// statusOf is the status of connections that end in an action although an endpoint should get them.
func statusOf(action string) Status {
	switch action {
	case "Drop":
		return StatusDropped
	case "Reject":
		return StatusRejected
	case "None":
		return StatusNoRoute
	case "Accept":
		return StatusNotTranslated
	}
	return StatusUnknown
}

// markCodes writes a finding's code where the comparison of shares shows nothing: into the rows of its endpoints; into
// the first row where it names none, and no row shows anything else.
func markCodes(p *Path, rows []Row) {
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Severity == Info || p.ofName(f.Code) {
			continue
		}
		status, shown := StatusSuspect, false
		if f.Severity == Error {
			status = StatusWrong
		}
		for k := range rows {
			r := &rows[k]
			if r.Status == StatusOK && r.Address != "" && slices.Contains(f.Endpoints, r.endpoint()) {
				r.Status, r.Code = status, f.Code
			}
			shown = shown || r.Status.compared()
		}
		if !shown && len(rows) > 0 && rows[0].Status == StatusOK {
			rows[0].Status, rows[0].Code = status, f.Code
		}
	}
}

// ofName tells whether a finding is what the segment of the Service's name has: no endpoint is concerned.
func (p *Path) ofName(code string) bool {
	return slices.ContainsFunc(p.Segments, func(s Segment) bool { return s.Segment == SegmentName && s.Code == code })
}

// markObserved writes into each endpoint's row how many connections were sent to it and how they ended, and into the
// first that got none how those ended of which nothing tells where they were sent.
func markObserved(p *Path, rows []Row) {
	o := p.Observed
	if o == nil || len(rows) == 0 {
		return
	}
	rest := slices.Clone(o.Events)
	for i := range rows {
		r := &rows[i]
		for k := range o.Endpoints {
			if e := &o.Endpoints[k]; r.Address == e.Address && r.Port == e.Port {
				r.Observed = &RowObserved{Count: &e.Count, Connected: e.Connected, Events: e.Events}
				rest = without(rest, e.Events)
			}
		}
	}
	switch {
	case o.Error != "":
		rows[0].Observed = &RowObserved{}
	case len(rest) > 0:
		at := &rows[max(0, slices.IndexFunc(rows, func(r Row) bool { return r.Observed == nil }))]
		if at.Observed == nil {
			at.Observed = &RowObserved{}
		}
		at.Observed.Events = append(slices.Clip(at.Observed.Events), rest...)
	case rows[0].Observed == nil:
		rows[0].Observed = &RowObserved{Count: new(int)}
	}
}

// without takes connections that are counted elsewhere from a list of events, which it changes.
func without(events, counted []Event) []Event {
	for _, c := range counted {
		for i := range events {
			if events[i].Result == c.Result {
				events[i].Count -= c.Count
			}
		}
	}
	return slices.DeleteFunc(events, func(e Event) bool { return e.Count <= 0 })
}
