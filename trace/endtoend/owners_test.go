// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"os"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Names of chains and tables as programs write them: kube-proxy 1.37, kube-router 2.x, Calico 3.x with iptables and
// nftables, Cilium 1.x, Antrea 2.x, flannel 0.26 with both, firewalld 1.x with both backends, ufw 0.36, Docker 28,
// istio 1.2x, the VPC CNI of AWS 1.19.
func TestOwnersOfRules(t *testing.T) {
	for _, c := range []struct{ table, chain, comment, want string }{
		{"nat", "KUBE-SERVICES", "", "kube-proxy"},
		{"nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", "", "kube-proxy"},
		{"filter", "KUBE-FORWARD", "", "kube-proxy"},
		{"filter", "KUBE-PROXY-FIREWALL", "", "kube-proxy"},
		{"kube-proxy", "filter-forward", "", "kube-proxy"},
		{"filter", "INPUT", "kubernetes health check service ports", "kube-proxy"},
		{"filter", "KUBE-FIREWALL", "", "the kubelet"},
		{"mangle", "KUBE-IPTABLES-HINT", "", "the kubelet"},
		{"filter", "KUBE-POD-FW-XEGW5ZSJ6KDVTUNJ", "", "a NetworkPolicy (kube-router)"},
		{"filter", "KUBE-NWPLCY-DEFAULT", "", "a NetworkPolicy (kube-router)"},
		{"filter", "KUBE-ROUTER-FORWARD", "", "kube-router"},
		{"filter", "FORWARD", "kube-router netpol - 4IA2OSFRMVNDXBVV", "kube-router"},
		{"filter", "cali-FORWARD", "", "Calico"},
		{"filter", "cali-to-wl-dispatch", "", "Calico"},
		{"filter", "cali-tw-cali40d5b8b2f7c", "", "a NetworkPolicy (Calico)"},
		{"filter", "cali-pi-_be-5dPhd2_ee4gvSWfU", "", "a NetworkPolicy (Calico)"},
		{"filter", "cali-th-eth0", "", "a policy of the node (Calico's HostEndpoint)"},
		{"filter", "FORWARD", "cali:S93hcgKJrXEqnTfs", "Calico"},
		{"calico", "filter-cali-tw-cali40d5b8b2f7c", "", "a NetworkPolicy (Calico)"},
		{"calico", "filter-FORWARD", "", "Calico"},
		{"filter", "CILIUM_FORWARD", "", "Cilium"},
		{"mangle", "OLD_CILIUM_PRE_mangle", "", "Cilium"},
		{"filter", "FORWARD", "cilium-feeder: CILIUM_FORWARD", "Cilium"},
		{"filter", "ANTREA-FORWARD", "", "Antrea"},
		{"filter", "ANTREA-POL-INGRESS-RULES", "", "a NetworkPolicy (Antrea)"},
		{"nat", "POSTROUTING", "Antrea: jump to Antrea postrouting rules", "Antrea"},
		{"filter", "FLANNEL-FWD", "", "flannel"},
		{"nat", "FLANNEL-POSTRTG", "", "flannel"},
		{"flannel-ipv4", "postrtg", "", "flannel"},
		{"filter", "FORWARD", "flanneld forward", "flannel"},
		{"firewalld", "filter_FORWARD", "", "firewalld"},
		{"firewalld", "filter_FWD_public_deny", "", "firewalld"},
		{"filter", "FWDI_public", "", "firewalld"},
		{"filter", "FORWARD_IN_ZONES", "", "firewalld"},
		{"filter", "IN_public_deny", "", "firewalld"},
		{"filter", "ufw-reject-forward", "", "ufw"},
		{"filter", "ufw6-before-input", "", "ufw"},
		{"filter", "DOCKER-USER", "", "Docker"},
		{"filter", "DOCKER-ISOLATION-STAGE-2", "", "Docker"},
		{"docker-bridges", "filter-forward-in__docker0", "", "Docker"},
		{"nat", "ISTIO_IN_REDIRECT", "", "istio"},
		{"istio-proxy-nat", "istio-inbound", "", "istio"},
		{"nat", "AWS-SNAT-CHAIN-0", "", "AWS VPC CNI"},
		{"nat", "AWS-CONNMARK-CHAIN-0", "", "AWS VPC CNI"},
		{"mangle", "PREROUTING", "AWS, primary ENI", "AWS VPC CNI"},
		{"nat", "CNI-HOSTPORT-DNAT", "", "a CNI plugin (portmap or firewall)"},
		{"nat", "PROXY_INIT_REDIRECT", "", "Linkerd"},
		{"inet kindnet-network-policies", "postrouting", "", "kindnet"},
		{"filter", "INPUT", "", ""},
		{"filter", "MY-KUBE-RULES", "", ""},
		{"filter", "calibration", "", ""},
		{"guard", "forward", "calling home", ""},
	} {
		table := &netfilter.Table{Name: c.table}
		at := netfilter.Ref{
			Chain: &netfilter.Chain{Table: table, Name: c.chain}, Rule: &netfilter.Rule{Comment: c.comment},
		}
		if got := OwnerOf(at); got != c.want {
			t.Errorf("%s %s %q: %q, want %q", c.table, c.chain, c.comment, got, c.want)
		}
	}
}

// Docker and ufw have FORWARD drop, and are known by their chains in the table.
func TestOwnersOfPolicies(t *testing.T) {
	for _, c := range []struct {
		chain  string
		others []string
		want   string
	}{
		{"FORWARD", []string{"DOCKER-USER", "DOCKER"}, "probably Docker, which sets such policies"},
		{"INPUT", []string{"DOCKER-USER", "DOCKER"}, ""},
		{"INPUT", []string{"ufw-before-input"}, "probably ufw, which sets such policies"},
		{"FORWARD", []string{"ufw-before-input", "DOCKER"}, "Docker or ufw, which both set policies"},
		{"FORWARD", []string{"KUBE-FORWARD", "cali-FORWARD"}, ""},
	} {
		table := &netfilter.Table{Name: "filter"}
		base := &netfilter.Chain{Table: table, Name: c.chain, Base: &netfilter.Base{}}
		table.Chains = []*netfilter.Chain{base}
		for _, name := range c.others {
			table.Chains = append(table.Chains, &netfilter.Chain{Table: table, Name: name})
		}
		if got := OwnerOf(netfilter.Ref{Chain: base}); got != c.want {
			t.Errorf("%s beside %v: %q, want %q", c.chain, c.others, got, c.want)
		}
	}
}

// Of dumps of these programs each chain that is not the kernel's own has an owner.
func TestOwnersOfCapturedRules(t *testing.T) {
	for file, want := range map[string]string{
		"calico": "Calico", "kube-router": "kube-router", "docker": "Docker", "ufw": "ufw",
	} {
		data, err := os.ReadFile("testdata/" + file + ".rules")
		if err != nil {
			t.Fatal(err)
		}
		tables, err := iptables.Parse(data, netfilter.IPv4, netfilter.BackendNFT)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			for _, c := range table.Chains {
				if got := OwnerOf(netfilter.Ref{Chain: c, Rule: &netfilter.Rule{}}); c.Base == nil && !strings.Contains(got, want) {
					t.Errorf("%s: %s is of %q", file, c.Name, got)
				}
			}
		}
	}
}

func TestOwnersOfDevices(t *testing.T) {
	for dev, want := range map[string]string{
		"flannel.1": "flannel", "flannel-wg": "flannel", "flannel-v6.1": "flannel", "vxlan.calico": "Calico",
		"cali40d5b8b2f7c": "Calico", "wireguard.cali": "Calico", "cilium_vxlan": "Cilium", "lxc0a1b2c3d4e5f": "Cilium",
		"antrea-gw0": "Antrea", "kube-bridge": "kube-router", "tun-1921685002": "kube-router", "docker0": "Docker",
		"br-0123456789ab": "Docker", "eni0a1b2c3d4e5": "AWS VPC CNI", "cni0": "the CNI plugin bridge",
		"genev_sys_6081": "Open vSwitch", "eth0": "the CNI plugin", "tunl0": "the CNI plugin", "calico": "the CNI plugin",
	} {
		if got := ownerOfDevice(dev); got != want {
			t.Errorf("%s: %q, want %q", dev, got, want)
		}
	}
}
