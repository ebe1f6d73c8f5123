// SPDX-License-Identifier: Apache-2.0

package kubeproxy

// Names of what the command program puts on a node in kube-proxy's place (nodehelper/program).
const (
	ProgramChainPrefix = "SVCPROXY-"     // chains of iptables
	ProgramTablePrefix = "svcproxy-"     // tables of nftables
	ProgramDevice      = "svcproxy-ipvs" // has the addresses of frontends that IPVS serves
)
