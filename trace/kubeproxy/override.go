// SPDX-License-Identifier: Apache-2.0

package kubeproxy

// Names of what the command program creates on a node in place of kube-proxy's (nodehelper/program).
const (
	ProgramChainPrefix = "SVCPROXY-" // chains of iptables
	ProgramTablePrefix = "svcproxy-" // tables of nftables
	// ProgramDevice has the addresses of frontends that IPVS serves. Like kube-proxy's it is down, which suffices for the
	// addresses to be local ones of the node.
	ProgramDevice = "svcproxy-ipvs"
)

// TraceTablePrefix begins the name of the table whose rules make the kernel trace probes (nodehelper/kerneltrace); the
// PID follows.
const TraceTablePrefix = "svcproxy-trace-"
