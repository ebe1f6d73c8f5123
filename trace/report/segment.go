// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// The segments of a connection, in the order in which its packets pass them (trace --end-to-end).
const (
	SegmentName         = "name"         // the Service's name: what the client's pod asks, and whom
	SegmentClientPod    = "clientPod"    // the client's pod: its route, source address and rules
	SegmentClientNode   = "clientNode"   // the client's node: what Path is about without --end-to-end
	SegmentEntryNode    = "entryNode"    // of a client outside of the cluster: the node that its packets come in to
	SegmentHealthCheck  = "healthCheck"  // what that node answers load balancers which ask whether it has endpoints
	SegmentNetwork      = "network"      // between the two nodes, as far as both ends tell
	SegmentEndpointNode = "endpointNode" // the endpoint's node, up to the pod's interface
	SegmentEndpointPod  = "endpointPod"  // the endpoint's pod: its rules, and who listens
	SegmentAnswer       = "answer"       // the answer, back through all of them
)

// SegmentVerdict is what a segment comes to.
type SegmentVerdict string

// The verdicts of a segment.
const (
	SegmentRight   SegmentVerdict = "right"   // the packet passes, by all that was read
	SegmentWrong   SegmentVerdict = "wrong"   // it does not
	SegmentUnknown SegmentVerdict = "unknown" // something that decides was not read, or cannot be evaluated
)

// Segment is a part of a connection from one end to the other.
type Segment struct {
	Segment string `json:"segment"`
	// Endpoint is that which the connection goes to ("10.244.1.5:8080"); absent where the segment is that of all.
	Endpoint string         `json:"endpoint,omitempty"`
	Place    string         `json:"place,omitempty"` // "pod shop/web-1", "node worker-2"
	Verdict  SegmentVerdict `json:"verdict"`
	// Lost: this is the first segment that the packet does not pass.
	Lost bool `json:"lost,omitempty"`
	// Owner is who is responsible for what is wrong there, where that can be told: "Calico", "a NetworkPolicy
	// (kube-router)", "the workload".
	Owner    string     `json:"owner,omitempty"`
	Message  string     `json:"message"`
	Evidence []Evidence `json:"evidence,omitempty"`
	// Command is what would tell, where that is unknown, and Node where it is to be run, or where what is wrong is.
	Command string `json:"command,omitempty"`
	Node    string `json:"node,omitempty"`
	Code    string `json:"code,omitempty"` // of the finding, where one says what is wrong
	// Untranslated: what is wrong is due to the source address, which the first node has not translated.
	Untranslated bool `json:"-"`
	// Refused: what is wrong there rejects the packet, so that the client is told, and does not wait.
	Refused bool `json:"-"`
	// Seen is what the kernels of the nodes saw of real connections there (--live); absent where they saw nothing of them.
	Seen *SegmentSeen `json:"seen,omitempty"`
}

// SegmentSeen is how many connections have passed a segment.
type SegmentSeen struct {
	Connections int `json:"connections"` // whose packets were followed up to a place that is known
	Passed      int `json:"passed"`
	// Rules is how far their packets came through the rules there, by the kernel's trace of them.
	Rules []SegmentRules `json:"rules,omitempty"`
	// Untraced says where rules were not traced, or not all, and why.
	Untraced []string `json:"untraced,omitempty"`
}

// SegmentRules is how far packets came through the rules of a place: of TCP those that begin a connection.
type SegmentRules struct {
	Place  string `json:"place"`
	Packet string `json:"packet"` // "request", "answer"
	// Tunnel: the packets of the tunnel that carry such ones, of this connection or another one that was made meanwhile.
	Tunnel bool   `json:"tunnel,omitempty"`
	Hook   string `json:"hook"` // the last one that they came to: prerouting, input, forward, output, postrouting
	// Passed: they came to the end of that hook, behind all rules. Dropped: Last has dropped them.
	Passed  bool `json:"passed,omitempty"`
	Dropped bool `json:"dropped,omitempty"`
	// Last is the last rule that they met at that hook; absent for none.
	Last    Evidence `json:"last,omitzero"`
	Packets int      `json:"packets"`
}

// String returns "node b: 2 × request, passed the hook postrouting, last met filter FORWARD rule 3: …".
func (r *SegmentRules) String() string {
	out := fmt.Sprintf("%s: %d × %s", r.Place, r.Packets, r.Packet)
	if r.Tunnel {
		out += " in the tunnel"
	}
	switch {
	case r.Dropped:
		return out + ", dropped at the hook " + r.Hook + " by " + r.Last.String()
	case r.Passed:
		out += ", passed the hook " + r.Hook
	default:
		out += ", came to the hook " + r.Hook + " and not to its end"
	}
	if last := r.Last.String(); last != "" {
		out += ", last met " + last
	}
	return out
}

// OfFirstNode tells whether it is the segment of the node that the client's packets come to first: the client's own, or
// that by which packets from outside of the cluster come in.
func (s *Segment) OfFirstNode() bool {
	return s.Segment == SegmentClientNode || s.Segment == SegmentEntryNode
}
