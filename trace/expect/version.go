// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// newest is the minor version that is assumed when kube-proxy's version is not known.
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
	"AllowServiceExternalIPs":       {{0, locked, true}, {37, stable, true}},

	"KubeProxyNFTablesLocalhostNodePorts": {{37, alpha, false}},
}

// features are the parts of the behaviour that depend on kube-proxy's version and feature gates.
type features struct {
	minor       int
	known       bool // the version is known
	zoneHints   bool // use hints for zones at all
	annotation  bool // zone hints only for Services with the annotation (before ServiceTrafficDistribution)
	nodeHints   bool // use hints for nodes
	ipMode      bool // leave load-balancer IPs with ipMode Proxy alone
	externalIPs bool // program external IPs
	oneSelector bool // the labels service-proxy-name and headless both hide Services as well as EndpointSlices
	loopback    bool // nftables mode: a process serves or a rule rejects NodePorts at loopback addresses
	terminating bool // fall back to endpoints that are terminating and still serve
	duplicates  duplicateRule
}

func featuresOf(c *kubeproxy.Config) features {
	minor, known := minorOf(c.Version)
	enabled := func(name string) bool {
		var g gate
		for _, h := range gates[name] {
			if h.since <= minor {
				g = h
			}
		}
		if g.stage == locked {
			return g.on
		}
		if set, ok := c.FeatureGates[name]; ok && minor >= gates[name][0].since {
			return set
		}
		all := map[stage]string{alpha: "AllAlpha", beta: "AllBeta"}[g.stage]
		if set, ok := c.FeatureGates[all]; ok && minor >= gates[name][0].since {
			return set
		}
		return g.on
	}
	distribution := enabled("ServiceTrafficDistribution")
	return features{
		minor: minor, known: known,
		zoneHints:   enabled("TopologyAwareHints") || distribution,
		annotation:  !distribution,
		nodeHints:   enabled("PreferSameTrafficDistribution"),
		ipMode:      enabled("LoadBalancerIPMode"),
		externalIPs: enabled("AllowServiceExternalIPs"),
		loopback:    enabled("KubeProxyNFTablesLocalhostNodePorts"),
		terminating: enabled("ProxyTerminatingEndpoints"),
		oneSelector: minor < 36,
		duplicates:  duplicateRuleOf(minor, known),
	}
}
