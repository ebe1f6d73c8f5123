// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/pasted"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Families are the IP families that rules are read of, in order.
var Families = []netfilter.Family{netfilter.IPv4, netfilter.IPv6}

// SaveFile is a save file of the contract, and the backend whose rules it holds.
type SaveFile struct {
	Name    string
	Backend netfilter.Backend // "" for the default one, which the file's header names
}

// SaveFiles are those of each family; the default one comes last.
var SaveFiles = map[netfilter.Family][]SaveFile{
	netfilter.IPv4: {
		{snapshot.IPTablesNFTFile, netfilter.BackendNFT}, {snapshot.IPTablesLegacyFile, netfilter.BackendLegacy}, {
			snapshot.IPTablesFile, "",
		},
	},
	netfilter.IPv6: {
		{snapshot.IP6TablesNFTFile, netfilter.BackendNFT}, {snapshot.IP6TablesLegacyFile, netfilter.BackendLegacy}, {
			snapshot.IP6TablesFile, "",
		},
	},
}

// IsRules tells whether a file holds rules of iptables or nftables, without which a family cannot be judged.
func IsRules(file string) bool {
	for _, saves := range SaveFiles {
		for _, d := range saves {
			if d.Name == file {
				return true
			}
		}
	}
	return file == snapshot.NFTFile
}

// rules reads the tables of all backends, the families concurrently.
func (l *loader) rules() error {
	reasons, err := l.from.Unread()
	l.reasons = reasons
	if err := l.judged(snapshot.UnreadFile, err); err != nil {
		return err
	}
	saves := make([]saved, len(Families))
	var reading parallel.Group
	for i, f := range Families {
		reading.Go(func() { saves[i] = l.saved(f) })
	}
	reading.Wait()
	for i, f := range Families {
		saves[i].fromOther(l, f, &saves[1-i])
	}
	l.Have, l.Backends = map[netfilter.Family]map[netfilter.Backend]bool{}, map[netfilter.Family]bool{}
	for i, f := range Families {
		if err := saves[i].limit; err != nil {
			return err
		}
		l.Rules.Tables = append(l.Rules.Tables, saves[i].tables...)
		l.Have[f], l.Backends[f] = saves[i].have, saves[i].told
		maps.Copy(l.failed, saves[i].failed)
	}
	native, err := l.native(saves[0].hasNFT(), saves[1].hasNFT())
	if err != nil {
		return err
	}
	native = l.insteadOf(native)
	for i := range saves {
		saves[i].doubtForeign(l.HasNFT())
	}
	l.Rules.Tables = append(l.Rules.Tables, native...)
	l.Rules.Link()
	for i, f := range Families {
		l.NotAll[f] = l.notAll(f, &saves[i])
	}
	l.oneTable(native)
	return nil
}

// saved is what the save files of a family hold.
type saved struct {
	tables []*netfilter.Table
	have   map[netfilter.Backend]bool
	told   bool // a header, a command or the file's name tells the backend
	dumps  map[netfilter.Backend]*iptables.Dump
	failed map[string]string // why a file cannot be read
	limit  error             // a file passes a limit: nothing of the node is read
	both   bool              // a file may have tables of the other family, too
}

// saved reads the save files of one family. The default one is ignored when its backend has a file of its own. An empty
// file is what a save command prints where there is no table at all; it counts as read only beside one that is not.
func (l *loader) saved(f netfilter.Family) saved {
	out := saved{
		have: map[netfilter.Backend]bool{}, dumps: map[netfilter.Backend]*iptables.Dump{}, failed: map[string]string{},
	}
	for _, d := range SaveFiles[f] {
		out.read(l, d, f)
	}
	return out
}

// fromOther reads what the other family's files have of a family that has no file.
func (x *saved) fromOther(l *loader, f netfilter.Family, other *saved) {
	if !other.both || len(x.have) > 0 || len(x.failed) > 0 || l.ListsUnread() {
		return
	}
	for _, d := range SaveFiles[netfilter.Inet&^f] {
		both := saved{have: x.have, dumps: x.dumps, failed: map[string]string{}}
		both.read(l, d, f)
		if both.limit == nil {
			x.tables, x.told = append(x.tables, both.tables...), both.told
		}
	}
}

// read reads one file.
func (x *saved) read(l *loader, d SaveFile, f netfilter.Family) {
	data, err := l.file(d.Name)
	if err != nil {
		x.limit = err
	}
	if data == nil || err != nil {
		return
	}
	x.both = x.both || iptables.MayHold(data, netfilter.Inet&^f)
	backend, told := d.Backend, true
	if backend == "" {
		var b netfilter.Backend
		if _, b, told = iptables.Header(data); told {
			backend = b
		} else if len(x.have) > 0 {
			return
		} else {
			backend = l.likelyBackend(f)
		}
		if x.have[backend] {
			return
		}
	}
	dump, err := iptables.Read(data, f, backend)
	if errors.Is(err, iptables.ErrEmpty) {
		return
	}
	if err != nil {
		x.failed[d.Name] = err.Error()
		return
	}
	x.have[backend], x.dumps[backend] = true, dump
	x.told = told
	x.tables = append(x.tables, dump.Tables...)
}

// likelyBackend is the backend of rules of which nothing tells it: iptables-nft, unless the tables of nf_tables have
// been read, and those of iptables are not among them.
func (l *loader) likelyBackend(f netfilter.Family) netfilter.Backend {
	data, err := l.file(snapshot.NFTFile)
	if err != nil || data == nil {
		return netfilter.BackendNFT
	}
	seen := false
	_, err = nftables.Parse(data, func(family, table string) bool {
		seen = seen || nftables.IPTables(family, table) && (family == "ip6") == (f == netfilter.IPv6)
		return true
	})
	if err == nil && !seen {
		return netfilter.BackendLegacy
	}
	return netfilter.BackendNFT
}

// native reads the nftables tables that are in no save file of iptables-nft; v4 and v6 tell whose was read. A file that
// cannot be read is noted; the error is that of a limit.
func (l *loader) native(v4, v6 bool) ([]*netfilter.Table, error) {
	data, err := l.file(snapshot.NFTFile)
	if err != nil || data == nil {
		return nil, err
	}
	tables, err := nftables.Parse(data, func(family, table string) bool {
		return nftables.IPTables(family, table) && (family == "ip" && v4 || family == "ip6" && v6)
	})
	if err == nil {
		return tables, nil
	}
	if isNFTText(data) {
		err = errNFTText
	}
	l.fail(snapshot.NFTFile, err)
	return nil, nil
}

// doubtForeign makes tables unread that have base chains of nft, where nothing shows these.
func (x *saved) doubtForeign(shown bool) {
	for backend, d := range x.dumps {
		for _, t := range x.tables {
			if shown || t.Backend != backend || !slices.Contains(d.Foreign, t.Name) {
				continue
			}
			for _, c := range t.Chains {
				if c.Base != nil {
					c.Unread = "nft has given this table base chains that iptables-save does not show: nft list ruleset does"
				}
			}
		}
	}
}

// unreadApart is said of a chain whose rules iptables-save and the kernel do not count alike.
const unreadApart = "nft has written rules into it that iptables-save does not show as they are: nft list ruleset does"

// insteadOf puts rules that iptables-nft cannot have written in the place of what its listing makes of them, and
// returns the tables that have chains of their own.
func (l *loader) insteadOf(native []*netfilter.Table) []*netfilter.Table {
	for _, t := range native {
		for _, own := range l.Rules.Tables {
			if len(t.Instead) == 0 || own.Backend != netfilter.BackendNFT || own.Family != t.Family || own.Name != t.Name {
				continue
			}
			own.Sets = append(own.Sets, t.Sets...)
			chains := make(map[string]*netfilter.Chain, len(own.Chains))
			for _, c := range own.Chains {
				chains[c.Name] = c
			}
			for i := range t.Instead {
				x := &t.Instead[i]
				switch c := chains[x.Chain]; {
				case c == nil:
				case len(c.Rules) != x.Rules:
					c.Unread = unreadApart
				default:
					c.Rules[x.At] = x.Rule
				}
			}
		}
	}
	return slices.DeleteFunc(native, func(t *netfilter.Table) bool { return len(t.Instead) > 0 && len(t.Chains) == 0 })
}

// errNFTText is the error of a ruleset as nft prints it without -j. nft reads that, in a network namespace of its own,
// so that nobody's rules change.
var errNFTText = errors.New("it is what nft prints without -j: that of nft -j list ruleset was expected; from this " +
	"text, root makes it by: unshare -n sh -c 'nft -f FILE && nft -j list ruleset'")

func isNFTText(data []byte) bool {
	for line := range strings.Lines(pasted.Text(data[:min(len(data), 1<<16)])) {
		// "table ip kube-proxy { # handle 18", or without a family
		if f := strings.Fields(line); len(f) > 2 && f[0] == "table" && (f[2] == "{" || len(f) > 3 && f[3] == "{") {
			return true
		}
	}
	return false
}

// HasNFT tells whether the tables of nftables were read.
func (s *State) HasNFT() bool { return s.Has(snapshot.NFTFile) && s.Unread(snapshot.NFTFile) == "" }

// UnreadNFT returns why they could not be read; "" where they were, or where there are none.
func (s *State) UnreadNFT() string {
	if s.HasNFT() {
		return ""
	}
	return s.Unread(snapshot.NFTFile)
}

// hasNFT tells whether the rules of iptables-nft are in a save file, read or not: then those in nftables' own listing,
// which leaves out what iptables' matches compare, are none to judge.
func (x *saved) hasNFT() bool { return x.have[netfilter.BackendNFT] || len(x.failed) > 0 }
