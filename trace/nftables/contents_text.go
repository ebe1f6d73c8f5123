// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Declaration implements [netfilter.Set]. How many elements there are counts where they are not known one by one.
func (c contents) Declaration() string {
	var b strings.Builder
	for i, list := range [][]*datatype{c.fields, c.data} {
		if i > 0 {
			b.WriteString(" :")
		}
		for _, t := range list {
			b.WriteString(" " + t.name)
		}
	}
	fmt.Fprintf(&b, " timeout %ds size %d", c.seconds, c.size)
	if c.unread != "" {
		fmt.Fprintf(&b, " of them %d", c.count)
	}
	if c.timed {
		b.WriteString(" of a time")
	}
	if c.added.text != "" {
		b.WriteString(" added with " + c.added.text)
	}
	return b.String()
}

// Expires implements [netfilter.Set].
func (c contents) Expires() bool { return c.seconds > 0 }

// Unread implements [netfilter.Set].
func (c contents) Unread() string {
	if c.vague && c.unread == "" {
		return "the type of the map's values is not known: " + c.name
	}
	return c.unread
}

// Texts implements [netfilter.Set]. Two elements have the same text only if they are equal.
func (c contents) Texts(f func(text string)) {
	var b strings.Builder
	for i := range c.elements {
		e := &c.elements[i]
		b.Reset()
		if int32(i) == c.wildcard {
			b.WriteByte('*')
		} else {
			for at, t := range c.fields {
				if at > 0 {
					b.WriteString(" . ")
				}
				b.WriteString(t.span(e.first[at], e.last[at]))
			}
		}
		if on := c.standing[e]; on.text != "" {
			b.WriteByte(' ')
			b.WriteString(on.text)
		}
		if c.data != nil {
			b.WriteString(" : ")
			b.WriteString(c.valueText(e))
		}
		f(b.String())
	}
}

// valueText is what a map has for an element.
func (c contents) valueText(e *element) string {
	if c.isVerdictMap() {
		for name, kind := range verdicts {
			if kind == e.effect.Kind {
				return strings.TrimSpace(name + " " + e.target)
			}
		}
		return e.target
	}
	parts := make([]string, len(e.data))
	for i, d := range e.data {
		parts[i] = c.data[i].span(d.lo, d.hi)
	}
	return strings.Join(parts, " . ")
}

// span writes a range of values, or the one value that it is.
func (t *datatype) span(lo, hi word) string {
	switch {
	case lo == hi:
		return t.word(lo)
	case t == typeIPv4 || t == typeIPv6:
		for bits := range t.bits {
			if host := lowBits(t.bits - bits); lo.and(host) == (word{}) && lo.or(host) == hi {
				return t.word(lo) + "/" + strconv.Itoa(bits)
			}
		}
	case t == typeIfname || t == typeIface:
		if name := interfaceName(lo); hi == nameWord(name, 0xff) {
			return escaped(name) + "*"
		}
		return hexadecimal(lo) + "-" + hexadecimal(hi)
	}
	return t.word(lo) + "-" + t.word(hi)
}

// word writes a value.
func (t *datatype) word(w word) string {
	switch t {
	case typeIPv4, typeIPv6:
		return w.addr(t == typeIPv4).String()
	case typeProto:
		for name, n := range map[string]uint8{
			"tcp": netfilter.TCP, "udp": netfilter.UDP, "sctp": netfilter.SCTP, "icmp": netfilter.ICMP,
		} {
			if number(uint64(n)) == w {
				return name
			}
		}
		return strconv.FormatUint(w.lo, 10)
	case typePort:
		return strconv.FormatUint(w.lo, 10)
	case typeIfname, typeIface:
		return escaped(interfaceName(w))
	}
	return hexadecimal(w)
}

func hexadecimal(w word) string {
	if w.hi != 0 {
		return fmt.Sprintf("0x%x%016x", w.hi, w.lo)
	}
	return fmt.Sprintf("0x%x", w.lo)
}

// interfaceName is a value without the zeros that it ends in.
func interfaceName(w word) string {
	var name [nameLength]byte
	binary.BigEndian.PutUint64(name[:8], w.hi)
	binary.BigEndian.PutUint64(name[8:], w.lo)
	return string(bytes.TrimRight(name[:], "\x00"))
}

// escaped writes a name so that it does not pass for a prefix: nft has "*" at its end for that.
func escaped(name string) string { return strings.ReplaceAll(name, "*", `\*`) }
