// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// format is what a file may be, before anybody parses it.
type format struct {
	size  int64 // bytes, uncompressed
	check func(name string, data []byte) error
}

// The formats of the contract's files.
var (
	lines      = format{bounds.File, bounds.CheckLines}
	fewLines   = format{bounds.SmallFile, bounds.CheckLines}
	listing    = format{bounds.File, bounds.NodeJSON.Check} // of rules
	servers    = format{bounds.File, bounds.CheckServers}
	routes     = format{bounds.SmallFile, bounds.RoutesJSON.Check}
	policies   = format{bounds.SmallFile, bounds.PolicyJSON.Check}
	settings   = format{bounds.Config, bounds.NodeJSON.Check} // JSON that is read as YAML
	settingsIn = format{bounds.Config, bounds.CheckYAML}
	objects    = format{bounds.File, bounds.ClusterJSON.Check}
	objectsIn  = format{bounds.YAML, bounds.CheckYAML}
)

// formats are those of a node's files. The others are as lines.
var formats = map[string]format{
	NFTFile:  listing,
	IPVSFile: servers, AddrFile: routes, LinkFile: routes, RouteFile: routes, Route6File: routes, RuleFile: policies,
	Rule6File: policies, HealthzFile: policies, LivezFile: fewLines, ProbesFile: policies, UnreadFile: policies,
	ProgramsFile: fewLines, XfrmFile: fewLines, EbtablesFile: fewLines, NFTHooksFile: fewLines,
	NeighbourFile: routes, BridgeFDBFile: routes, WireGuardFile: fewLines,
	SysctlFile: fewLines, ListenFile: fewLines, MetricsFile: fewLines, ProxyModeFile: fewLines, VersionsFile: fewLines,
	ProcessesFile: fewLines, ConfigzFile: settings, ProxyConfigFile: settingsIn, FlagsFile: fewLines,
	PacketFile: fewLines, SocketCountsFile: fewLines, StoppedFile: fewLines,
	ResolvConfFile: {bounds.Config, bounds.CheckLines},
}

// formatOf returns the format of a node's file.
func formatOf(name string) format {
	if f, ok := podFileOf(name); ok {
		name = f
	}
	if f, ok := formats[name]; ok {
		return f
	}
	return lines
}

// Check returns a [bounds.Error] if the content of a node's file passes a limit: such a file is not read.
func Check(name string, data []byte) error {
	f := formatOf(name)
	if int64(len(data)) > f.size {
		return bounds.TooLarge(name, f.size)
	}
	return f.verify(name, data)
}

func (f format) verify(name string, data []byte) error {
	if f.check == nil {
		return nil
	}
	return f.check(name, data)
}
