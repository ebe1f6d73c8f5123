// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/digest"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// asTheyAre are the files that are compared byte by byte: all but rules, those of the node's network, sockets, and what
// kube-proxy says of itself, of which what was read is compared.
var asTheyAre = []string{
	snapshot.IPSetFile, snapshot.ProgramsFile, snapshot.XfrmFile, snapshot.EbtablesFile, snapshot.NFTHooksFile,
	snapshot.JournalFile, snapshot.VersionsFile, snapshot.UnreadFile,
}

// LoadToCompare is Load of a reading that SameBeside compares with others, for which it reads some files once more.
func LoadToCompare(files *snapshot.Node) (*State, error) {
	s, err := Load(files)
	if err == nil {
		(&loader{State: s, from: files}).note()
	}
	return s, err
}

// note notes what the files were that are compared byte by byte.
func (l *loader) note() {
	p := digest.New()
	for _, name := range asTheyAre {
		data, err := l.file(name)
		if err != nil {
			continue // it is in State.readings
		}
		p.Text(name)
		p.Flag(data != nil)
		p.Text(string(data))
	}
	sockets := lasting(l.Sockets)
	p.Flag(l.SocketsRead)
	p.Number(len(sockets))
	for _, s := range sockets {
		p.Text(s)
	}
	sum := p.Sum()
	l.asTheyWere = &sum
}

// lasting has all of a list of sockets that decides whether a path is a match. Which process has a socket, by its
// number, and how many connections wait at one that has room for more, differs from one reading to the next: a program
// that is just started by another one has that one's sockets for a moment, too.
func lasting(sockets []host.Socket) []string {
	type port struct {
		protocol string
		number   uint16
	}
	before := map[port]int{} // of sockets at one port, the order counts
	out := make([]string, len(sockets))
	for i := range sockets {
		s := &sockets[i]
		at := port{s.Protocol, s.Port}
		out[i] = fmt.Sprintf("%s %s %d %s %s %t %t %t %t %t %d", s.Protocol, s.Address, s.Port, s.Device, s.Process,
			s.Stopped, s.Frozen, s.Full(), s.Diagnosed, s.Mapped, before[at])
		before[at]++
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SameBeside tells whether two readings of a node are equal in all that the judgement of a path goes by, beside the
// rules ([netfilter.Ruleset.Prints]). What kube-proxy says of its progress, the time, and how many connections there
// are, also at each real server, may differ. Of readings with connections, or probes, nothing is claimed, nor of
// those not made by LoadToCompare.
func (s *State) SameBeside(o *State) bool {
	if s.asTheyWere == nil || o.asTheyWere == nil {
		return false
	}
	if s.Connections != nil || o.Connections != nil || s.Probes != nil || o.Probes != nil || s.Tracked != nil ||
		o.Tracked != nil {
		return false
	}
	p, q := &s.Proxy, &o.Proxy
	return s.Name == o.Name && *s.asTheyWere == *o.asTheyWere && s.Host.Same(o.Host) &&
		slices.EqualFunc(s.Virtual, o.Virtual, sameServer) &&
		reflect.DeepEqual(s.Have, o.Have) && maps.Equal(s.Backends, o.Backends) && reflect.DeepEqual(s.NotAll, o.NotAll) &&
		reflect.DeepEqual(s.Config, o.Config) && reflect.DeepEqual(s.Flags, o.Flags) &&
		maps.Equal(s.files, o.files) && maps.Equal(s.reasons, o.reasons) && maps.Equal(s.readings, o.readings) &&
		maps.Equal(s.failed, o.failed) &&
		p.Reported == q.Reported && p.Version == q.Version && p.Listed == q.Listed && p.Responds == q.Responds &&
		maps.Equal(p.Processes, q.Processes) && maps.Equal(p.Cgroups, q.Cgroups)
}

// sameServer tells whether two readings of a virtual server are equal, but for how many connections it has.
func sameServer(a, b ipvs.VirtualServer) bool {
	same := slices.EqualFunc(a.Reals, b.Reals, func(r, s ipvs.RealServer) bool {
		r.Active, r.Inactive = s.Active, s.Inactive
		return r == s
	})
	a.Reals, b.Reals = nil, nil
	return same && reflect.DeepEqual(&a, &b)
}

// Beside returns a copy of a state without its rules, for SameBeside, which keeps nothing of the rules alive.
func (s *State) Beside() *State {
	out := *s
	out.Rules, out.Sets, out.Sockets, out.GroupPrograms = nil, nil, nil, nil
	out.Virtual = slices.Clone(s.Virtual)
	return &out
}
