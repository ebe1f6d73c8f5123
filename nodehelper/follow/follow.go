// SPDX-License-Identifier: Apache-2.0

// Package follow has the kernel of a node say where the packets of some connections come in, go out and are discarded,
// and which rules they come to: in the node's network namespace and in those of pods. Others make the connections
// meanwhile. It changes no rule of others, reads no payload, and what it attaches to the kernel, the table of
// nodehelper/kerneltrace included, is gone with the process.
package follow

import (
	"net/netip"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Limits of a run, whatever is asked for.
const (
	MaxServers = 64
	MaxClients = 16
	MaxPods    = 64
	MaxFlows   = 200
	MaxTunnels = 8
	maxSights  = 4000
	// Longest is after which time nothing is followed any more, where nobody has asked for what was seen.
	Longest = 2 * time.Minute
	// settled is how long packets that are still under way are waited for.
	settled = 100 * time.Millisecond
)

// Request says what to follow, and where.
type Request struct {
	Servers []snapshot.FollowTarget
	Clients []netip.Addr
	Pods    map[string]podns.Pod // by namespace/name
	// Root is the node's file system, which has the journal of tracing.
	Root string
	// Rules: trace the rules of the node's network namespace, beside those of the pods.
	Rules bool
	// Tunnels are the ports of UDP at which the node takes packets of VXLAN.
	Tunnels []uint16
}

// check tells whether a request is within the limits.
func (r *Request) check() error {
	for _, x := range []struct {
		name   string
		n, max int
	}{
		{"frontends and endpoints", len(r.Servers), MaxServers},
		{"addresses of clients", len(r.Clients), MaxClients},
		{"pods", len(r.Pods), MaxPods},
		{"ports of tunnels", len(r.Tunnels), MaxTunnels},
	} {
		if x.n > x.max {
			return bounds.Errorf("%d %s to follow connections of: at most %d were expected", x.n, x.name, x.max)
		}
	}
	return nil
}
