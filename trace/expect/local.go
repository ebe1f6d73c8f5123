// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// truth is a boolean that may not be known.
type truth uint8

const (
	no truth = iota
	yes
	notKnown
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// unknownIface is an interface whose name is not known (netfilter.UnknownIface).
const unknownIface = "?"

// detector recognizes traffic of the node's pods (pkg/proxy/util/localdetector.go and getLocalDetectors in
// cmd/kube-proxy/app/server_linux.go).
type detector struct {
	implemented truth
	cidr        netip.Prefix // by source address
	iface       string       // by incoming interface
	prefix      bool         // iface is a prefix of its name
}

func detectorOf(in *Inputs, family int) detector {
	c := &in.Config
	if c.Source == kubeproxy.SourceDefaults {
		return detector{implemented: notKnown}
	}
	switch c.DetectLocalMode {
	case "", kubeproxy.DetectClusterCIDR:
		return byCIDR(c.ClusterCIDRs, family)
	case kubeproxy.DetectNodeCIDR:
		if in.Node == nil {
			return detector{implemented: notKnown}
		}
		var cidrs []netip.Prefix
		for _, s := range in.Node.Spec.PodCIDRs {
			if p, ok := kubeproxy.ParsePrefix(s); ok {
				cidrs = append(cidrs, p)
			}
		}
		return byCIDR(cidrs, family)
	case kubeproxy.DetectBridge:
		return detector{implemented: truthOf(c.BridgeInterface != ""), iface: c.BridgeInterface}
	case kubeproxy.DetectNamePrefix:
		return detector{implemented: truthOf(c.InterfaceNamePrefix != ""), iface: c.InterfaceNamePrefix, prefix: true}
	}
	return detector{}
}

// byCIDR is a detector by the first CIDR of the family; without one it recognizes nothing.
func byCIDR(cidrs []netip.Prefix, family int) detector {
	for _, p := range cidrs {
		if familyIndex(p.Addr()) == family {
			return detector{implemented: yes, cidr: p}
		}
	}
	return detector{}
}

// local tells whether the detector recognizes a packet as that of a local pod. A detectLocalMode that kube-proxy does
// not implement recognizes none.
func (d *detector) local(o *Origin) truth {
	switch {
	case d.implemented != yes:
		if d.implemented == notKnown && o.Kind != FromPod {
			return no // no detectLocalMode recognizes anything but pods
		}
		return d.implemented
	case d.cidr.IsValid():
		if !o.Address.IsValid() {
			return notKnown
		}
		return truthOf(d.cidr.Contains(o.Address.Unmap()))
	case o.Iface == unknownIface:
		return notKnown
	case o.Kind == FromNode || o.Iface == "":
		return no // no interface to match
	case d.prefix:
		return truthOf(strings.HasPrefix(o.Iface, d.iface))
	}
	return truthOf(o.Iface == d.iface)
}
