// SPDX-License-Identifier: Apache-2.0

// Package digest makes short digests of what is compared with a later reading of it, so that it need not be kept.
package digest

import "hash/maphash"

// Sum stands for what a Digest was given: what differs has another one, but for a chance of 2⁻¹²⁸. It is good in this
// process alone.
type Sum [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Digest makes a Sum of what is written to it.
type Digest struct{ halves [2]maphash.Hash }

// New makes an empty Digest.
func New() *Digest {
	d := &Digest{}
	for i := range d.halves {
		d.halves[i].SetSeed(seeds[i])
	}
	return d
}

// Reset makes it empty again.
func (d *Digest) Reset() {
	for i := range d.halves {
		d.halves[i].Reset()
	}
}

// Text adds a text. Where one ends and the next begins counts.
func (d *Digest) Text(s string) {
	d.Number(len(s))
	for i := range d.halves {
		_, _ = d.halves[i].WriteString(s) // it never fails
	}
}

// Number adds a number.
func (d *Digest) Number(n int) {
	for i := range d.halves {
		maphash.WriteComparable(&d.halves[i], n)
	}
}

// Flag adds a truth value.
func (d *Digest) Flag(is bool) {
	n := 0
	if is {
		n = 1
	}
	d.Number(n)
}

// Add adds the sum of another Digest.
func (d *Digest) Add(s Sum) {
	for i := range d.halves {
		maphash.WriteComparable(&d.halves[i], s)
	}
}

// Sum returns the sum of what was written since New or Reset.
func (d *Digest) Sum() Sum { return Sum{d.halves[0].Sum64(), d.halves[1].Sum64()} }
