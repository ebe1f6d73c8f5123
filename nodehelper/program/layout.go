// SPDX-License-Identifier: Apache-2.0

package program

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// layout is the frontends of a plan of one IP family, arranged as the chains to write, independent of the rule
// language. What several frontends have in common is contained once.
//
//	front     what is decided by the source of a packet: source ranges, and the class that the source belongs to
//	pool      endpoints that get equal shares
//	endpoint  one endpoint
type layout struct {
	v6        bool
	entry     []entry
	fronts    []front
	pools     []pool
	endpoints []endpoint
}

// entry is an address and port, and the front that its packets go to.
type entry struct {
	*plan.Frontend
	front int
}

type front struct {
	port   string
	ranges []netip.Prefix
	free   bool       // the node itself is not restricted to ranges
	own    netip.Addr // packets from this address are dropped; not valid: there is none
	pods   *plan.Pods
	// byPod counts only with pods.
	byPod, byNode, byOthers destination
	drops                   bool // packets of some sources are dropped
}

// destination is where packets of a class are sent: to a pool, or nowhere.
type destination struct {
	pool       int // -1: dropped
	masquerade bool
}

type pool struct {
	port, protocol string
	affinity       int32
	endpoints      []int
}

// endpoint has a name that does not change while the endpoint exists: rules of session affinity refer to clients by it.
type endpoint struct {
	name           string
	port, protocol string
	affinity       int32
	address        netip.AddrPort
}

// nameEnds names the endpoints: nine letters and digits of a hash, which no two of them share.
func (l *layout) nameEnds() {
	taken := map[string]bool{}
	for i := range l.endpoints {
		e := &l.endpoints[i]
		for n := 0; e.name == "" || taken[e.name]; n++ {
			sum := sha256.Sum256(fmt.Appendln(nil, e.port, e.protocol, e.address, n))
			e.name = strings.ToLower(base32.StdEncoding.EncodeToString(sum[:6])[:9])
		}
		taken[e.name] = true
	}
}

// layoutOf returns the layout of the plan's frontends of one IP family.
func layoutOf(p *plan.Plan, v6 bool) *layout {
	l := &layout{v6: v6}
	endpoints, pools, fronts := map[endpoint]int{}, map[string]int{}, map[string]int{}
	destinationOf := func(f *plan.Frontend, w *plan.Destination) destination {
		if len(w.Endpoints) == 0 {
			return destination{pool: -1}
		}
		list := make([]int, len(w.Endpoints))
		for i, e := range w.Endpoints {
			x := endpoint{port: f.Port, protocol: f.Protocol, affinity: f.Affinity, address: e}
			list[i] = indexOf(endpoints, x, &l.endpoints, x)
		}
		slices.Sort(list)
		key := []byte(f.Port + f.Protocol + strconv.Itoa(int(f.Affinity)))
		for _, n := range list {
			key = strconv.AppendInt(append(key, ' '), int64(n), 10)
		}
		return destination{indexOf(pools, string(key), &l.pools, pool{f.Port, f.Protocol, f.Affinity, list}), w.Masquerade}
	}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.V6() != v6 {
			continue
		}
		made := front{
			port: f.Port, ranges: f.Ranges, pods: f.Pods, byNode: destinationOf(f, &f.ForNode),
			byOthers: destinationOf(f, &f.ForOthers), drops: len(f.Ranges) > 0,
		}
		if f.ForPods != nil {
			made.byPod = destinationOf(f, f.ForPods)
			made.drops = made.drops || made.byPod.pool < 0
		}
		made.drops = made.drops || made.byNode.pool < 0 || made.byOthers.pool < 0
		if made.free = f.NodeExempt; f.DropOwnAddress {
			made.own = f.Address.Addr()
		}
		key := fmt.Sprint(made.port, made.ranges, made.free, made.own, made.pods == nil, made.byPod, made.byNode,
			made.byOthers)
		l.entry = append(l.entry, entry{f, indexOf(fronts, key, &l.fronts, made)})
	}
	l.nameEnds()
	return l
}

// indexOf returns the index in list of the value with a key, and appends the value the first time.
func indexOf[K comparable, T any](at map[K]int, key K, list *[]T, v T) int {
	i, ok := at[key]
	if !ok {
		i = len(*list)
		*list, at[key] = append(*list, v), i
	}
	return i
}

// class is a class of packets, by their source. Classes are matched one after the other.
type class int

const (
	anyone class = iota
	fromPod
	notFromPod
	fromNode
)

// step marks packets of a class for masquerade, or sends them to a pool; pool -1: drops them.
type step struct {
	class class
	mark  bool
	pool  int
}

// steps returns the decisions of a front, in order.
func (f *front) steps() []step {
	byPod := f.byPod
	if f.pods == nil {
		byPod = f.byOthers
	}
	onePool := byPod.pool == f.byNode.pool && f.byNode.pool == f.byOthers.pool
	if onePool && f.byNode.pool >= 0 && f.byNode.masquerade == f.byOthers.masquerade {
		out := make([]step, 0, 2)
		switch {
		case byPod.masquerade && f.byOthers.masquerade:
			out = []step{{class: anyone, mark: true}}
		case f.byOthers.masquerade:
			out = []step{{class: notFromPod, mark: true}}
		case byPod.masquerade:
			out = []step{{class: fromPod, mark: true}}
		}
		return append(out, step{class: anyone, pool: f.byOthers.pool})
	}
	out := make([]step, 0, 6)
	add := func(c class, l destination) {
		if l.masquerade && l.pool >= 0 {
			out = append(out, step{class: c, mark: true})
		}
		out = append(out, step{class: c, pool: l.pool})
	}
	if f.pods != nil {
		add(fromPod, f.byPod)
	}
	if f.byNode != f.byOthers {
		add(fromNode, f.byNode)
	}
	add(anyone, f.byOthers)
	return out
}

// shared tells for each pool whether it needs a chain of its own. A pool that only the last step of one front refers to
// needs none: its rules are in the front's chain.
func (l *layout) shared() []bool {
	users := make([]int, len(l.pools))
	for i := range l.fronts {
		for _, s := range l.fronts[i].steps() {
			switch {
			case s.mark || s.pool < 0:
			case s.class == anyone:
				users[s.pool]++
			default:
				users[s.pool] += 2
			}
		}
	}
	out := make([]bool, len(users))
	for i, n := range users {
		out[i] = n > 1
	}
	return out
}
