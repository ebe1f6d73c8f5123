// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// FollowedFile has what the kernel of a node saw of some connections ([Followed]). It is made on request, and is in no
// snapshot.
const FollowedFile = "followed.json"

// FollowTarget is an address and port whose connections are followed: a frontend, or an endpoint.
type FollowTarget struct {
	Protocol string         `json:"protocol"` // TCP, UDP, SCTP
	At       netip.AddrPort `json:"at"`
}

// Flow is a connection: its ends as the client has them, and as they are behind the translations of its node.
type Flow struct {
	Protocol string           `json:"protocol"`
	Clients  []netip.AddrPort `json:"clients"`
	Servers  []netip.AddrPort `json:"servers"`
}

// What can happen to a packet.
const (
	SightIn      = "in"      // it came in by an interface
	SightOut     = "out"     // it was given to an interface to be sent
	SightDropped = "dropped" // the kernel discarded it
)

// Sight is where packets of a flow were seen.
type Sight struct {
	Flow      int    `json:"flow"`          // its index among those asked for
	Pod       string `json:"pod,omitempty"` // namespace/name of the pod in whose network namespace; "": in the node's
	How       string `json:"how"`           // SightIn, …
	Interface string `json:"interface,omitempty"`
	Answer    bool   `json:"answer,omitempty"` // they went to the client
	Reset     bool   `json:"reset,omitempty"`  // they ended the connection (RST)
	// Reason and Function are those of Drop.
	Reason   string `json:"reason,omitempty"`
	Function string `json:"function,omitempty"`
	Count    int    `json:"count"`
}

// Counter is a counter of what the kernel did not take, which has risen while connections were followed. It counts what
// others sent, too.
type Counter struct {
	Pod  string `json:"pod,omitempty"`
	Name string `json:"name"` // as /proc/net has it: "TcpExt ListenOverflows", "eth0 rx dropped", "conntrack invalid"
	By   uint64 `json:"by"`
}

// TrackedFlow is what connection tracking has of a flow afterwards.
type TrackedFlow struct {
	Flow      int            `json:"flow"`
	Pod       string         `json:"pod,omitempty"`
	From      netip.AddrPort `json:"from"`    // the source of its first packet
	To        netip.AddrPort `json:"to"`      // its destination
	Answers   netip.AddrPort `json:"answers"` // where answers come from: the destination, or what it was translated to
	Unreplied bool           `json:"unreplied,omitempty"`
}

// Queue is that of a listening socket of TCP at a flow's port, where connections wait to be accepted.
type Queue struct {
	Pod     string         `json:"pod,omitempty"`
	At      netip.AddrPort `json:"at"`
	Waiting int64          `json:"waiting"`
}

// Traced is how far packets of a flow have come through the rules of a network namespace, by the kernel's trace: of TCP
// those that begin a connection.
type Traced struct {
	Flow   int    `json:"flow"` // its index among those asked for; of no meaning with Outer
	Pod    string `json:"pod,omitempty"`
	Answer bool   `json:"answer,omitempty"`
	// Outer: packets of a tunnel, from one node to the other, that carry packets of flows that are followed. Of which is
	// not told.
	Outer bool           `json:"outer,omitempty"`
	From  netip.AddrPort `json:"from,omitzero"` // of Outer, that of the first
	To    netip.AddrPort `json:"to,omitzero"`
	// Hook is the last one that they came to, and Passed that they came to its end.
	Hook    string `json:"hook"`
	Passed  bool   `json:"passed,omitempty"`
	Dropped bool   `json:"dropped,omitempty"` // by Last
	// Last is the last rule that they met at that hook; nil for none.
	Last  *TraceStep `json:"last,omitempty"`
	Count int        `json:"count"`
}

// Followed is what one node's kernel saw, in the order of the first packets.
type Followed struct {
	Sights []Sight  `json:"sights"`
	Traced []Traced `json:"traced,omitempty"`
	// Untraced has, by pod ("" for the node), why its rules were not traced, or not all of what there was.
	Untraced map[string]string `json:"untraced,omitempty"`
	// Others is how many packets were traced in the node's network namespace of connections that were not asked about.
	Others int `json:"others,omitempty"`
	// Partial: not all that was seen was kept. What is missing is no evidence then.
	Partial bool `json:"partial,omitempty"`
	// Pods has, by namespace/name, why pods' network namespaces were not found; "" for those that were.
	Pods     map[string]string `json:"pods,omitempty"`
	Counters []Counter         `json:"counters,omitempty"`
	Tracked  []TrackedFlow     `json:"tracked,omitempty"`
	Queues   []Queue           `json:"queues,omitempty"`
	// NoQueues has, by pod ("" for the node), why the queues there were not read.
	NoQueues map[string]string `json:"noQueues,omitempty"`
}

// ParseFollowed reads what a helper sent.
func ParseFollowed(data []byte) (*Followed, error) {
	if err := bounds.NodeJSON.Check(FollowedFile, data); err != nil {
		return nil, err
	}
	var out Followed
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", FollowedFile, err)
	}
	return &out, nil
}
