// SPDX-License-Identifier: Apache-2.0

package report

import "strings"

// Uninspected are nodes that could not be inspected, for the same reason.
type Uninspected struct {
	Nodes []string
	Error string // that of the first; those of the others differ in the node's name alone
}

// UninspectedNodes groups those of nodes that could not be inspected by the reason, in the order in which they come.
func UninspectedNodes(nodes []*NodeReport) []Uninspected {
	var out []Uninspected
	at := map[string]int{}
	for _, n := range nodes {
		if n.Error == "" {
			continue
		}
		same := strings.ReplaceAll(n.Error, n.Node, "\x00")
		k, ok := at[same]
		if !ok {
			k = len(out)
			at[same] = k
			out = append(out, Uninspected{Error: n.Error})
		}
		out[k].Nodes = append(out[k].Nodes, n.Node)
	}
	return out
}
