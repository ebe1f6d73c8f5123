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
		Hairpin  *bool `json:"hairpin"`
		Isolated *bool `json:"isolated"`
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
	if b == nil {
		b = &bridge{}
		n.bridges[l.Master] = b
	}
	veth := l.Info.Kind == "veth"
	b.hairpin.add(l.Info.SlaveData.Hairpin, veth)
	b.isolated.add(l.Info.SlaveData.Isolated, veth)
}

// bridge is what is known of a bridge's ports.
type bridge struct{ hairpin, isolated portFlag }

// portFlag counts the ports of a bridge by a flag: those of pods, which are veth, and the others.
type portFlag struct{ pods, others flagCount }

type flagCount struct{ on, off, unknown int }

func (f *portFlag) add(flag *bool, veth bool) {
	c := &f.others
	if veth {
		c = &f.pods
	}
	switch {
	case flag == nil:
		c.unknown++
	case *flag:
		c.on++
	default:
		c.off++
	}
}

// counts are those that count: of the ports of pods, where there are any.
func (f *portFlag) counts() flagCount {
	if f.pods != (flagCount{}) {
		return f.pods
	}
	return f.others
}

// all tells whether all ports have the flag, or none; known is false where they differ, or were not collected.
func (f *portFlag) all() (on, known bool) {
	c := f.counts()
	return c.on > 0, c.unknown == 0 && (c.on == 0) != (c.off == 0)
}

// differs tells whether some ports have the flag and others not.
func (f *portFlag) differs() bool {
	c := f.counts()
	return c.on > 0 && c.off > 0
}

// Bridge tells whether an interface is a bridge that has ports, as far as ip -d link shows.
func (n *Network) Bridge(dev string) bool { return n.bridges[dev] != nil }

// Hairpin tells whether a bridge sends a frame back to the port that it came from, whichever port of a pod that is: by
// its hairpin mode, or because the bridge is promiscuous. known is false where ports differ, or were not collected.
func (n *Network) Hairpin(dev string) (on, known bool) {
	b := n.bridges[dev]
	switch {
	case b == nil:
		return false, false
	case n.promiscuous[dev]:
		return true, true
	}
	return b.hairpin.all()
}

// HairpinDiffers tells whether a bridge sends a frame back to some ports of pods and not to others.
func (n *Network) HairpinDiffers(dev string) bool {
	b := n.bridges[dev]
	return b != nil && !n.promiscuous[dev] && b.hairpin.differs()
}

// Isolated tells whether all ports of a bridge that are for pods are isolated: it sends no frame from one to another.
func (n *Network) Isolated(dev string) (on, known bool) {
	b := n.bridges[dev]
	if b == nil {
		return false, false
	}
	return b.isolated.all()
}

// IsolatedDiffers tells whether some ports of a bridge for pods are isolated and others not.
func (n *Network) IsolatedDiffers(dev string) bool {
	b := n.bridges[dev]
	return b != nil && b.isolated.differs()
}
