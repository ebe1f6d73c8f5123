// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Setting names one value of kube-proxy's that decides what is programmed: its version, or a part of its configuration.
type Setting string

// The settings. DetectLocal is detectLocalMode with what belongs to it: clusterCIDR, bridgeInterface or
// interfaceNamePrefix.
const (
	SettingMode      Setting = "mode"
	SettingVersion   Setting = "version"
	DetectLocal      Setting = "detectLocalMode"
	MasqueradeAll    Setting = "masqueradeAll"
	MasqueradeBit    Setting = "masqueradeBit"
	NodePortRanges   Setting = "nodePortAddresses"
	LocalNodePorts   Setting = "localhostNodePorts"
	IPVSScheduler    Setting = "scheduler"
	StrictARP        Setting = "strictARP"
	IPVSExcludeCIDRs Setting = "excludeCIDRs"
	FeatureGates     Setting = "featureGates"
)

// Source is where a value was found.
type Source string

// The sources. FromFlags is the command line of the process: of a kube-proxy that was started without --config it tells
// all values, of a program that contains kube-proxy (k3s) those that it names.
const (
	FromConfigz   Source = "configz"
	FromFile      Source = "file"
	FromFlags     Source = "flags"
	FromConfigMap Source = "configMap"
	FromProxyMode Source = "proxyMode"
	FromMetrics   Source = "metrics"
	FromImage     Source = "image"
	FromRules     Source = "rules"
	NotKnown      Source = "unknown"
)

// Value is a value and where it was found.
type Value struct {
	Setting Setting
	Text    string // as the configuration file has it, on one line; "" where it is not known
	Source  Source
	Detail  string // a clause: the file, or what of the rules shows it, or what is known of it all the same
}

// setting is what the code needs to know of a Setting.
type setting struct {
	name Setting
	// text writes the value of a configuration.
	text func(c *Config) string
	// copy takes the value over from another configuration.
	copy func(to, from *Config)
	// in are the modes in which alone the value decides anything, and not are those in which it does not; nil: all, none.
	in, not []string
}

// settings are those of the configuration, but for the mode, in the order of reports.
var settings = []setting{
	{DetectLocal, textOfLocal, func(to, from *Config) {
		to.DetectLocalMode, to.ClusterCIDRs = from.DetectLocalMode, from.ClusterCIDRs
		to.BridgeInterface, to.InterfaceNamePrefix = from.BridgeInterface, from.InterfaceNamePrefix
	}, nil, nil},
	{
		MasqueradeAll, func(c *Config) string { return strconv.FormatBool(c.MasqueradeAll) },
		func(to, from *Config) { to.MasqueradeAll = from.MasqueradeAll }, nil, nil,
	},
	{
		MasqueradeBit, func(c *Config) string { return strconv.Itoa(c.MasqueradeBit) },
		func(to, from *Config) { to.MasqueradeBit = from.MasqueradeBit }, nil, nil,
	},
	{NodePortRanges, func(c *Config) string {
		if len(c.NodePortAddresses) == 0 {
			return "default"
		}
		return strings.Join(c.NodePortAddresses, ",")
	}, func(to, from *Config) { to.NodePortAddresses = from.NodePortAddresses }, nil, nil},
	{
		LocalNodePorts, func(c *Config) string { return strconv.FormatBool(c.LocalhostNodePorts) },
		func(to, from *Config) { to.LocalhostNodePorts = from.LocalhostNodePorts }, nil,
		[]string{NFTables, IPVS},
	},
	{
		IPVSScheduler, func(c *Config) string { return c.Scheduler },
		func(to, from *Config) { to.Scheduler = from.Scheduler },
		[]string{IPVS},
		nil,
	},
	{
		StrictARP, func(c *Config) string { return strconv.FormatBool(c.StrictARP) },
		func(to, from *Config) { to.StrictARP = from.StrictARP },
		[]string{IPVS},
		nil,
	},
	{
		IPVSExcludeCIDRs, func(c *Config) string { return orNone(joined(c.ExcludeCIDRs)) },
		func(to, from *Config) { to.ExcludeCIDRs = from.ExcludeCIDRs },
		[]string{IPVS},
		nil,
	},
	{FeatureGates, func(c *Config) string {
		out := make([]string, 0, len(c.FeatureGates))
		for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
			out = append(out, fmt.Sprintf("%s=%t", name, c.FeatureGates[name]))
		}
		return orNone(strings.Join(out, ","))
	}, func(to, from *Config) { to.FeatureGates = from.FeatureGates }, nil, nil},
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func joined(cidrs []netip.Prefix) string {
	out := make([]string, len(cidrs))
	for i, p := range cidrs {
		out[i] = p.String()
	}
	return strings.Join(out, ",")
}

// textOfLocal writes detectLocalMode with what belongs to it.
func textOfLocal(c *Config) string {
	switch c.DetectLocalMode {
	case DetectBridge:
		return c.DetectLocalMode + " " + c.BridgeInterface
	case DetectNamePrefix:
		return c.DetectLocalMode + " " + c.InterfaceNamePrefix
	case DetectNodeCIDR:
		return c.DetectLocalMode
	}
	if len(c.ClusterCIDRs) == 0 {
		return DetectClusterCIDR + " none"
	}
	return DetectClusterCIDR + " " + joined(c.ClusterCIDRs)
}

// Settings are those of the configuration that decide what is programmed in a mode, but for the mode itself.
func Settings(mode string) []Setting {
	var out []Setting
	for i := range settings {
		if s := &settings[i]; (s.in == nil || slices.Contains(s.in, mode)) && !slices.Contains(s.not, mode) {
			out = append(out, s.name)
		}
	}
	return out
}

func find(s Setting) *setting {
	if i := slices.IndexFunc(settings, func(x setting) bool { return x.name == s }); i >= 0 {
		return &settings[i]
	}
	return nil
}

// Text writes a setting of the configuration as the configuration file has it, on one line; "" for one that is not in
// it.
func (c *Config) Text(s Setting) string {
	if x := find(s); x != nil {
		return x.text(c)
	}
	return ""
}

// Take takes a setting over from another configuration.
func (c *Config) Take(s Setting, from *Config) {
	if x := find(s); x != nil {
		x.copy(c, from)
	}
}
