// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"

// Short names for the types that the tables of matches and targets use most.
type (
	truth = op.Truth
	cond  = op.Cond
)

const (
	no    = op.No
	yes   = op.Yes
	maybe = op.Maybe
)

// never is a match that no first packet satisfies.
var never = op.Conditions([]cond{op.NoPacket}, "")
