// SPDX-License-Identifier: Apache-2.0

package judge

import "math"

// twoSided is the probability with which n trials, each with probability p, give a count that is no likelier than k:
// the exact binomial test with the method of small p-values.
func twoSided(k, n int, p float64) float64 {
	const relative = 1 + 1e-7 // for counts that are as likely, but for rounding
	limit := binomial(k, n, p) * relative
	sum := 0.0
	for i := range n + 1 {
		if x := binomial(i, n, p); x <= limit {
			sum += x
		}
	}
	return min(sum, 1)
}

// binomial is the probability of exactly k in n.
func binomial(k, n int, p float64) float64 {
	switch {
	case p <= 0:
		return float64(b2i(k == 0))
	case p >= 1:
		return float64(b2i(k == n))
	}
	all, _ := math.Lgamma(float64(n + 1))
	in, _ := math.Lgamma(float64(k + 1))
	out, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(all - in - out + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
