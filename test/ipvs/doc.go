// SPDX-License-Identifier: Apache-2.0

// Package ipvs compares what the project says of IPVS with a kernel that has it: in a virtual machine of test/vm,
// kube-proxy in ipvs mode serves the Services of testdata/snapshots/ipvs from a real API server; the plugin collects
// the machine, which is its node, and the kernel's shares are asked for by real connections; what the walk says of
// every path is compared with the kernel, and the node is broken in many ways.
//
//	go test -tags vm -exec "$PWD/test/vm/vm run" ./test/ipvs
//
// Environment: IPVS_PLUGIN is the plugin's binary (bin/kubectl-svcproxy of this repository by default), KUBERNETES_BIN
// the folder of etcd, kube-apiserver and kube-proxy (by default where test/cluster builds them).
package ipvs
