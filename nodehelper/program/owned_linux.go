// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
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

// planName is the name of a plan, as plan.IsName has it.
const planName = "([0-9a-f]{8})"

var (
	ownChains = lazyregexp.New("^" + kubeproxy.ProgramChainPrefix + planName + "-" +
		"(?:" + strings.Join(topChains, "|") + "|[FRWH]-?[0-9]+|E[a-z2-7]{9})$")
	ownTables = lazyregexp.New("^" + kubeproxy.ProgramTablePrefix + planName + "$")

	// What such a table has, besides the chains of nftBase.
	ownTableChains = lazyregexp.New("^(?:" + nftMark + `|marked|[fw]\d+|e-[a-z2-7]{9})$`)
	ownTableSets   = lazyregexp.New("^(?:" + strings.Join([]string{frontends, hairpins, active, masqueraded}, "|") +
		"|a-[a-z2-7]{9})$")
)

// planOfChain returns the name of the plan whose rules are in a chain of iptables; "": this package makes none of that
// name.
func planOfChain(chain string) string {
	if m := ownChains().FindStringSubmatch(chain); m != nil {
		return m[1]
	}
	return ""
}

// planOfTable returns the name of the plan that a table of nftables has the name of; "": of none. The table is ours
// only if it also has the chain [nftMark].
func planOfTable(table string) string {
	if m := ownTables().FindStringSubmatch(table); m != nil {
		return m[1]
	}
	return ""
}

// planOfPrefix returns what stands behind our prefix in the name of a chain of iptables, or of a table of nftables,
// where the name of a plan would be. ok is false for a name without the prefix. What has one may still be somebody
// else's: see planOfChain and planOfTable.
func planOfPrefix(name string) (plan string, ok bool) {
	if rest, found := strings.CutPrefix(name, kubeproxy.ProgramChainPrefix); found {
		plan, _, _ = strings.Cut(rest, "-")
		return plan, true
	}
	return strings.CutPrefix(name, kubeproxy.ProgramTablePrefix)
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

// taken names what is on the node of a record's plan without a record, whichever mode has written it: the rules of one
// mode may be ahead of those of another, and once there is a record nobody takes them for left over.
func (p *Programmer) taken(ctx context.Context, r *Record) (what string, err error) {
	nft, legacy := *r, *r
	nft.Backend, legacy.Backend = wire.BackendNFT, wire.BackendLegacy
	conn, noNF := dialNF() // not every kernel has nf_tables
	if noNF == nil {
		_, noNF = conn.Generation()
		conn.Close()
	}
	for _, find := range []struct {
		taken  func(context.Context, *Record) (string, error)
		record *Record
		can    bool
	}{{p.tables.taken, &nft, noNF == nil}, {p.rules.taken, &nft, noNF == nil}, {p.rules.taken, &legacy, true}} {
		if !find.can {
			continue
		}
		what, err := find.taken(ctx, find.record)
		if _, missing := errors.AsType[RefusalError](err); missing && find.record.Backend != r.Backend {
			continue // without the program of another backend its tables cannot be read
		}
		if what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

// ownDevice tells whether an interface is the device of ipvs mode, and made by this package.
func ownDevice(link netlink.Link) bool { return foreignDevice(link) == "" }

// foreignDevice says why an interface is not the device that this package makes; "": it is.
func foreignDevice(link netlink.Link) string {
	a, dummy := link.Attrs(), (&netlink.Dummy{}).Type()
	switch {
	case a.Name != kubeproxy.ProgramDevice:
		return "its name is " + a.Name
	case link.Type() != dummy:
		return "it is a " + link.Type() + ", not a " + dummy
	case !bytes.Equal(a.HardwareAddr, deviceMark):
		return fmt.Sprintf("its hardware address is %s, and that of program's device is %s", a.HardwareAddr, deviceMark)
	}
	return ""
}
