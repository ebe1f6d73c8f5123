// SPDX-License-Identifier: Apache-2.0

package random

import (
	"math"
	"testing"
)

// improbable is how rarely chance may explain counts that are called wrong.
const improbable = 1e-9

// atMost bounds the probability that n trials, each with probability p, give a share as far from p as k of n, to the
// same side: the inequality of Chernoff and Hoeffding. The true probability is less.
func atMost(k, n int, p float64) float64 {
	if n == 0 {
		return 1
	}
	share := float64(k) / float64(n)
	return math.Exp(-float64(n) * (term2(share, p) + term2(1-share, 1-p)))
}

// term2 is one of the two terms of the relative entropy of a share to a probability.
func term2(share, p float64) float64 {
	switch {
	case share <= 0:
		return 0
	case p <= 0:
		return math.Inf(1)
	}
	return share * math.Log(share/p)
}

func TestAtMost(t *testing.T) {
	for _, x := range []struct {
		k, n     int
		p        float64
		low, top float64
	}{
		{50, 100, 0.5, 1, 1},
		{100, 100, 0.5, math.Pow(0.5, 100) * (1 - 1e-9), math.Pow(0.5, 100) * (1 + 1e-9)},
		{0, 10, 0.5, math.Pow(0.5, 10) * (1 - 1e-9), math.Pow(0.5, 10) * (1 + 1e-9)},
		{60, 100, 0.5, 0.028, 0.2}, // exactly 0.0284
		{1, 10, 0, 0, 0},
		{0, 0, 0.5, 1, 1},
	} {
		if got := atMost(x.k, x.n, x.p); got < x.low || got > x.top {
			t.Errorf("%d of %d for %v: %v is not between %v and %v", x.k, x.n, x.p, got, x.low, x.top)
		}
	}
}
