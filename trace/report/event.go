// SPDX-License-Identifier: Apache-2.0

package report

import "strconv"

// Event is what became of some of the connections that were tried.
type Event struct {
	Result Result `json:"result"`
	Count  int    `json:"count"` // of connections
}

// Result is how a connection ended, or what is peculiar to it.
type Result string

// The results.
const (
	ResultNotAnswered Result = "NotAnswered" // UDP: sent, and no reply, as none was expected
	ResultRefused     Result = "Refused"     // by a reset, an abort or ICMP port unreachable
	ResultTimedOut    Result = "TimedOut"    // no response
	ResultNoRoute     Result = "NoRoute"     // the kernel, or a router, has no route
	ResultFailed      Result = "Failed"      // by another error
	ResultSilent      Result = "Silent"      // accepted, and the payload was not answered
	// ResultUnacknowledged: accepted, and part of the payload was not acknowledged.
	ResultUnacknowledged Result = "Unacknowledged"
	ResultClosed         Result = "Closed"      // accepted, and ended without an answer to the payload
	ResultOtherServer    Result = "OtherServer" // IPVS's connection table and conntrack name different endpoints
)

// resultTexts has the words for results.
var resultTexts = map[Result]string{
	ResultNotAnswered:    "sent without an answer",
	ResultRefused:        "refused",
	ResultTimedOut:       "timed out",
	ResultNoRoute:        "without a route",
	ResultFailed:         "failed",
	ResultSilent:         "accepted and not answered",
	ResultUnacknowledged: "accepted, and the data not acknowledged",
	ResultClosed:         "accepted and closed without an answer",
	ResultOtherServer:    "of which IPVS's connection table names another real server",
}

// Text says a result in words, which follow a number of connections: "timed out".
func (r Result) Text() string { return resultTexts[r] }

// String returns "2 timed out".
func (e Event) String() string { return strconv.Itoa(e.Count) + " " + e.Result.Text() }
