// SPDX-License-Identifier: Apache-2.0

// Package nodestate reads the files of one node into one State: its rules in every backend, addresses, routes,
// settings, sets, virtual servers, connections, listening sockets, and what its kube-proxy reports about itself. It
// contains no judgement, and does not know Services.
package nodestate

import (
	"bytes"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/conntrack"
	"github.com/svcproxy/kubectl-svcproxy/trace/digest"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipset"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// State is the content of the files of one node. It is immutable once loaded, and safe for concurrent use.
type State struct {
	Name string

	// Rules are the tables of every backend that was read, linked, the virtual servers of IPVS among them.
	Rules *netfilter.Ruleset
	// Have names the backends of iptables whose rules were read, by family.
	Have map[netfilter.Family]map[netfilter.Backend]bool
	// Backends has the families of which a header, a command or a file's name tells the backend; of others it is a guess.
	Backends map[netfilter.Family]bool
	// NotAll says of a family which of iptables' tables exist, or may exist, and were not read; nil where all were.
	NotAll map[netfilter.Family]*NotAll
	// Host is the node's network as far as it was collected; never nil.
	Host *host.Network
	// GroupPrograms are the programs of BPF that are attached to control groups.
	GroupPrograms []GroupProgram
	// Sets are the ipsets; nil where they were not collected.
	Sets netfilter.SetLookup
	// Virtual are the virtual servers of IPVS, in the order of their file.
	Virtual []ipvs.VirtualServer
	// Connections is the kernel's connection table; nil where it was not collected.
	Connections *conntrack.Table
	// Sockets are those that listen on the node; nil where SocketsRead is false.
	Sockets     []host.Socket
	SocketsRead bool
	// InUse are how many sockets a pod's network namespace has; nil where that was not collected.
	InUse *host.SocketCounts
	// Journal is what the command program has recorded on the node; nil where that was not collected.
	Journal *snapshot.Journal
	// Probes are the connections that were made from the node, by target; nil where there were none.
	Probes map[snapshot.ProbeTarget]*snapshot.Probes
	// Tracked is what connection tracking counted while they were made; nil where it was not read.
	Tracked *snapshot.Tracked
	// Proxy is what kube-proxy reports about itself, and whether it runs.
	Proxy kubeproxy.Status
	// Config is kube-proxy's configuration from the running process or its file; nil where neither was collected.
	Config *kubeproxy.Config
	// Flags is the command line of kube-proxy, or of what contains it; nil where it was not collected or not read.
	Flags *kubeproxy.Flags

	files    map[string]bool    // that were collected
	reasons  map[string]string  // why the collector did not read files; nil: not recorded
	readings map[string]Reading // of files that could not be read here, or not all of them
	failed   map[string]string  // why files of rules that were collected cannot be read

	asTheyWere *digest.Sum // of the files that SameBeside compares byte by byte; nil: they were not noted
}

// Load reads a node's files. The error names the node and the file of rules that cannot be read, and what is wrong with
// it; the State is then what was read before it, and is never nil. What is wrong with the other files is told by
// [State.Reading].
func Load(files *snapshot.Node) (*State, error) {
	s := &State{
		Name: files.Name, Host: &host.Network{}, Rules: &netfilter.Ruleset{}, files: map[string]bool{},
		readings: map[string]Reading{},
		failed:   map[string]string{}, NotAll: map[netfilter.Family]*NotAll{},
	}
	for _, name := range snapshot.NodeFiles {
		s.files[name] = files.Has(name)
	}
	l := &loader{State: s, from: files}
	for _, read := range []func() error{
		l.rules, l.sets, l.virtual, l.host, l.programs, l.connections, l.probes, l.sockets, l.config, l.flags, l.proxy,
		l.journal,
	} {
		if err := read(); err != nil {
			return s, snapshot.ErrorOf(s.Name, err)
		}
	}
	s.addVirtual()
	return s, nil
}

// loader fills in a State.
type loader struct {
	*State
	from *snapshot.Node
}

// Has tells whether a file was collected.
func (s *State) Has(file string) bool { return s.files[file] }

// Unread returns why a file was not read, or cannot be; "" where it was, where it does not exist, and where that was
// not recorded.
func (s *State) Unread(file string) string {
	if why := s.failed[file]; why != "" {
		return why
	}
	return s.reasons[file]
}

// UnreadFiles returns the names of the files that Unread has a reason for, sorted.
func (s *State) UnreadFiles() []string {
	all := maps.Clone(s.failed)
	for f := range s.reasons {
		all[f] = s.Unread(f)
	}
	return slices.Sorted(maps.Keys(all))
}

// ListsUnread tells whether the collector recorded what it could not read: then a file that is missing does not exist
// on the node.
func (s *State) ListsUnread() bool { return s.reasons != nil }

// file reads an optional file; its absence is nil.
func (l *loader) file(name string) ([]byte, error) {
	data, ok, err := l.from.File(name)
	if err != nil || !ok {
		return nil, err
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// journal reads the journal of the command program.
func (l *loader) journal() error {
	j, err := l.from.Journal()
	if err == nil {
		l.Journal = j
	}
	return l.judged(snapshot.JournalFile, err)
}

// judged notes what is wrong with a file that is evidence; the error is that of the node's files together.
func (l *loader) judged(file string, err error) error {
	if errors.Is(err, snapshot.ErrTotal) {
		return err
	}
	l.unreadable(file, err, false)
	return nil
}

// host reads the files of the node's network.
func (l *loader) host() error {
	var f host.Files
	for _, x := range []struct {
		name string
		data *[]byte
	}{
		{snapshot.AddrFile, &f.Addr},
		{snapshot.LinkFile, &f.Link},
		{snapshot.RouteFile, &f.Route4},
		{snapshot.Route6File, &f.Route6},
		{snapshot.RuleFile, &f.Rule4},
		{snapshot.Rule6File, &f.Rule6},
		{snapshot.NeighbourFile, &f.Neighbours},
		{snapshot.BridgeFDBFile, &f.BridgeFDB},
		{snapshot.WireGuardFile, &f.WireGuard},
		{snapshot.SysctlFile, &f.Sysctl},
		{snapshot.TimeFile, &f.Time},
	} {
		var err error
		if *x.data, err = l.evidence(x.name, false); err != nil {
			return err
		}
	}
	f.Rule4Unread = l.Reading(snapshot.RuleFile).State == Unreadable
	f.Rule6Unread = l.Reading(snapshot.Rule6File).State == Unreadable
	network, errs := host.Parse(f)
	l.Host = network
	for _, err := range errs {
		if of, ok := errors.AsType[*host.FileError](err); ok {
			l.unreadable(of.File, of.Err, of.Partial)
		}
	}
	return nil
}

func (l *loader) sets() error {
	data, err := l.listed(snapshot.IPSetFile)
	if err != nil || data == nil {
		return err
	}
	sets, err := ipset.Parse(data)
	if err != nil {
		l.fail(snapshot.IPSetFile, err)
		return nil
	}
	l.Sets = sets
	return nil
}

// listed returns the content of a file that lists something; nil where it is absent, or may be what a command has left
// behind that failed.
func (l *loader) listed(file string) ([]byte, error) {
	data, err := l.file(file)
	if data != nil && len(bytes.TrimSpace(data)) == 0 && !l.ListsUnread() {
		l.fail(file, errEmpty)
		return nil, err
	}
	return data, err
}

func (l *loader) virtual() error {
	data, err := l.listed(snapshot.IPVSFile)
	if err != nil || data == nil {
		return err
	}
	if l.Virtual, err = ipvs.Parse(data); err != nil {
		l.fail(snapshot.IPVSFile, err)
		return nil
	}
	l.serversAlone()
	return nil
}

// addVirtual adds the virtual servers to the rules.
func (s *State) addVirtual() {
	tracked := op.Maybe
	if v, ok := s.Host.Sysctl("net/ipv4/vs/conntrack"); ok {
		tracked = op.Is(v != "0")
	}
	s.Rules.Add(ipvs.Tables(s.Virtual, tracked)...)
}

// connections reads the connection table. Of a part of it each connection is one all the same.
func (l *loader) connections() error {
	some := func(list []conntrack.Entry, _ error) bool { return len(list) > 0 }
	list, ok, err := read(l, snapshot.ConntrackFile, true, conntrack.Parse, some)
	if ok {
		l.Connections = conntrack.NewTable(list)
	}
	return err
}

func (l *loader) sockets() (err error) {
	if l.InUse, _, err = read(l, snapshot.SocketCountsFile, true, host.ParseSocketCounts, nil); err != nil {
		return err
	}
	l.Sockets, l.SocketsRead, err = read(l, snapshot.ListenFile, true, host.ParseListen, nil)
	if err != nil || !l.SocketsRead {
		return err
	}
	mark := func(data []byte) (struct{}, error) { return struct{}{}, host.MarkStopped(l.Sockets, data) }
	_, _, err = read(l, snapshot.StoppedFile, true, mark, func(struct{}, error) bool {
		return slices.ContainsFunc(l.Sockets, func(s host.Socket) bool { return s.Stopped })
	})
	return err
}

func (l *loader) probes() error {
	p, err := l.from.Probed()
	if err != nil || p == nil {
		return l.judged(snapshot.ProbesFile, err)
	}
	l.Probes, l.Tracked = make(map[snapshot.ProbeTarget]*snapshot.Probes, len(p.Targets)), p.Tracked
	for i := range p.Targets {
		k := p.Targets[i].Bare()
		l.Probes[k] = &p.Targets[i]
	}
	return nil
}

// SocketAt returns the socket that receives packets of a protocol ("tcp") to an address and port of the node; nil where
// none does.
func (s *State) SocketAt(protocol string, at netip.AddrPort) *host.Socket {
	for i := range s.Sockets {
		if s.Sockets[i].Accepts(protocol, at) {
			return &s.Sockets[i]
		}
	}
	return nil
}
