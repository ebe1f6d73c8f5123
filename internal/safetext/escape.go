// SPDX-License-Identifier: Apache-2.0

package safetext

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeJSON writes in a JSON text every character that Clean would change as an escape (\u202e), so that the text can
// be shown and its values stay the same. Encoders leave such characters as they are. The text has to be valid JSON:
// characters beyond ASCII are in its strings only.
func EscapeJSON(text []byte) []byte {
	return escape(text, func(b *bytes.Buffer, r rune) {
		if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
			fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo) // RFC 8259, section 7
			return
		}
		fmt.Fprintf(b, `\u%04x`, r)
	})
}

// EscapeYAML is EscapeJSON for a YAML text in which all that Clean would change is in double-quoted scalars, as it is
// in a JSON text.
func EscapeYAML(text []byte) []byte {
	return escape(text, func(b *bytes.Buffer, r rune) {
		if r > 0xFFFF {
			fmt.Fprintf(b, `\U%08x`, r) // YAML 1.2.2, section 5.7
			return
		}
		fmt.Fprintf(b, `\u%04x`, r)
	})
}

// HasUnsafe tells whether a value has a character that is to be escaped, or is more than one line.
func HasUnsafe(value string) bool { return Clean(value) != value }

func escape(text []byte, write func(b *bytes.Buffer, r rune)) []byte {
	if plain(string(text), true) {
		return text
	}
	var b bytes.Buffer
	b.Grow(len(text))
	m := marks(maxMarks)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		excess, _ := m.next(r)
		switch {
		case excess, Unsafe(r) && r != '\n' && r != '\t':
			write(&b, r)
		default:
			b.WriteRune(r) // for a byte that is no UTF-8 the replacement
		}
		text = text[size:]
	}
	return b.Bytes()
}
