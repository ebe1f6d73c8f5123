// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// named is who gives names that begin so.
type named struct{ prefix, owner string }

// chainOwners are who makes chains of such names, in lower case; those of nftables tables of Calico have their table's
// purpose before it ("filter-cali-FORWARD").
var chainOwners = []named{
	{"kube-pod-fw-", "a NetworkPolicy (kube-router)"},
	{"kube-nwplcy-", "a NetworkPolicy (kube-router)"},
	{"kube-router-", "kube-router"},
	{"kube-kubelet-canary", "the kubelet"},
	{"kube-iptables-hint", "the kubelet"},
	{"kube-firewall", "the kubelet"},
	{"kube-", "kube-proxy"},
	{"cali-po-", "a NetworkPolicy (Calico)"},
	{"cali-pi-", "a NetworkPolicy (Calico)"},
	{"cali-tw-", "a NetworkPolicy (Calico)"},
	{"cali-fw-", "a NetworkPolicy (Calico)"},
	{"cali-th-", "a policy of the node (Calico's HostEndpoint)"},
	{"cali-fh-", "a policy of the node (Calico's HostEndpoint)"},
	{"cali-", "Calico"},
	{"cilium_", "Cilium"},
	{"old_cilium_", "Cilium"},
	{"antrea-pol-", "a NetworkPolicy (Antrea)"},
	{"antrea-", "Antrea"},
	{"flannel-", "flannel"},
	{"weave-npc", "a NetworkPolicy (Weave Net)"},
	{"weave", "Weave Net"},
	{"docker", "Docker"},
	{"ufw-", "ufw"},
	{"ufw6-", "ufw"},
	{"fwdi_", "firewalld"},
	{"fwdo_", "firewalld"},
	{"fwd_", "firewalld"},
	{"in_", "firewalld"},
	{"pre_", "firewalld"},
	{"post_", "firewalld"},
	{"input_zones", "firewalld"},
	{"input_direct", "firewalld"},
	{"forward_in_zones", "firewalld"},
	{"forward_out_zones", "firewalld"},
	{"forward_zones", "firewalld"},
	{"forward_direct", "firewalld"},
	{"output_direct", "firewalld"},
	{"prerouting_zones", "firewalld"},
	{"prerouting_direct", "firewalld"},
	{"postrouting_zones", "firewalld"},
	{"postrouting_direct", "firewalld"},
	{"istio_", "istio"},
	{"proxy_init_", "Linkerd"},
	{"aws-", "AWS VPC CNI"},
	{"cni-", "a CNI plugin (portmap or firewall)"},
	{"libvirt_", "libvirt"},
	{"kind-", "kindnet"},
}

// tableOwners are who makes tables of nftables of such names.
var tableOwners = []named{
	{"kube-proxy", "kube-proxy"},
	{"kube-network-policies", "a NetworkPolicy (kube-network-policies)"},
	{"kindnet", "kindnet"},
	{"calico", "Calico"},
	{"flannel-", "flannel"},
	{"antrea", "Antrea"},
	{"firewalld", "firewalld"},
	{"docker-bridges", "Docker"},
	{"istio-", "istio"},
	{"cni_hostport", "a CNI plugin (portmap)"},
}

// commentOwners are who writes such comments to rules in the chains that all have.
var commentOwners = []named{
	{"cali:", "Calico"},
	{"cilium", "Cilium"},
	{"antrea:", "Antrea"},
	{"flanneld", "flannel"},
	{"kubernetes ", "kube-proxy"},
	{"kube-router", "kube-router"},
	{"aws, ", "AWS VPC CNI"},
	{"nodelocal dns", "NodeLocal DNS"},
}

func ownerNamed(list []named, name string) string {
	name = strings.ToLower(name)
	for _, x := range list {
		if strings.HasPrefix(name, x.prefix) {
			return x.owner
		}
	}
	return ""
}

// OwnerOf names who a rule belongs to, by the name of its chain or table, else by its comment; "" where none tells. Of
// a policy it says who may have set it.
func OwnerOf(at netfilter.Ref) string {
	if at.Chain == nil {
		return ""
	}
	name := at.Chain.Name
	for _, purpose := range []string{"filter-", "nat-", "mangle-", "raw-"} {
		if rest := strings.TrimPrefix(name, purpose); strings.HasPrefix(rest, "cali-") {
			name = rest
		}
	}
	owner := ownerNamed(chainOwners, name)
	if t := at.Chain.Table; owner == "" && t != nil {
		_, bare, ok := strings.Cut(t.Name, " ") // of the families that a name begins with
		if !ok {
			bare = t.Name
		}
		owner = ownerNamed(tableOwners, bare)
	}
	switch {
	case owner != "":
		return owner
	case at.Rule != nil:
		return ownerNamed(commentOwners, at.Rule.Comment)
	}
	return policySetter(at.Chain)
}

// policySetter is who may have set a policy: Docker and ufw do, and have chains of their own in the table then.
func policySetter(c *netfilter.Chain) string {
	if c.Base == nil || c.Table == nil {
		return ""
	}
	setter := ""
	for _, other := range c.Table.Chains {
		switch owner := ownerNamed(chainOwners, other.Name); {
		case owner != "ufw" && (owner != "Docker" || c.Name != "FORWARD"), owner == setter:
		case setter != "":
			return "Docker or ufw, which both set policies"
		default:
			setter = owner
		}
	}
	if setter == "" {
		return ""
	}
	return "probably " + setter + ", which sets such policies"
}

// devices are whose interfaces of such names are.
var devices = []struct {
	name  lazyregexp.Regexp
	owner string
}{
	{lazyregexp.New(`^flannel(\.\d+|-v6\.\d+|-wg(-v6)?|\d+)$`), "flannel"},
	{lazyregexp.New(`^(vxlan(-v6)?\.calico|wireguard\.cali|wg-v6\.cali|cali[0-9a-f]{11})$`), "Calico"},
	{lazyregexp.New(`^(cilium_\w+|lxc[0-9a-f]{12}|lxc_health)$`), "Cilium"},
	{lazyregexp.New(`^antrea-(gw|tun|wg|egress)\d+$`), "Antrea"},
	{lazyregexp.New(`^(kube-bridge|kube-dummy-if|tun-[0-9a-f]+)$`), "kube-router"},
	{lazyregexp.New(`^(docker\d+|docker_gwbridge|br-[0-9a-f]{12})$`), "Docker"},
	{lazyregexp.New(`^eni[0-9a-f]{11}$`), "AWS VPC CNI"},
	{lazyregexp.New(`^(weave|vxlan-\d+|vethwe\S*)$`), "Weave Net"},
	{lazyregexp.New(`^(genev|vxlan)_sys_\d+$`), "Open vSwitch"},
	{lazyregexp.New(`^azv[0-9a-f]{11}$`), "Azure CNI"},
	{lazyregexp.New(`^virbr\d+$`), "libvirt"},
	{lazyregexp.New(`^(cni0|cbr0)$`), "the CNI plugin bridge"},
}

// ownerOfDevice names who has made an interface, by its name; where that does not tell, it is taken to be the CNI
// plugin.
func ownerOfDevice(dev string) string {
	owner := ""
	for _, d := range devices {
		if d.name().MatchString(dev) {
			owner = d.owner
			break
		}
	}
	return cmp.Or(owner, "the CNI plugin")
}
