// SPDX-License-Identifier: Apache-2.0

package differential

import "encoding/json"

// readHandles notes the number of each rule in its chain, which is how the walk names it, from what nft -j lists.
func (w *world) readHandles(listing string) error {
	var all struct {
		Objects []struct {
			Rule *struct {
				Family string `json:"family"`
				Table  string `json:"table"`
				Chain  string `json:"chain"`
				Handle uint64 `json:"handle"`
			} `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(listing), &all); err != nil {
		return err
	}
	count := map[at]int{}
	for _, o := range all.Objects {
		if r := o.Rule; r != nil {
			c := at{r.Family, r.Table, r.Chain, 0}
			count[c]++
			c.num = count[at{r.Family, r.Table, r.Chain, 0}]
			w.where[place{r.Family, r.Table, r.Chain, r.Handle}] = c
		}
	}
	return nil
}
