// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"net"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// What this package makes on a node can be told from what others make, also without a record of the journal:
//
//   - chains of iptables by their names: the prefix, the name of a plan, and one of the suffixes that are written
//   - tables of nftables by their names and an empty chain in them, [nftMark], made in the same transaction
//   - the device of ipvs mode by its name, its type and its hardware address, which it has from the beginning

// nftMark is the name of the chain that marks a table of nftables as made by this package.
const nftMark = "made-by-kubectl-svcproxy"

// deviceMark is the hardware address of the device: a local one, "svcpx" in ASCII. The device sends nothing.
var deviceMark = net.HardwareAddr{0x02, 's', 'v', 'c', 'p', 'x'}

// topChains are the suffixes of the chains that hooks jump to.
var topChains = []string{"NAT", "POST", "DROP", "FORWARD", "INPUT", "OUTPUT"}

var (
	ownChains = regexp.MustCompile("^" + kubeproxy.ProgramChainPrefix + "([0-9a-f]{8})-" +
		"(?:" + strings.Join(topChains, "|") + "|[FRWH]-?[0-9]+|E[a-z2-7]{9})$")
	ownTables = regexp.MustCompile("^" + kubeproxy.ProgramTablePrefix + "([0-9a-f]{8})$")
)

// planOfChain returns the name of the plan whose rules are in a chain of iptables; "": this package makes none of that
// name.
func planOfChain(chain string) string {
	if m := ownChains.FindStringSubmatch(chain); m != nil {
		return m[1]
	}
	return ""
}

// planOfTable returns the name of the plan that a table of nftables has the name of; "": of none. The table is ours
// only if it also has the chain [nftMark].
func planOfTable(table string) string {
	if m := ownTables.FindStringSubmatch(table); m != nil {
		return m[1]
	}
	return ""
}

// topChainsOf returns the names of the chains of a plan that hooks of any mode jump to. Not every mode has all of them.
func topChainsOf(name string) []string {
	out := make([]string, len(topChains))
	for i, to := range topChains {
		out[i] = kubeproxy.ProgramChainPrefix + name + "-" + to
	}
	return out
}

// ownTable tells whether a table of nftables has a name of ours, and was made by this package.
func (k nfConn) ownTable(v6 bool, table string) (bool, error) {
	if planOfTable(table) == "" {
		return false, nil
	}
	mark, err := k.chain(v6, table, nftMark)
	return mark != nil, err
}

// ownDevice tells whether an interface is the device of ipvs mode, and made by this package.
func ownDevice(link netlink.Link) bool {
	a := link.Attrs()
	return a.Name == kubeproxy.ProgramDevice && link.Type() == (&netlink.Dummy{}).Type() &&
		bytes.Equal(a.HardwareAddr, deviceMark)
}
