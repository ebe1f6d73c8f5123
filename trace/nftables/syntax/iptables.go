// SPDX-License-Identifier: Apache-2.0

package syntax

// builtin is a base chain of iptables-nft.
type builtin struct {
	hook     string
	priority int
	kind     string
}

// builtins are the base chains of iptables-nft, by table and name (xtables_ipv4 in iptables/nft.c).
var builtins = map[[2]string]builtin{
	{"raw", "PREROUTING"}:     {"prerouting", -300, "filter"},
	{"raw", "OUTPUT"}:         {"output", -300, "filter"},
	{"mangle", "PREROUTING"}:  {"prerouting", -150, "filter"},
	{"mangle", "INPUT"}:       {"input", -150, "filter"},
	{"mangle", "FORWARD"}:     {"forward", -150, "filter"},
	{"mangle", "OUTPUT"}:      {"output", -150, "route"},
	{"mangle", "POSTROUTING"}: {"postrouting", -150, "filter"},
	{"filter", "INPUT"}:       {"input", 0, "filter"},
	{"filter", "FORWARD"}:     {"forward", 0, "filter"},
	{"filter", "OUTPUT"}:      {"output", 0, "filter"},
	{"security", "INPUT"}:     {"input", 150, "filter"},
	{"security", "FORWARD"}:   {"forward", 150, "filter"},
	{"security", "OUTPUT"}:    {"output", 150, "filter"},
	{"nat", "PREROUTING"}:     {"prerouting", -100, "nat"},
	{"nat", "INPUT"}:          {"input", 100, "nat"},
	{"nat", "OUTPUT"}:         {"output", -100, "nat"},
	{"nat", "POSTROUTING"}:    {"postrouting", 100, "nat"},
}

// IsIPTables tells whether a base chain of a table that iptables-nft manages is its own, by name, hook, type and
// priority. iptables-save shows no others ("contains incompatible base-chains").
func (c *Chain) IsIPTables(table string) bool {
	own, ok := builtins[[2]string{table, c.Name}]
	return ok && c.Priority != nil && own == builtin{c.Hook, *c.Priority, c.Type}
}
