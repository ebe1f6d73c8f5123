// SPDX-License-Identifier: Apache-2.0

package kubeproxy

// Canaries are chains by which kube-proxy and kubelet notice that somebody has flushed all rules. Each is in all of
// CanaryTables, in every family (pkg/proxy/iptables/proxier.go, kubeProxyCanaryChain;
// pkg/kubelet/kubelet_network_linux.go, initNetworkUtil): where one has it, the others exist.
var Canaries = []string{"KUBE-PROXY-CANARY", "KUBE-KUBELET-CANARY"}

// CanaryTables are the tables that have each of Canaries.
var CanaryTables = []string{"mangle", "nat", "filter"}
