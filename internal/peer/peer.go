// SPDX-License-Identifier: Apache-2.0

// Package peer is how programs of this project that exchange something say which version of it they speak: the plugin
// and the helper on their stream (nodehelper/wire), the agent of a node in its NodeReport (trace/nodereport).
package peer

import "fmt"

// Protocol is the version that this code speaks: of requests and answers, of the files of a node and of the objects in
// them. It changes when a peer of the version before would misunderstand something; the test of nodehelper/wire fails
// where one of them has another form.
const Protocol = 2

// Peer is how a program introduces itself. Fields may be added; none may be removed or change its meaning.
type Peer struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build"` // the version of the program, for people
}

// Error says that two programs speak different versions.
type Error struct{ Self, Peer Peer }

// Check returns an *[Error] where a peer speaks another version than a program does.
func (p Peer) Check(self Peer) error {
	if p.Protocol == self.Protocol {
		return nil
	}
	return &Error{Self: self, Peer: p}
}

// Age is what the peer is, compared with the program: "older" or "newer".
func (e *Error) Age() string {
	if e.Peer.Protocol < e.Self.Protocol {
		return "older"
	}
	return "newer"
}

// Error tells which of both is older, with both versions.
func (e *Error) Error() string {
	return fmt.Sprintf("the other side is %s: it speaks version %d of the protocol (build %s), and this one version %d "+
		"(build %s)", e.Age(), e.Peer.Protocol, e.Peer.Build, e.Self.Protocol, e.Self.Build)
}
