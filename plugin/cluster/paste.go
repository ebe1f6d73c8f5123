// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"strings"
)

// quotes are what a name or an address is put in where people copy it from.
var quotes = [][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"<", ">"}, {"(", ")"}}

// tidy takes off what is around a name or an address where it is copied from: spaces, quotes, the punctuation of a
// sentence.
func tidy(text string) string {
	for {
		before := text
		text = strings.TrimRight(strings.TrimSpace(text), ",;.")
		for _, q := range quotes {
			if inner, ok := strings.CutPrefix(text, q[0]); ok && strings.HasSuffix(inner, q[1]) {
				text = strings.TrimSuffix(inner, q[1])
			}
		}
		if text == before {
			return text
		}
	}
}

// IsDash tells whether a character is a dash that editors and chats put in the place of "-".
func IsDash(r rune) bool {
	return r >= '\u2010' && r <= '\u2015' || r == '\u2212' || r == '\ufe58' || r == '\ufe63'
}

// single takes the length off a prefix that is one address.
func (r *Reference) single(text string) (string, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return text, nil //nolint:nilerr // it is something else
	case !p.IsSingleIP():
		return "", fmt.Errorf("%q is a range of addresses: give one address of it", r.Input)
	}
	return p.Addr().String(), nil
}
