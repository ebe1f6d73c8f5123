// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// oldest is the oldest minor version that is thought of where kube-proxy's version is not known; nftables mode came
// with oldestNFTables.
const (
	oldest         = 28
	oldestNFTables = 29
)

// Profile is a version of kube-proxy with its feature gates, which stands for all that behave alike.
type Profile struct {
	Config kubeproxy.Config // of which Version and FeatureGates count
	Name   string           // "1.29 to 1.33", "1.37 with AllowServiceExternalIPs=false"

	minors []int
	gate   string // that is not as it is by default
}

// Names names profiles, for people: "1.28 to 1.33, or with a feature gate that is not as it is by default".
func Names(profiles []Profile) string {
	var minors []int
	others := 0
	for i := range profiles {
		if p := &profiles[i]; p.gate == "" {
			minors = append(minors, p.minors...)
		} else {
			others++
		}
	}
	switch {
	case len(minors) == 0 || others == 1:
		out := make([]string, len(profiles))
		for i := range profiles {
			out[i] = profiles[i].Name
		}
		return strings.Join(out, " or ")
	case others > 0:
		return namesOf(minors) + ", or one with feature gates that are not as they are by default"
	}
	return namesOf(minors)
}

// behaviour is what of the version and the feature gates decides what is programmed.
type behaviour struct {
	features features
	layout   kubeproxy.Layout
}

// behaviourOf returns the behaviour of a configuration on a node whose rules show a layout.
func behaviourOf(c *kubeproxy.Config, shown kubeproxy.Layout) behaviour {
	minor, _ := minorOf(c.Version)
	layout := shown.Over(minor)
	if c.Mode != kubeproxy.NFTables {
		layout.NFTFilter, layout.NFTHairpin = 0, 0
	}
	if c.Mode != kubeproxy.IPVS {
		layout.IPVSExternalIPs = 0
	}
	return behaviour{featuresOf(c).of(modeOf(c, layout)), layout}
}

// Profiles returns the behaviours that a kube-proxy may have whose version or feature gates are not known, the
// likeliest first: that of the newest version, or of the one that is known, with its own defaults. gates tells whether
// the feature gates of the configuration are known.
func Profiles(c kubeproxy.Config, shown kubeproxy.Layout, gatesKnown bool) []Profile {
	var minors []int
	if minor, known := minorOf(c.Version); known {
		minors = []int{minor}
	} else {
		first := oldest
		if c.Mode == kubeproxy.NFTables {
			first = oldestNFTables
		}
		for m := newest; m >= first; m-- {
			minors = append(minors, m)
		}
	}
	var out []*Profile
	byBehaviour := map[behaviour]*Profile{}
	add := func(c kubeproxy.Config, minor int, gate string) {
		b := behaviourOf(&c, shown)
		if e := byBehaviour[b]; e != nil {
			if e.gate == gate {
				e.minors = append(e.minors, minor)
			}
			return
		}
		e := &Profile{Config: c, minors: []int{minor}, gate: gate}
		byBehaviour[b] = e
		out = append(out, e)
	}
	version := c.Version
	of := func(minor int) kubeproxy.Config {
		p := c
		if _, known := minorOf(version); !known {
			p.Version = fmt.Sprintf("v1.%d.0", minor)
		}
		return p
	}
	for _, m := range minors {
		add(of(m), m, "")
	}
	for _, m := range minors {
		if gatesKnown {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(gates)) {
			now, known := gateIn(name, m)
			if !known || now.stage == locked {
				continue
			}
			p := of(m)
			p.FeatureGates = map[string]bool{name: !now.on}
			add(p, m, fmt.Sprintf("%s=%t", name, !now.on))
		}
	}
	list := make([]Profile, len(out))
	for i, e := range out {
		e.Name = namesOf(e.minors)
		if e.gate != "" {
			e.Name += " with " + e.gate
		}
		list[i] = *e
	}
	return list
}

// namesOf writes minor versions: "1.28, 1.31 to 1.33".
func namesOf(minors []int) string {
	minors = slices.Sorted(slices.Values(minors))
	var out []string
	for i := 0; i < len(minors); {
		j := i
		for j+1 < len(minors) && minors[j+1] == minors[j]+1 {
			j++
		}
		text := fmt.Sprintf("1.%d", minors[i])
		if j > i {
			text += fmt.Sprintf(" to 1.%d", minors[j])
		}
		out = append(out, text)
		i = j + 1
	}
	return strings.Join(out, ", ")
}

// Same tells whether two answers for a frontend and an origin ask for the same.
func (p *Path) Same(o *Path) bool {
	return p.Action == o.Action && p.Masquerade == o.Masquerade && p.AffinitySeconds == o.AffinitySeconds &&
		(p.Unsure == "") == (o.Unsure == "") && sameEndpoints(p.Endpoints, o.Endpoints)
}

// PodMatch returns how kube-proxy recognises packets of the node's pods in a family; nil where it does not.
func (n *Node) PodMatch(v6 bool) *PodMatch {
	family := 0
	if v6 {
		family = 1
	}
	if d := n.detectors[family]; d.implemented == yes {
		return &PodMatch{CIDR: d.cidr, Iface: d.iface, Prefix: d.prefix}
	}
	return nil
}
