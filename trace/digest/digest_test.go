// SPDX-License-Identifier: Apache-2.0

package digest

import "testing"

// What differs in anything has another sum, and what is the same has the same one.
func TestSums(t *testing.T) {
	sums := map[Sum]string{}
	for name, write := range map[string]func(d *Digest){
		"nothing":          func(*Digest) {},
		"an empty text":    func(d *Digest) { d.Text("") },
		"two empty texts":  func(d *Digest) { d.Text(""); d.Text("") },
		"ab, c":            func(d *Digest) { d.Text("ab"); d.Text("c") },
		"a, bc":            func(d *Digest) { d.Text("a"); d.Text("bc") },
		"abc":              func(d *Digest) { d.Text("abc") },
		"one":              func(d *Digest) { d.Number(1) },
		"two":              func(d *Digest) { d.Number(2) },
		"two and one":      func(d *Digest) { d.Number(2); d.Number(1) },
		"the sum of one":   func(d *Digest) { d.Add(Sum{1, 2}) },
		"the sum of other": func(d *Digest) { d.Add(Sum{2, 1}) },
	} {
		d := New()
		write(d)
		sum := d.Sum()
		if other, there := sums[sum]; there {
			t.Errorf("%s and %s have the same sum", name, other)
		}
		sums[sum] = name
		d.Reset()
		write(d)
		if d.Sum() != sum {
			t.Errorf("%s has another sum the second time", name)
		}
	}
}
