// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"

// The tables of matches and targets read better with short names for what they have most of.
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
