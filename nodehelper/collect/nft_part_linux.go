// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	nftnetlink "github.com/svcproxy/kubectl-svcproxy/trace/nftables/netlink"
)

// otherServices names the chains and sets of kube-proxy's tables that belong to other Services than those asked for;
// nil where all are read. What all Services share is read whole, and so are the tables of others: the names of all
// chains, the maps that lead from frontends to chains, and the base chains. It is the rules of each Service, and the
// map in each of them, that take the time.
func (r *reader) otherServices() func(family, table, name string) bool {
	if r.Services == nil {
		return nil
	}
	return func(family, table, name string) bool {
		return table == kubeproxy.NFTTable && (family == "ip" || family == "ip6") &&
			kubeproxy.NFTOfOthers(name, r.Services)
	}
}

// rulesInPart requests the rules of the chains of tables of which something is left out, and appends them to answers.
// Of the sets without a name it leaves those that these rules use, in tables and in answers: there is one of each
// Service. parts says what is in the dump.
func rulesInPart(tables []nftnetlink.OutlineTable, answers []byte) (parts []nftnetlink.Part, all []byte, err error) {
	queries := make([]query, 0, len(tables))
	for i := range tables {
		t := &tables[i]
		if !t.InPart {
			continue
		}
		for _, c := range t.Chains {
			queries = append(queries, rulesOf(t, c))
		}
	}
	if len(queries) == 0 {
		return nil, answers, nil
	}
	rules, err := appendAll(nil, queries)
	if err != nil {
		return nil, nil, err
	}
	used := map[[3]string]bool{}
	for _, part := range rules {
		err := nftnetlink.Lookups(part, binary.NativeEndian, func(family, table, set string) {
			used[[3]string{family, table, set}] = true
		})
		if err != nil {
			return nil, nil, err
		}
	}
	unused := map[[3]string]bool{}
	for i := range tables {
		t := &tables[i]
		if !t.InPart {
			continue
		}
		t.Sets = slices.DeleteFunc(t.Sets, func(s nftnetlink.OutlineSet) bool {
			name := [3]string{t.Family, t.Name, s.Name}
			unused[name] = s.Anonymous && !used[name]
			return unused[name]
		})
		p := nftnetlink.Part{TableName: t.TableName, Chains: t.Chains}
		for _, s := range t.Sets {
			p.Sets = append(p.Sets, s.Name)
		}
		parts = append(parts, p)
	}
	answers, err = nftnetlink.DropSets(answers, binary.NativeEndian, func(family, table, set string) bool {
		return unused[[3]string{family, table, set}]
	})
	for _, part := range rules {
		answers = append(answers, part...)
	}
	return parts, answers, err
}

// rulesOf is the request for the rules of a chain.
func rulesOf(t *nftnetlink.OutlineTable, chain string) query {
	return query{Request: request(unix.NFT_MSG_GETRULE, t.Number,
		netlink.String(unix.NFTA_RULE_TABLE, t.Name), netlink.String(unix.NFTA_RULE_CHAIN, chain))}
}
