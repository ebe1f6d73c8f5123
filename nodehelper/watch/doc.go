// SPDX-License-Identifier: Apache-2.0

// Package watch is the agent of a node: it follows the API's Services and EndpointSlices and the rules of the node that
// it runs on, judges the one by the other as the command verify does, exports what it finds as metrics, and publishes
// it as the NodeReport of the node. It writes nothing to the node, and nothing else to the API.
//
// A pass reads the node whole and judges it whole. What begins one: a change of the API, a notification of nf_tables,
// a finding that waits to be seen a second time, and a timer, which is short where rules are on the node whose changes
// the kernel does not announce (the legacy tables of iptables, IPVS). What passes cost is bounded as a share of a
// processor.
package watch
