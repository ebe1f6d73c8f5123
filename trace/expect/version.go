// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// newest is the last minor version of which the behaviour is known, and what is assumed of later ones and where
// kube-proxy's version is not known.
const newest = 37

// minorOf returns the minor version of "v1.36.3", and whether the string has one.
func minorOf(version string) (minor int, known bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), "1.")
	if !ok {
		return newest, false
	}
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	minor, err := strconv.Atoi(rest[:end])
	if err != nil {
		return newest, false
	}
	return minor, true
}

// stage is a maturity level of a feature gate.
type stage uint8

const (
	alpha stage = iota
	beta
	stable // the guarded feature is GA (or, for a switch like AllowServiceExternalIPs, the gate itself is)
	locked // stable, and no longer to be changed
)

// gate is one entry in the history of a feature gate: from this minor version on it has this stage and default.
type gate struct {
	since int
	stage stage
	on    bool
}

// gates is the history of the feature gates that decide what is programmed (pkg/features/kube_features.go).
var gates = map[string][]gate{
	"TopologyAwareHints":            {{24, beta, true}, {33, locked, true}},
	"ServiceTrafficDistribution":    {{30, alpha, false}, {31, beta, true}, {33, locked, true}},
	"PreferSameTrafficDistribution": {{33, alpha, false}, {34, beta, true}, {35, locked, true}},
	"LoadBalancerIPMode":            {{29, alpha, false}, {30, beta, true}, {32, locked, true}},
	"ProxyTerminatingEndpoints":     {{26, beta, true}, {28, locked, true}},
	"AllowServiceExternalIPs":       {{0, locked, true}, {36, stable, true}},

	"KubeProxyNFTablesLocalhostNodePorts": {{37, alpha, false}},
}

// features are the parts of the behaviour that depend on kube-proxy's version and feature gates and that a node's rules
// do not show; what they show is [kubeproxy.Layout].
type features struct {
	zoneHints     bool // use hints for zones at all
	annotation    bool // zone hints only for Services with the annotation (before ServiceTrafficDistribution)
	autoOnly      bool // the annotation's only value is Auto (until 1.26; later any but Disabled)
	nodeHints     bool // use hints for nodes
	ipMode        bool // leave load-balancer IPs with ipMode Proxy alone
	externalIPs   bool // program external IPs
	externalLocal bool // externalTrafficPolicy also holds for Services of type ClusterIP
	oneSelector   bool // the labels service-proxy-name and headless both hide Services as well as EndpointSlices
	loopback      bool // nftables mode: a process serves or a rule rejects NodePorts at loopback addresses
	terminating   bool // fall back to endpoints that are terminating and still serve
	// ownAddress: ipvs mode drops packets of a node outside loadBalancerSourceRanges to the load-balancer IP (chain
	// KUBE-IPVS-OUT-FILTER, kubernetes/kubernetes#119656).
	ownAddress bool
	primary    primaryRule
	duplicates duplicateRule
}

// featuresOf returns the features of a version and its feature gates; of the newest known version where c has none.
func featuresOf(c *kubeproxy.Config) features {
	minor, known := minorOf(c.Version)
	f := featuresAt(minor, c.FeatureGates)
	if !known {
		f.duplicates = lastRunning | lastLocal
	}
	return f
}

// featuresAt returns the features of a minor version with feature gates set.
func featuresAt(minor int, set map[string]bool) features {
	enabled := func(name string) bool { return enabled(name, minor, set) }
	return features{
		// Without TopologyAwareHints they are not even read (pkg/proxy/endpointslicecache.go, addEndpoints).
		zoneHints:     enabled("TopologyAwareHints"),
		annotation:    !enabled("ServiceTrafficDistribution"),
		autoOnly:      minor <= 26,
		nodeHints:     enabled("PreferSameTrafficDistribution"),
		ipMode:        enabled("LoadBalancerIPMode"),
		externalIPs:   enabled("AllowServiceExternalIPs"),
		externalLocal: minor >= 29,
		loopback:      enabled("KubeProxyNFTablesLocalhostNodePorts"),
		terminating:   enabled("ProxyTerminatingEndpoints"),
		oneSelector:   minor < 36,
		ownAddress:    minor >= 29,
		primary:       primaryRuleOf(minor),
		duplicates:    duplicateRuleOf(minor),
	}
}

// of returns the features as far as they decide anything in a mode, so that two are equal where the same is to be
// expected in it.
func (f features) of(m *mode) features {
	f.loopback = f.loopback && m.loopbackFeature
	f.ownAddress = f.ownAddress && m.virtual
	if m.nodePortAddresses == nil {
		f.primary = primaryUnset
	}
	return f
}

// enabled tells whether a feature gate is on in a minor version, with gates set.
func enabled(name string, minor int, set map[string]bool) bool {
	g, known := gateIn(name, minor)
	if !known || g.stage == locked {
		return g.on
	}
	if on, ok := set[name]; ok {
		return on
	}
	all := map[stage]string{alpha: "AllAlpha", beta: "AllBeta"}[g.stage]
	if on, ok := set[all]; ok {
		return on
	}
	return g.on
}

// gateIn returns the state of a feature gate in a minor version, and whether that version has it.
func gateIn(name string, minor int) (g gate, known bool) {
	for _, h := range gates[name] {
		if h.since <= minor {
			g, known = h, true
		}
	}
	return g, known
}

// FeatureGate is what a version makes of a feature gate.
type FeatureGate struct {
	Name       string
	On, Locked bool // by default, and whether that can be changed
}

// FeatureGates returns the feature gates that decide what a version of kube-proxy ("v1.36.3") programs, by name.
func FeatureGates(version string) []FeatureGate {
	minor, _ := minorOf(version)
	var out []FeatureGate
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if g, known := gateIn(name, minor); known && g.since > 0 {
			out = append(out, FeatureGate{name, g.on, g.stage == locked})
		}
	}
	return out
}

// Newest is the last minor version of kube-proxy whose behaviour is known ("1.37"), and what is expected of later ones.
func Newest() string { return "1." + strconv.Itoa(newest) }

// Newer tells whether a version of kube-proxy ("v1.38.0") is later than that.
func Newer(version string) bool {
	minor, known := minorOf(version)
	return known && minor > newest
}
