// SPDX-License-Identifier: Apache-2.0

package netfilter

import "math/bits"

// maxUnknowns is how many unknowns [Result.Cases] tries in all combinations.
const maxUnknowns = 6

// Cases returns the outcomes for each combination of what a snapshot does not have: each is one that the packet may
// meet, in which all is certain but what no rule tells at all (Taken, Lost). The P of a case add up to 1. A combination
// need not be possible; every one that is possible is among them. nil where nothing is uncertain, where too much is, or
// where outcomes cannot be told apart by it any more.
func (r *Result) Cases() [][]Outcome {
	var relevant uint64
	for i := range r.Outcomes {
		relevant |= r.Outcomes[i].yes | r.Outcomes[i].no
	}
	if relevant == 0 || relevant&(1<<overflowBit) != 0 || bits.OnesCount64(relevant) > maxUnknowns || r.Ended != "" {
		return nil
	}
	var out [][]Outcome
	// The subsets of relevant, as those that turn out true.
	for yes := uint64(0); ; yes = (yes - relevant) & relevant {
		var list []Outcome
		sum := 0.0
		for i := range r.Outcomes {
			if o := r.Outcomes[i]; o.yes&^yes == 0 && o.no&yes == 0 {
				o.Certain = true
				list = append(list, o)
				sum += o.P
			}
		}
		if sum < 1-sameShareOfCase || sum > 1+sameShareOfCase {
			return nil // a branch was left out, as Options.Only has it
		}
		out = append(out, list)
		if yes == relevant {
			return out
		}
	}
}

// sameShareOfCase is the rounding that the sum of a case may come with.
const sameShareOfCase = 1e-9
