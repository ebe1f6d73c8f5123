// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"fmt"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
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
	return file == snapshot.NFTFile || file == snapshot.NFTDumpFile
}

// rules reads the tables of all backends, the families concurrently.
func (l *loader) rules() error {
	var err error
	if l.reasons, err = l.from.Unread(); err != nil {
		return err
	}
	tables := make([][]*netfilter.Table, len(Families))
	errs := make([]error, len(Families))
	have := make([]map[netfilter.Backend]bool, len(Families))
	var wg sync.WaitGroup
	for i, f := range Families {
		wg.Go(func() { tables[i], have[i], errs[i] = l.saved(f) })
	}
	wg.Wait()
	l.Have = map[netfilter.Family]map[netfilter.Backend]bool{}
	for i, f := range Families {
		if errs[i] != nil {
			return errs[i]
		}
		l.Rules.Tables = append(l.Rules.Tables, tables[i]...)
		l.Have[f] = have[i]
	}
	native, err := l.native(have[0][netfilter.BackendNFT], have[1][netfilter.BackendNFT])
	if err != nil {
		return err
	}
	l.Rules.Tables = append(l.Rules.Tables, native...)
	l.Rules.Link()
	return nil
}

// saved reads the save files of one family. The default one is ignored when its backend has a file of its own. An empty
// file is what a save command prints where there is no table at all; it counts as read only beside one that is not.
func (l *loader) saved(f netfilter.Family) (tables []*netfilter.Table, have map[netfilter.Backend]bool, err error) {
	have = map[netfilter.Backend]bool{}
	for _, d := range SaveFiles[f] {
		data, err := l.file(d.Name)
		if err != nil {
			return nil, nil, err
		}
		if data == nil {
			continue
		}
		backend := d.Backend
		if backend == "" {
			if _, b, ok := iptables.Header(data); ok {
				backend = b
			} else if len(have) > 0 {
				continue
			} else {
				backend = netfilter.BackendNFT
			}
			if have[backend] {
				continue
			}
		}
		ts, err := iptables.Parse(data, f, backend)
		if errors.Is(err, iptables.ErrEmpty) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		have[backend] = true
		tables = append(tables, ts...)
	}
	return tables, have, nil
}

// native reads the nftables tables that are in no save file of iptables-nft; v4 and v6 tell whose was read.
func (l *loader) native(v4, v6 bool) ([]*netfilter.Table, error) {
	// The kernel's messages are preferred: nft does not print all of them.
	file, parse := snapshot.NFTDumpFile, nftables.ParseDump
	if !l.Has(file) {
		file, parse = snapshot.NFTFile, nftables.Parse
	}
	data, err := l.file(file)
	if err != nil || data == nil {
		return nil, err
	}
	return parse(data, func(family, table string) bool {
		return nftables.IPTables(family, table) && (family == "ip" && v4 || family == "ip6" && v6)
	})
}

// HasNFT tells whether the tables of nftables were collected, as nft prints them or as the kernel has them.
func (s *State) HasNFT() bool { return s.Has(snapshot.NFTDumpFile) || s.Has(snapshot.NFTFile) }

// UnreadNFT returns why neither could be read; "" where one was, or where there is none.
func (s *State) UnreadNFT() string {
	if s.Has(snapshot.NFTDumpFile) {
		return ""
	}
	if why := s.Unread(snapshot.NFTFile); why != "" || s.Has(snapshot.NFTFile) {
		return why
	}
	return s.Unread(snapshot.NFTDumpFile)
}
