// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// endpoint is one whose address ends in n.
func endpoint(n int, share float64) Endpoint {
	return Endpoint{
		Address: fmt.Sprintf("10.244.0.%d", n), Port: 80, Share: share,
		Pod: fmt.Sprintf("shop/web-%d", n), Node: "worker-1",
	}
}

// expecting is an expectation of n endpoints, numbered from 1.
func expecting(n int) Expected {
	e := Expected{Action: "DNAT"}
	for i := range n {
		e.Endpoints = append(e.Endpoints, endpoint(i+1, 1/float64(n)))
	}
	return e
}

// sent are outcomes of connections that are sent to endpoints, with equal shares of what is left by the others.
func sent(left float64, to ...int) []Outcome {
	var out []Outcome
	for _, n := range to {
		share := left / float64(len(to))
		e := Endpoint{Address: endpoint(n, 0).Address, Port: 80, Share: share}
		out = append(out, Outcome{Action: "DNAT", Share: share, Endpoint: &e})
	}
	return out
}

// ended is an outcome of connections that end in an action, at endpoint n or, with 0, before one is chosen.
func ended(action string, share float64, n int) Outcome {
	o := Outcome{Action: action, Share: share, Where: RuleRef{Table: "filter", Chain: "FORWARD", Rule: 1}}
	if n > 0 {
		o.Endpoint = &Endpoint{Address: endpoint(n, 0).Address, Port: 80}
	}
	return o
}

func finding(code string, severity Severity, endpoints ...int) Finding {
	f := Finding{Code: code, Severity: severity}
	for _, n := range endpoints {
		f.Endpoints = append(f.Endpoints, endpoint(n, 0).Address+":80")
	}
	return f
}

// partString writes a part for tests.
func partString(p Part) string {
	switch {
	case p.Text != "":
		return p.Text
	case p.By != "":
		return "by " + p.By
	case p.Share != nil:
		return fmt.Sprintf("%.2f", *p.Share)
	}
	return "?"
}

// rowStrings writes rows for tests: address or action, expected, actual, status, code.
func rowStrings(p *Path) []string {
	var out []string
	for i := range p.Rows {
		r := &p.Rows[i]
		what := strings.TrimPrefix(r.endpoint(), "10.244.0.") + r.Action
		if what == "" {
			what = "all"
		}
		s := fmt.Sprintf("%s %s/%s %s", what, partString(r.Expected), partString(r.Actual), r.Status)
		out = append(out, strings.TrimSpace(s+" "+r.Code))
	}
	return out
}

func TestComplete(t *testing.T) {
	uncertain := []Uncertain{{Where: RuleRef{Table: "filter", Chain: "FORWARD", Rule: 2}}}
	for name, tt := range map[string]struct {
		path             Path
		expected, actual string
		rows             []string
	}{
		"as expected": {
			Path{Verdict: Match, Expected: expecting(2), Actual: Actual{Outcomes: sent(1, 1, 2)}},
			"2 endpoints", "2 endpoints",
			[]string{"1:80 0.50/0.50 OK", "2:80 0.50/0.50 OK"},
		},
		"one endpoint missing": {
			Path{
				Verdict: Mismatch, Expected: expecting(3),
				Actual:   Actual{Outcomes: sent(1, 1, 2)},
				Findings: []Finding{finding("MissingEndpoint", Error, 3)},
			},
			"3 endpoints", "2 endpoints, 10.244.0.3:80 missing",
			[]string{"1:80 0.33/0.50 Uneven", "2:80 0.33/0.50 Uneven", "3:80 0.33/0.00 Missing"},
		},
		"one replaced": {
			Path{Verdict: Mismatch, Expected: expecting(2), Actual: Actual{Outcomes: sent(1, 1, 9)}},
			"2 endpoints", "2 endpoints, 1 missing, 1 stale",
			[]string{"1:80 0.50/0.50 OK", "2:80 0.50/0.00 Missing", "9:80 0.00/0.50 Stale"},
		},
		"uneven": {
			Path{
				Verdict: Mismatch, Expected: expecting(2),
				Actual: Actual{Outcomes: append(sent(0.25, 1), sent(0.75, 2)...)},
			},
			"2 endpoints", "2 endpoints, uneven",
			[]string{"1:80 0.50/0.25 Uneven", "2:80 0.50/0.75 Uneven"},
		},
		"shares that differ by rounding": {
			Path{
				Verdict: Match, Expected: expecting(2),
				Actual: Actual{Outcomes: append(sent(0.50004, 1), sent(0.49996, 2)...)},
			},
			"2 endpoints", "2 endpoints",
			[]string{"1:80 0.50/0.50 OK", "2:80 0.50/0.50 OK"},
		},
		"dropped on the path to one": {
			Path{
				Verdict: Mismatch, Expected: expecting(2),
				Actual: Actual{Outcomes: append(sent(0.5, 1), ended("Drop", 0.5, 2))},
			},
			"2 endpoints", "1 endpoint, 10.244.0.2:80 dropped",
			[]string{"1:80 0.50/0.50 OK", "2:80 0.50/0.00 Dropped"},
		},
		"dropped on the path to all": {
			Path{
				Verdict: Mismatch, Expected: expecting(2),
				Actual: Actual{Outcomes: []Outcome{ended("Drop", 0.5, 1), ended("Drop", 0.5, 2)}},
			},
			"2 endpoints", "dropped",
			[]string{"1:80 0.50/0.00 Dropped", "2:80 0.50/0.00 Dropped"},
		},
		"rejected before an endpoint is chosen": {
			Path{Verdict: Mismatch, Expected: expecting(1), Actual: Actual{Outcomes: []Outcome{ended("Reject", 1, 0)}}},
			"1 endpoint", "rejected",
			[]string{"1:80 1.00/0.00 Missing", "Reject 0.00/1.00 Rejected"},
		},
		"not translated": {
			Path{
				Verdict: Mismatch, Expected: expecting(1),
				Actual: Actual{Outcomes: []Outcome{{Action: "Accept", Share: 1}}},
			},
			"1 endpoint", "not translated",
			[]string{"1:80 1.00/0.00 Missing", "Accept 0.00/1.00 NotTranslated"},
		},
		"no route": {
			Path{
				Verdict: Mismatch, Expected: expecting(2),
				Actual: Actual{Outcomes: append(sent(0.5, 1), ended("None", 0.5, 2))},
			},
			"2 endpoints", "1 endpoint, 10.244.0.2:80 without a route",
			[]string{"1:80 0.50/0.50 OK", "2:80 0.50/0.00 NoRoute"},
		},
		"an error that shares do not show, of one endpoint": {
			Path{
				Verdict: Mismatch, Expected: expecting(2),
				Actual:   Actual{Outcomes: sent(1, 1, 2)},
				Findings: []Finding{finding("HairpinOff", Error, 2)},
			},
			"2 endpoints", "2 endpoints, hairpin off",
			[]string{"1:80 0.50/0.50 OK", "2:80 0.50/0.50 Wrong HairpinOff"},
		},
		"an error that shares do not show, of no endpoint": {
			Path{
				Verdict: Mismatch, Expected: expecting(2),
				Actual:   Actual{Outcomes: sent(1, 1, 2)},
				Findings: []Finding{finding("Shadowed", Error)},
			},
			"2 endpoints", "2 endpoints, shadowed",
			[]string{"1:80 0.50/0.50 Wrong Shadowed", "2:80 0.50/0.50 OK"},
		},
		"a warning": {
			Path{
				Verdict: Warning, Expected: expecting(1),
				Actual:   Actual{Outcomes: sent(1, 1)},
				Findings: []Finding{finding("SharedFrontend", Warn)},
			},
			"1 endpoint", "1 endpoint",
			[]string{"1:80 1.00/1.00 Suspect SharedFrontend"},
		},
		"information": {
			Path{
				Verdict: Match, Expected: expecting(1),
				Actual:   Actual{Outcomes: sent(1, 1)},
				Findings: []Finding{finding("Programmed", Info, 1)},
			},
			"1 endpoint", "1 endpoint",
			[]string{"1:80 1.00/1.00 OK"},
		},
		"a rule that cannot be judged": {
			Path{
				Verdict: Unknown, Expected: expecting(1),
				Actual: Actual{Outcomes: append(sent(1, 1), ended("Drop", 1, 0)), Uncertain: uncertain},
			},
			"1 endpoint", "?",
			[]string{"1:80 1.00/? Unknown", "Drop 0.00/? Unknown"},
		},
		"a rule that cannot be judged, and an endpoint missing all the same": {
			Path{Verdict: Mismatch, Expected: expecting(2), Actual: Actual{Outcomes: sent(1, 1), Uncertain: uncertain}},
			"2 endpoints", "?, 10.244.0.2:80 missing",
			[]string{"1:80 0.50/? Unknown", "2:80 0.50/0.00 Missing"},
		},
		"nothing read": {
			Path{Verdict: Unknown, Expected: expecting(1)}, "1 endpoint", "?", []string{"1:80 1.00/? Unknown"},
		},
		"an expectation that is not certain": {
			Path{Verdict: Unknown, Expected: expecting(2), Actual: Actual{Outcomes: sent(1, 1, 9)}},
			"2 endpoints", "2 endpoints",
			[]string{"1:80 0.50/0.50 Unknown", "2:80 0.50/0.00 Missing", "9:80 0.00/0.50 Unknown"},
		},
		"shared out by load": {
			Path{
				Verdict: Match, Expected: expecting(2),
				Actual: Actual{Outcomes: append(sent(0.3, 1), sent(0.7, 2)...), Sharing: "load"},
			},
			"2 endpoints", "2 endpoints",
			[]string{"1:80 by load/by load OK", "2:80 by load/by load OK"},
		},
		"refused by design": {
			Path{
				Verdict: ByDesign, Expected: Expected{Action: "Reject"},
				Actual:   Actual{Outcomes: []Outcome{ended("Reject", 1, 0)}},
				Findings: []Finding{finding("NoEndpoints", Info)},
			},
			"reject", "reject",
			[]string{"all reject/reject ByDesign NoEndpoints"},
		},
		"left alone by design": {
			Path{Verdict: ByDesign, Expected: Expected{Action: "None"}, Findings: []Finding{finding("Headless", Info)}},
			"-", "-",
			[]string{"all -/- ByDesign Headless"},
		},
		"answered by a cache, by design": {
			Path{
				Verdict: ByDesign, Expected: expecting(2),
				Actual:   Actual{Outcomes: []Outcome{{Action: "Accept", Share: 1}}},
				Findings: []Finding{finding("NodeLocalDNS", Info)},
			},
			"2 endpoints", "not translated",
			[]string{"all 2 endpoints/not translated ByDesign NodeLocalDNS"},
		},
		"no answer by design": {
			Path{Verdict: ByDesign, Expected: expecting(1), Actual: Actual{Outcomes: sent(1, 1)}},
			"1 endpoint", "1 endpoint",
			[]string{"1:80 1.00/1.00 ByDesign"},
		},
		"refused in another way": {
			Path{
				Verdict: Mismatch, Expected: Expected{Action: "Reject"},
				Actual:   Actual{Outcomes: []Outcome{ended("Drop", 1, 0)}},
				Findings: []Finding{finding("Dropped", Error)},
			},
			"reject", "drop",
			[]string{"all reject/drop Wrong Dropped"},
		},
		"not refused": {
			Path{
				Verdict: Mismatch, Expected: Expected{Action: "Drop"},
				Actual:   Actual{Outcomes: sent(1, 1, 2)},
				Findings: []Finding{finding("SourceRangesMismatch", Error)},
			},
			"drop", "2 endpoints",
			[]string{"all drop/2 endpoints Wrong SourceRangesMismatch"},
		},
		"kube-proxy listens": {
			Path{
				Verdict: Match, Expected: Expected{Action: "Proxy"},
				Actual: Actual{Outcomes: []Outcome{{Action: "Accept", Share: 1, Listener: "process kube-proxy (8)"}}},
			},
			"kube-proxy listens", "process kube-proxy (8)",
			[]string{"Proxy listens/process kube-proxy (8) OK"},
		},
		"kube-proxy does not listen": {
			Path{
				Verdict: Mismatch, Expected: Expected{Action: "Proxy"},
				Actual:   Actual{Outcomes: []Outcome{{Action: "Accept", Share: 1}}},
				Findings: []Finding{{Code: "ProxyNotListening", Severity: Error, Effect: "nothing listens"}},
			},
			"kube-proxy listens", "nothing listens",
			[]string{"Proxy listens/nothing listens Wrong ProxyNotListening"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := tt.path
			Complete(&p)
			if p.Expected.Summary != tt.expected || p.Actual.Summary != tt.actual {
				t.Errorf("expected %q, actual %q; want %q, %q", p.Expected.Summary, p.Actual.Summary, tt.expected, tt.actual)
			}
			got := rowStrings(&p)
			if !slices.Equal(got, tt.rows) {
				t.Errorf("got rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.rows, "\n"))
			}
			Complete(&p)
			if again := rowStrings(&p); !slices.Equal(got, again) {
				t.Errorf("completed again it has rows %q, and had %q", again, got)
			}
		})
	}
}

// What is called wrong and is then not confirmed is not known.
func TestCompleteAgain(t *testing.T) {
	uneven := Actual{Outcomes: append(sent(0.25, 1), sent(0.75, 2)...)}
	p := Path{Verdict: Mismatch, Expected: expecting(2), Actual: uneven}
	p.Findings = []Finding{finding("UnevenShare", Error)}
	Complete(&p)
	p.Verdict = Unknown
	Complete(&p)
	want := []string{"1:80 0.50/0.25 Unknown", "2:80 0.50/0.75 Unknown"}
	if got := rowStrings(&p); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if p.Actual.Summary != "2 endpoints" {
		t.Errorf("the summary claims a difference: %q", p.Actual.Summary)
	}
}

func TestObservedRows(t *testing.T) {
	at := func(n, count int) ObservedEndpoint {
		return ObservedEndpoint{Address: endpoint(n, 0).Address, Port: 80, Count: count}
	}
	for name, tt := range map[string]struct {
		observed Observed
		want     []string
	}{
		"all counted": {
			Observed{Probes: 5, Endpoints: []ObservedEndpoint{at(1, 2), at(2, 3)}},
			[]string{"2", "3"},
		},
		"events beside the first that got none": {
			Observed{Probes: 5, Endpoints: []ObservedEndpoint{at(1, 2)}, Events: []Event{{ResultRefused, 3}}},
			[]string{"2", "3 refused"},
		},
		"events where all got some": {
			Observed{
				Probes: 5, Events: []Event{{ResultRefused, 1}},
				Endpoints: []ObservedEndpoint{at(1, 2), at(2, 2)},
			},
			[]string{"2 1 refused", "2"},
		},
		"none":      {Observed{Probes: 5}, []string{"0", "-"}},
		"not tried": {Observed{Error: "no process is in the pod"}, []string{"?", "-"}},
	} {
		p := Path{Verdict: Match, Expected: expecting(2), Observed: &tt.observed}
		p.Actual.Outcomes = sent(1, 1, 2)
		Complete(&p)
		var got []string
		for i := range p.Rows {
			s := "-"
			if o := p.Rows[i].Observed; o != nil {
				s = ""
				if o.Count != nil {
					s = fmt.Sprint(*o.Count)
				}
				for _, e := range o.Events {
					s = strings.TrimSpace(s + " " + e.String())
				}
				if s == "" {
					s = "?"
				}
			}
			got = append(got, s)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// An endpoint with an IPv6 address is found among a finding's.
func TestEndpointOfIPv6(t *testing.T) {
	e := Endpoint{Address: "fd00::1", Port: 80, Share: 1}
	p := Path{
		Verdict:  Mismatch,
		Expected: Expected{Action: "DNAT", Endpoints: []Endpoint{e}},
		Actual:   Actual{Outcomes: []Outcome{{Action: "DNAT", Share: 1, Endpoint: &e}}},
		Findings: []Finding{{Code: "HairpinOff", Severity: Error, Endpoints: []string{"[fd00::1]:80"}}},
	}
	Complete(&p)
	if r := p.Rows[0]; r.Status != StatusWrong || r.Code != "HairpinOff" {
		t.Errorf("status %s, code %q", r.Status, r.Code)
	}
}
