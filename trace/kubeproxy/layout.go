// SPDX-License-Identifier: Apache-2.0

package kubeproxy

// Layout is what kube-proxy's versions program differently and what shows in the rules of a node. Patch releases change
// it too, so the rules tell more of it than a version's number. The zero value of a field: the rules do not show it.
type Layout struct {
	NFTFilter       NFTFilter
	NFTHairpin      NFTHairpin
	IPVSExternalIPs IPVSExternalIPs
}

// NFTFilter is where nftables mode has its base chains of type filter (pkg/proxy/nftables/proxier.go,
// nftablesBaseChains and nftablesJumpChains).
type NFTFilter uint8

const (
	// NFTFilterAlpha (1.29): one chain endpoints-check and one chain firewall-check, both jumped to from filter-input,
	// filter-forward and filter-output at priority dnat-1. After nat-prerouting they see translated packets.
	NFTFilterAlpha NFTFilter = iota + 1
	// NFTFilterPreDNAT (1.30 to 1.32, and 1.33 until a patch release): filter-output is before nat-output.
	NFTFilterPreDNAT
	// NFTFilterPostDNAT (patch releases of 1.33, and from 1.34 on): filter-output is behind nat-output, and
	// filter-output-pre-dnat before it has the source ranges alone.
	NFTFilterPostDNAT
)

// NFTHairpin is how nftables mode masquerades connections of an endpoint to itself.
type NFTHairpin uint8

const (
	// NFTHairpinRules (until 1.35): by a rule in the chain of each endpoint.
	NFTHairpinRules NFTHairpin = iota + 1
	// NFTHairpinSet (from 1.36 on): by the set hairpin-connections, of the endpoints on this node.
	NFTHairpinSet
)

// IPVSExternalIPs tells what ipvs mode's chain KUBE-IPVS-FILTER does with packets to external IPs of Services with
// externalTrafficPolicy Local (pkg/proxy/ipvs/proxier.go, writeIptablesRules).
type IPVSExternalIPs uint8

const (
	// IPVSExternalIPsRefused (until patch releases of 1.28 and 1.29): it rejects them, as it does all that no virtual
	// server has taken (kubernetes/kubernetes#121909).
	IPVSExternalIPsRefused IPVSExternalIPs = iota + 1
	// IPVSExternalIPsPass (those patch releases, and from 1.30 on): the set KUBE-EXTERNAL-IP-LOCAL returns before that.
	IPVSExternalIPsPass
)

// LayoutOf returns the layout of the last known patch release of a minor version ("1.MINOR").
func LayoutOf(minor int) Layout {
	l := Layout{NFTFilterPostDNAT, NFTHairpinSet, IPVSExternalIPsPass}
	switch {
	case minor <= 29:
		l.NFTFilter = NFTFilterAlpha
	case minor <= 32:
		l.NFTFilter = NFTFilterPreDNAT
	}
	if minor <= 35 {
		l.NFTHairpin = NFTHairpinRules
	}
	if minor <= 27 {
		l.IPVSExternalIPs = IPVSExternalIPsRefused
	}
	return l
}

// Over returns what the rules show, where they do, and what the layout of the version has elsewhere. That ipvs mode
// lacks the rule for external IPs shows in nothing but its absence: from 1.30 on, where every kube-proxy has it, it was
// deleted.
func (shown Layout) Over(minor int) Layout {
	l := LayoutOf(minor)
	if shown.NFTFilter != 0 {
		l.NFTFilter = shown.NFTFilter
	}
	if shown.NFTHairpin != 0 {
		l.NFTHairpin = shown.NFTHairpin
	}
	if shown.IPVSExternalIPs != 0 && minor < 30 {
		l.IPVSExternalIPs = shown.IPVSExternalIPs
	}
	return l
}
