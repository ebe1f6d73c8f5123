// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/json"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Parse makes the model of what nft -j list ruleset prints: of the tables of all families but arp, which no IP packet
// meets. managed is that of [Compile]. The error says what is wrong with the text and where.
func Parse(data []byte, managed func(family, table string) bool) ([]*netfilter.Table, error) {
	rs, err := json.Read(data)
	if err == nil {
		var tables []*netfilter.Table
		if tables, err = Compile(rs, managed); err == nil {
			return tables, nil
		}
	}
	return nil, fmt.Errorf("%s: %w: expected the output of: nft -j list ruleset", snapshot.NFTFile, err)
}
