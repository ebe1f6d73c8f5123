// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strconv"
	"strings"
)

// number returns the rule's priority as text.
func (r *rule) number() string { return strconv.Itoa(r.priority) }

// mayApply says that a rule may apply to a packet.
func (r *rule) mayApply() string {
	if r.implied {
		return "ip -6 rule has none for the table " + r.table + ", which the kernel looks up all the same unless there was " +
			"another rule since the node was started"
	}
	return "the routing rule \"" + r.text() + "\" may apply to it"
}

// text formats a rule as ip rule does.
func (r *rule) text() string { return r.number() + ": " + strings.Join(r.words(), " ") }

// words are the rule as ip rule prints it, and takes it, behind the priority.
func (r *rule) words() []string {
	k := keys{m: r.keys}
	str := func(key string) string { return strings.Trim(string(r.keys[key]), `"`) }
	var out []string
	if r.not {
		out = append(out, "not")
	}
	with := func(word, key, length string) {
		if !k.has(key) {
			return
		}
		v := str(key)
		if k.has(length) {
			v += "/" + str(length)
		}
		out = append(out, word, v)
	}
	between := func(word, one, low, high string) {
		switch {
		case one != "" && k.has(one):
			out = append(out, word, str(one))
		case k.has(low):
			out = append(out, word, str(low)+"-"+str(high))
		}
	}
	with("from", "src", "srclen")
	with("to", "dst", "dstlen")
	with("tos", "tos", "")
	with("dscp", "dscp", "dscp_mask")
	with("fwmark", "fwmark", "fwmask")
	with("iif", "iif", "")
	with("oif", "oif", "")
	between("uidrange", "", "uid_start", "uid_end")
	with("tun_id", "tun_id", "")
	with("ipproto", "ipproto", "")
	between("sport", "sport", "sport_start", "sport_end")
	between("dport", "dport", "dport_start", "dport_end")
	var others []string
	for key := range r.keys {
		if !ruleKeys[key] {
			others = append(others, key)
		}
	}
	slices.Sort(others)
	for _, key := range others {
		if out = append(out, key); str(key) != "null" {
			out = append(out, str(key))
		}
	}
	switch {
	case r.jump:
		out = append(out, "goto", str("goto"))
	case r.nop:
		out = append(out, "nop")
	case r.l3mdev:
		out = append(out, "l3mdev")
	case k.has("action"):
		out = append(out, str("action"))
	default:
		with("lookup", "table", "")
	}
	with("suppress_prefixlength", "suppress_prefixlen", "")
	with("suppress_ifgroup", "suppress_ifgroup", "")
	return out
}
