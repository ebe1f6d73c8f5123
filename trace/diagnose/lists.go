// SPDX-License-Identifier: Apache-2.0

package diagnose

// ClientLists begin the names of the lists that kube-proxy keeps of clients, one an endpoint: those of xt_recent in
// iptables mode (pkg/proxy/iptables/proxier.go), the sets of its table in nftables mode
// (pkg/proxy/nftables/proxier.go); and of those that nodehelper/program keeps in its place. A client that is new is in
// none of them; of other people's lists nothing is known.
var ClientLists = []string{"KUBE-SEP-", nftTable + "@affinity-", programChains, programTables}
