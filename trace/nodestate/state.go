// SPDX-License-Identifier: Apache-2.0

// Package nodestate reads the files of one node into one State: its rules in every backend, addresses, routes,
// settings, sets, virtual servers, connections, listening sockets, and what its kube-proxy reports about itself. It
// contains no judgement, and does not know Services.
package nodestate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/conntrack"
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
	// Host is the node's network as far as it was collected; never nil.
	Host *host.Network
	// Sets are the ipsets; nil where they were not collected.
	Sets netfilter.SetLookup
	// Virtual are the virtual servers of IPVS, in the order of their file.
	Virtual []ipvs.VirtualServer
	// Connections is the kernel's connection table; nil where it was not collected.
	Connections *conntrack.Table
	// Sockets are those that listen on the node; nil where SocketsRead is false.
	Sockets     []host.Socket
	SocketsRead bool
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

	files   map[string]bool   // that were collected
	reasons map[string]string // why files were not read; nil: not recorded
}

// Load reads a node's files. The error names the node and the file that cannot be read, and what is wrong with it; the
// State is then what was read before it, and is never nil.
func Load(files *snapshot.Node) (*State, error) {
	s := &State{Name: files.Name, Host: &host.Network{}, Rules: &netfilter.Ruleset{}, files: map[string]bool{}}
	for _, name := range snapshot.NodeFiles {
		s.files[name] = files.Has(name)
	}
	l := &loader{State: s, from: files}
	for _, read := range []func() error{
		l.rules, l.sets, l.virtual, l.host, l.connections, l.probes, l.sockets, l.config, l.proxy, l.journal,
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

// Unread returns why a file was not read; "" where it was, where it does not exist, and where that was not recorded.
func (s *State) Unread(file string) string { return s.reasons[file] }

// UnreadFiles returns the names of the files for which the collector recorded why they were not read, sorted.
func (s *State) UnreadFiles() []string {
	out := make([]string, 0, len(s.reasons))
	for f := range s.reasons {
		out = append(out, f)
	}
	slices.Sort(out)
	return out
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

// journal reads the journal of the command program. A damaged one must not prevent reading the rules.
func (l *loader) journal() error {
	if j, err := l.from.Journal(); err == nil {
		l.Journal = j
	}
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
		{snapshot.SysctlFile, &f.Sysctl},
		{snapshot.TimeFile, &f.Time},
	} {
		var err error
		if *x.data, err = l.file(x.name); err != nil {
			return err
		}
	}
	network, errs := host.Parse(f)
	l.Host = network
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// parsed reads an optional file by its parser; the error names the file.
func parsed[T any](l *loader, name string, parse func([]byte) (T, error)) (value T, ok bool, err error) {
	data, err := l.file(name)
	if err != nil || data == nil {
		return value, false, err
	}
	if value, err = parse(data); err != nil {
		return value, false, fmt.Errorf("%s: %w", name, err)
	}
	return value, true, nil
}

func (l *loader) sets() error {
	sets, ok, err := parsed(l, snapshot.IPSetFile, ipset.Parse)
	if ok {
		l.Sets = sets
	}
	return err
}

func (l *loader) virtual() (err error) {
	l.Virtual, _, err = parsed(l, snapshot.IPVSFile, ipvs.Parse)
	return err
}

// addVirtual adds the virtual servers to the rules.
func (s *State) addVirtual() {
	tracked := op.Maybe
	if v, ok := s.Host.Sysctl("net/ipv4/vs/conntrack"); ok {
		tracked = op.Is(v != "0")
	}
	s.Rules.Add(ipvs.Tables(s.Virtual, tracked)...)
}

func (l *loader) connections() error {
	list, ok, err := parsed(l, snapshot.ConntrackFile, conntrack.Parse)
	if ok {
		l.Connections = conntrack.NewTable(list)
	}
	return err
}

func (l *loader) sockets() (err error) {
	l.Sockets, l.SocketsRead, err = parsed(l, snapshot.ListenFile, host.ParseListen)
	return err
}

func (l *loader) probes() error {
	p, err := l.from.Probed()
	if err != nil || p == nil {
		return err
	}
	l.Probes, l.Tracked = make(map[snapshot.ProbeTarget]*snapshot.Probes, len(p.Targets)), p.Tracked
	for i := range p.Targets {
		k := p.Targets[i].ProbeTarget
		k.Probes, k.Trace = 0, false
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
