// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// word is a value of at most 128 bits, as a number in network byte order: that is how sets order their elements. A
// number, and an IPv4 address, stands at the low end; an interface's name begins at the high end, and is padded with
// zeroes.
type word struct{ hi, lo uint64 }

var ones = word{^uint64(0), ^uint64(0)}

func number(n uint64) word { return word{lo: n} }

func (w word) and(o word) word { return word{w.hi & o.hi, w.lo & o.lo} }
func (w word) or(o word) word  { return word{w.hi | o.hi, w.lo | o.lo} }
func (w word) xor(o word) word { return word{w.hi ^ o.hi, w.lo ^ o.lo} }
func (w word) not() word       { return word{^w.hi, ^w.lo} }

func (w word) compare(o word) int {
	switch {
	case w == o:
		return 0
	case w.hi < o.hi || w.hi == o.hi && w.lo < o.lo:
		return -1
	}
	return 1
}

// lowBits is the word whose n low bits are set.
func lowBits(n int) word {
	switch {
	case n <= 0:
		return word{}
	case n < 64:
		return word{lo: 1<<n - 1}
	case n < 128:
		return word{hi: 1<<(n-64) - 1, lo: ^uint64(0)}
	}
	return ones
}

// addrWord returns an address as a word.
func addrWord(a netip.Addr) word {
	if a.Is4() {
		b := a.As4()
		return number(uint64(binary.BigEndian.Uint32(b[:])))
	}
	b := a.As16()
	return word{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// addr is the reverse of addrWord.
func (w word) addr(v4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], w.hi)
	binary.BigEndian.PutUint64(b[8:], w.lo)
	if v4 {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

// nameLength is how long an interface's name may be (IFNAMSIZ, with the zero at its end).
const nameLength = 16

// nameWord returns a name as a word, filled up with a byte.
func nameWord(s string, fill byte) word {
	var b [nameLength]byte
	n := copy(b[:], s)
	for i := n; i < len(b); i++ {
		b[i] = fill
	}
	return word{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// value is what an expression gives for a packet. The bits of blur are not known, and zero in the word.
type value struct {
	word
	blur word
}

func known(w word) value         { return value{word: w} }
func knownNumber(n uint64) value { return value{word: number(n)} }

func (v value) exact() bool { return v.blur == word{} }
func (v value) min() word   { return v.word }
func (v value) max() word   { return v.or(v.blur) }

// equals compares with a constant.
func (v value) equals(w word) op.Truth {
	switch {
	case v.xor(w).and(v.blur.not()) != word{}:
		return op.No
	case v.exact():
		return op.Yes
	}
	return op.Maybe
}

// within tells whether the value is one of lo to hi.
func (v value) within(lo, hi word) op.Truth {
	switch {
	case lo == hi:
		return v.equals(lo)
	case v.max().compare(lo) < 0 || v.min().compare(hi) > 0:
		return op.No
	case v.min().compare(lo) >= 0 && v.max().compare(hi) <= 0:
		return op.Yes
	}
	return op.Maybe
}

// anyOf tells whether one of the bits of w is set.
func (v value) anyOf(w word) op.Truth {
	switch {
	case v.and(w) != word{}:
		return op.Yes
	case v.blur.and(w) == word{}:
		return op.No
	}
	return op.Maybe
}

// The bitwise operations of two values.
func (v value) bitAnd(o value) value {
	blur := v.blur.or(o.blur).and(v.max()).and(o.max())
	return value{v.and(o.word), blur}
}

func (v value) bitOr(o value) value {
	w := v.or(o.word)
	return value{w, v.blur.or(o.blur).and(w.not())}
}

func (v value) bitXor(o value) value {
	blur := v.blur.or(o.blur)
	return value{v.xor(o.word).and(blur.not()), blur}
}

// shifted moves the low 64 bits, to the left where by is positive, and keeps as many of them as the type has.
func (v value) shifted(by, bits int) value {
	move := func(n uint64) uint64 {
		if by < 0 {
			return n >> min(-by, 64)
		}
		return n << min(by, 64)
	}
	mask := lowBits(min(bits, 64))
	return value{number(move(v.lo)).and(mask), number(move(v.blur.lo)).and(mask)}
}
