// SPDX-License-Identifier: Apache-2.0

package kubeproxy

// Names of what the command program puts on a node in kube-proxy's place (nodehelper/program).
const (
	ProgramChainPrefix = "SVCPROXY-" // chains of iptables
	ProgramTablePrefix = "svcproxy-" // tables of nftables
	// ProgramDevice has the addresses of frontends that IPVS serves. Like kube-proxy's it is down, which is enough for the
	// addresses to be the node's own.
	ProgramDevice = "svcproxy-ipvs"
)

// TraceTablePrefix begins the name of the table that has the kernel trace probes (nodehelper/kerneltrace); the number
// of the process follows.
const TraceTablePrefix = "svcproxy-trace-"
