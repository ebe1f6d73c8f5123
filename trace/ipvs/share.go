// SPDX-License-Identifier: Apache-2.0

package ipvs

import "slices"

// choice is one possible decision of a scheduler about a new connection: the real server, or nil where it is refused.
type choice struct {
	real  *RealServer
	share float64
}

// The criteria of schedulers that do not give fixed shares over many connections. Packet.Scheduled has one of them.
const (
	ByLoad   = "load"           // the numbers of connections of the real servers
	ByClient = "client address" // a hash of the client's address, or of address and port
	// a hash of the virtual server's address: all connections get the same real server
	ByDestination = "destination"
	ByOrder       = "order of real servers" // the first of several
	ByUnknown     = "scheduler"             // a scheduler that this version does not know
)

// scheduler describes how one of the kernel's schedulers chooses (net/netfilter/ipvs/ip_vs_NAME.c).
type scheduler struct {
	by       string // "": by fixed shares
	weighted bool   // shares are as the weights
	highest  bool   // only those of the highest weight get connections
	// hashed: a real server of weight 0 has its part of the hash table as well, and connections that hash to it are
	// refused; the flag of that name makes the scheduler try the next one.
	hashed   bool
	fallback string
}

var schedulers = map[string]scheduler{
	"rr":    {},
	"wrr":   {weighted: true},
	"lc":    {by: ByLoad},
	"wlc":   {by: ByLoad},
	"sed":   {by: ByLoad},
	"nq":    {by: ByLoad},
	"lblc":  {by: ByLoad},
	"lblcr": {by: ByLoad},
	"ovf":   {by: ByLoad},
	"fo":    {highest: true},
	"sh":    {by: ByClient, hashed: true, fallback: "sh-fallback"},
	"mh":    {by: ByClient},
	"dh":    {by: ByDestination, hashed: true},
}

// Fixed tells whether a scheduler of that name gives real servers of equal weight equal shares.
func Fixed(name string) bool {
	s, known := schedulers[name]
	return known && s.by == "" && !s.highest
}

// choices returns the possible decisions about a new connection, and by what criterion they are made if the shares are
// not fixed.
func (v *VirtualServer) choices() (out []choice, by string) {
	s, known := schedulers[v.Scheduler]
	if !known {
		s.by = ByUnknown
	}
	usable, sum, top := 0, 0, 0
	for i := range v.Reals {
		if w := v.Reals[i].Weight; w > 0 {
			usable++
			sum += w
			top = max(top, w)
		}
	}
	if usable == 0 {
		return nil, ""
	}
	refused := false
	for i := range v.Reals {
		r := &v.Reals[i]
		switch {
		case r.Weight == 0:
			refused = refused || s.hashed && (s.fallback == "" || !slices.Contains(v.Flags, s.fallback))
		case s.highest && r.Weight < top:
		case s.weighted:
			out = append(out, choice{r, float64(r.Weight) / float64(sum)})
		default:
			out = append(out, choice{real: r})
		}
	}
	if refused {
		out = append(out, choice{})
	}
	if s.highest && len(out) > 1 {
		s.by = ByOrder
	}
	if len(out) == 1 {
		s.by = ""
	}
	if !s.weighted {
		for i := range out {
			out[i].share = 1 / float64(len(out))
		}
	}
	return out, s.by
}
