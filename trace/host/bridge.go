// SPDX-License-Identifier: Apache-2.0

package host

// linkInfo is what ip -d adds to an interface.
type linkInfo struct {
	Kind string `json:"info_kind"`
	Data struct {
		CallIPTables  *int `json:"nf_call_iptables"`
		CallIP6Tables *int `json:"nf_call_ip6tables"`
	} `json:"info_data"`
	SlaveKind string `json:"info_slave_kind"`
	SlaveData struct {
		Hairpin *bool `json:"hairpin"`
	} `json:"info_slave_data"`
}

// setBridge records what the attributes of a port say about its bridge.
func (n *Network) setBridge(l *ipLink) {
	if l.Promiscuity > 0 {
		n.promiscuous[l.Name] = true
	}
	if l.Info == nil || l.Info.SlaveKind != "bridge" || l.Master == "" {
		return
	}
	b := n.bridges[l.Master]
	if h := l.Info.SlaveData.Hairpin; h == nil {
		b.unknown = true
	} else if *h {
		b.hairpin = true
	}
	n.bridges[l.Master] = b
}

// bridge is what is known of a bridge's ports.
type bridge struct {
	hairpin bool // some port is in hairpin mode
	unknown bool // the mode of some port was not collected
}

// Bridge tells whether an interface is a bridge that has ports, as far as ip -d link shows.
func (n *Network) Bridge(dev string) bool {
	_, ok := n.bridges[dev]
	return ok
}

// Hairpin tells whether a bridge sends a frame back to the port that it came from, for some port at least: by its
// hairpin mode, or because the bridge is promiscuous. known is false where that was not collected.
func (n *Network) Hairpin(dev string) (on, known bool) {
	b, ok := n.bridges[dev]
	if !ok {
		return false, false
	}
	on = b.hairpin || n.promiscuous[dev]
	return on, on || !b.unknown
}
