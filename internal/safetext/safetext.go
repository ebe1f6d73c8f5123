// SPDX-License-Identifier: Apache-2.0

// Package safetext makes text that comes from a cluster, a node or a snapshot safe to be shown. It has the project's
// one definition of which characters are unsafe: those that give orders to a terminal, that change the order or the
// presence of the characters beside them, or that cannot be seen. Letters that resemble others (homoglyphs) and letters
// that are written from right to left are text, and stay.
package safetext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Replacement stands for a character that is not shown.
const Replacement = '\uFFFD'

// maxMarks is how many combining marks may follow a character. Written languages need three (a Vietnamese or Hebrew
// letter, a Thai syllable); more of them are drawn over the lines above and below.
const maxMarks = 3

// blank are characters of the classes of printable ones, letters and symbols, that a terminal shows as nothing.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}}, // Braille pattern blank
	R32: []unicode.Range32{
		{Lo: 0x13441, Hi: 0x13442, Stride: 1}, // Egyptian hieroglyph full and half blank
		{Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1}, // Khitan small script filler
		{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}, // musical symbol null notehead
	},
}

// joined are characters of which several become one on some terminals and stay several on others, so that a row of a
// table that has them is as long as whoever wrote them likes: the parts of Hangul syllables, the letters that flags
// are made of, and skin tones.
var joined = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x11FF, Stride: 1}, {Lo: 0xA960, Hi: 0xA97F, Stride: 1}, {Lo: 0xD7B0, Hi: 0xD7FF, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1F1E6, Hi: 0x1F1FF, Stride: 1}, {Lo: 0x1F3FB, Hi: 0x1F3FF, Stride: 1}},
}

// Unsafe tells whether a character is not to be shown as it is: it is
//
//   - a control character (C0, with newline and tab, DEL, C1: ECMA-48), or a separator of lines or paragraphs;
//   - a format character (category Cf): bidirectional controls, zero-width characters, soft hyphen, tags;
//   - one that a renderer ignores or that selects the form of another one (Unicode 16, DerivedCoreProperties.txt:
//     Default_Ignorable_Code_Point, with the variation selectors and the Hangul fillers), or a blank;
//   - a space other than U+0020;
//   - one whose width terminals do not agree on, as it joins what stands before it: conjoining Hangul Jamo, regional
//     indicators, emoji modifiers;
//   - a surrogate, of private use, or not assigned.
func Unsafe(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7F
	}
	return !unicode.IsPrint(r) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point, blank, joined)
}

// Clean makes a text one line without unsafe characters: white space of any kind becomes a space, and every other
// unsafe character and every byte that is not UTF-8 becomes [Replacement]. Of combining marks at the beginning, which
// would join what stands before the text, and of more than three in a row, [Replacement] stands for the excess ones.
func Clean(s string) string { return clean(s, false) }

// CleanLines is Clean for a text of several lines: newlines and tabs stay. The text's lines have to be composed of
// values that Clean has passed, as it cannot tell a newline of the text from one of a value.
func CleanLines(s string) string { return clean(s, true) }

func clean(s string, lines bool) string {
	if plain(s, lines) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	m := marks(maxMarks)
	for _, r := range s {
		switch {
		case lines && (r == '\n' || r == '\t'):
		case unicode.IsSpace(r):
			r = ' '
		case Unsafe(r):
			r = Replacement
		}
		if excess, first := m.next(r); first {
			b.WriteRune(Replacement)
		} else if !excess {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// plain tells whether a text is all printable ASCII, as most are.
func plain(s string, lines bool) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c >= 0x7F) && (!lines || c != '\n' && c != '\t') {
			return false
		}
	}
	return true
}

// marks counts the combining marks since the last character that carries them.
type marks int

// next counts a character in. excess is that it is one mark too many; first, that those before it were not.
func (m *marks) next(r rune) (excess, first bool) {
	switch {
	case r >= utf8.RuneSelf && unicode.Is(unicode.M, r):
		*m++
		return *m > maxMarks, *m == maxMarks+1
	case r == Replacement || r < utf8.RuneSelf && !alphanumeric(r):
		*m = maxMarks // no language writes a mark on these; in JSON and YAML they stand around the values
	default:
		*m = 0
	}
	return false, false
}

func alphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// Line makes one line of printable characters, at most limit bytes long, of what another program wrote: white space is
// a single space, and what is beyond the limit, an ellipsis.
func Line(s string, limit int) string {
	const more = "…"
	// Only the beginning can be in the result. A character that is cut in half here is beyond the limit.
	if most := 4*limit + utf8.UTFMax; len(s) > most {
		if short := strings.Join(strings.Fields(Clean(s[:most])), " "); len(short) > limit {
			return cut(short, limit-len(more)) + more
		}
	}
	out := strings.Join(strings.Fields(Clean(s)), " ")
	if len(out) <= limit {
		return out
	}
	return cut(out, limit-len(more)) + more
}

// cut returns the first characters of a text, at most limit bytes.
func cut(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.TrimSpace(s[:limit])
}
