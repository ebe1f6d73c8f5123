// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Rules are what kube-proxy has written: what the fake iptables of both families holds after a sync (its SaveInto), as
// text; or what nft -j list ruleset prints.
type Rules struct {
	IPv4, IPv6 []byte
	NFT        []byte
	IPVS       *IPVS  // of ipvs mode, beside its rules of iptables
	Listen     []byte // what ss -Hltunp prints, of this process as if it were kube-proxy's
}

func (r *Rules) empty(mode string) bool {
	if mode == kubeproxy.NFTables {
		return len(r.NFT) == 0
	}
	if mode == kubeproxy.IPVS && r.IPVS == nil {
		return true
	}
	return len(r.IPv4) == 0 || len(r.IPv6) == 0
}

// masqueradeBit is the default of a mode that does not run.
const masqueradeBit = 14

// modeConfig is the part of the configuration that a mode has for itself.
func (w *Cluster) modeConfig(mode string) map[string]any {
	c := &w.Config
	if c.Mode != mode && (c.Mode != kubeproxy.IPVS || mode != "iptables") {
		return map[string]any{"masqueradeBit": masqueradeBit, "masqueradeAll": false}
	}
	return map[string]any{"masqueradeBit": c.MasqueradeBit, "masqueradeAll": c.MasqueradeAll}
}

// NodePortAddresses returns nodePortAddresses as kube-proxy resolves them before a proxier gets them: nftables mode has
// the default "primary" from 1.31 on (cmd/kube-proxy/app).
func (w *Cluster) NodePortAddresses() []string {
	if list := w.Config.NodePortAddresses; len(list) > 0 || w.Config.Mode != kubeproxy.NFTables ||
		w.minor() < minorPrimary {
		return list
	}
	var out []string
	for _, s := range w.Node.Status.Addresses {
		if a, err := netip.ParseAddr(s.Address); err == nil && s.Type == corev1.NodeInternalIP {
			out = append(out, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	return out
}

// settings are what sysctl prints of the node.
const settings = `net.ipv4.ip_forward=1
net.ipv6.conf.all.forwarding=1
net.bridge.bridge-nf-call-iptables=1
net.bridge.bridge-nf-call-ip6tables=1
net.ipv4.conf.all.route_localnet=1
`

// routes and routes6 are what ip -j route prints of it.
const (
	routes = `[{"dst":"default","gateway":"192.168.0.254","dev":"eth0"},` +
		`{"dst":"192.168.0.0/24","dev":"eth0","prefsrc":"192.168.0.1"},` +
		`{"dst":"172.31.7.0/24","dev":"eth1","prefsrc":"172.31.7.1"},` +
		`{"dst":"10.244.1.0/24","dev":"cni0","prefsrc":"10.244.1.1"},` +
		`{"dst":"10.244.0.0/16","gateway":"192.168.0.2","dev":"eth0"}]`
	routes6 = `[{"dst":"default","gateway":"fd00:192::ffff","dev":"eth0"},` +
		`{"dst":"fd00:192::/64","dev":"eth0"},` +
		`{"dst":"fd00:172::/64","dev":"eth1"},` +
		`{"dst":"fd00:10:244:1::/64","dev":"cni0"},` +
		`{"dst":"fd00:10:244::/48","gateway":"fd00:192::2","dev":"eth0"}]`
)

// Files renders the cluster as the snapshot format has it.
func (w *Cluster) Files(r Rules) map[string][]byte {
	files := map[string][]byte{
		"nft-ruleset.json": []byte(`{"nftables":[]}`),
		"configz.json":     w.configz(),
		"proxyMode.txt":    []byte(w.Config.Mode),
		"metrics.txt":      []byte(`kubernetes_build_info{git_version="` + w.Config.Version + "\"} 1\n"),
		"sysctl.txt":       []byte(settings),
	}
	if w.Config.Mode == kubeproxy.NFTables {
		files["nft-ruleset.json"], files["listen.txt"] = r.NFT, r.Listen
	} else {
		files["iptables-save.txt"], files["ip6tables-save.txt"] = saved(r.IPv4), saved(r.IPv6)
	}
	links := w.links
	if r.IPVS != nil {
		files["ipvsadm.txt"], files["ipset-save.txt"] = r.IPVS.savedServers(), r.IPVS.savedSets()
		files["sysctl.txt"] = append(files["sysctl.txt"], "net.ipv4.vs.conntrack=1\n"...)
		links = append(slices.Clone(links), r.IPVS.device())
	}
	files["ip-addr.json"], files["ip-link.json"] = addr(links), interfaces(links)
	files["ip-route.json"], files["ip6-route.json"] = []byte(routes), []byte(routes6)
	return files
}

func addr(links []link) []byte {
	type info struct {
		Family    string `json:"family"`
		Local     string `json:"local"`
		PrefixLen int    `json:"prefixlen"`
		Scope     string `json:"scope"`
	}
	type iface struct {
		Index int      `json:"ifindex"`
		Name  string   `json:"ifname"`
		Flags []string `json:"flags"`
		Addrs []info   `json:"addr_info"`
	}
	out := make([]iface, 0, len(links))
	for i, l := range links {
		f := iface{Index: i + 1, Name: l.name, Flags: []string{"UP", "LOWER_UP"}}
		if l.name == "lo" {
			f.Flags = append(f.Flags, "LOOPBACK")
		}
		for _, p := range l.addresses {
			a := info{"inet", p.Addr().String(), p.Bits(), "global"}
			if p.Addr().Is6() {
				a.Family = "inet6"
			}
			if p.Addr().IsLoopback() {
				a.Scope = "host"
			}
			f.Addrs = append(f.Addrs, a)
		}
		out = append(out, f)
	}
	return marshal(out)
}

func interfaces(links []link) []byte {
	out := make([]map[string]any, 0, len(links))
	for i, l := range links {
		out = append(out, map[string]any{"ifindex": i + 1, "ifname": l.name, "flags": []string{"UP", "LOWER_UP"}})
	}
	return marshal(out)
}

func (w *Cluster) configz() []byte {
	c := &w.Config
	iptables := w.modeConfig("iptables")
	iptables["localhostNodePorts"] = c.LocalhostNodePorts
	return marshal(map[string]any{"kubeproxy.config.k8s.io": map[string]any{
		"kind": "KubeProxyConfiguration", "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
		"mode": c.Mode, "hostnameOverride": nodeName, "bindAddress": "0.0.0.0", "clusterCIDR": w.ClusterCIDR,
		"detectLocalMode": c.DetectLocalMode,
		"detectLocal": map[string]any{
			"bridgeInterface":     c.BridgeInterface,
			"interfaceNamePrefix": c.InterfaceNamePrefix,
		},
		"iptables":          iptables,
		"nftables":          w.modeConfig(kubeproxy.NFTables),
		"ipvs":              map[string]any{"scheduler": c.Scheduler},
		"nodePortAddresses": c.NodePortAddresses, "featureGates": c.FeatureGates,
	}})
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("%T: %v", v, err))
	}
	return data
}

// Snapshot returns the cluster as the judge reads it.
func (w *Cluster) Snapshot(r Rules) (*snapshot.Cluster, *snapshot.Node) {
	c := &snapshot.Cluster{Services: w.Services, EndpointSlices: w.Slices}
	c.Nodes = append(c.Nodes, w.Node)
	return c, snapshot.NewNode(nodeName, w.Files(r))
}

// neighbours returns the addresses at the edges of a range: the one before it, its first and last, and the one behind
// it.
func neighbours(p netip.Prefix) []netip.Addr {
	first := p.Masked().Addr()
	last := first
	raw := last.AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ = netip.AddrFromSlice(raw)
	return []netip.Addr{first.Prev(), first, last, last.Next()}
}
