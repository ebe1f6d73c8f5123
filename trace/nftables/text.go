// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ruleText writes a rule as nft list ruleset prints it, without the numbers of its counters, so that a person recognises it. What
// it has no words for it gives as the JSON has it.
func ruleText(list []any, comment string) string {
	parts := make([]string, 0, len(list)+1)
	for _, v := range list {
		parts = append(parts, statementText(v))
	}
	if comment != "" {
		parts = append(parts, "comment "+strconv.Quote(comment))
	}
	return strings.Join(parts, " ")
}

// printer writes what stands behind a key of the JSON; false where it cannot.
type printer func(arg any) (string, bool)

// statementPrinters and exprPrinters are those that need more than their name.
var statementPrinters, exprPrinters map[string]printer

func init() { //nolint:gochecknoinits // what they print contains other expressions and statements
	statementPrinters = map[string]printer{
		"match":      printMatch,
		"jump":       words1("jump"),
		"goto":       words1("goto"),
		"vmap":       printMap("vmap"),
		"counter":    func(arg any) (string, bool) { return named("counter", arg), true },
		"quota":      printQuota,
		"limit":      printLimit,
		"log":        printLog,
		"reject":     printReject,
		"dnat":       printNAT("dnat"),
		"snat":       printNAT("snat"),
		"masquerade": printNAT("masquerade"),
		"redirect":   printNAT("redirect"),
		"tproxy":     printNAT("tproxy"),
		"mangle":     printMangle,
		"set":        printUpdate("set"),
		"map":        printUpdate("map"),
		"ct count":   printCount,
		"queue":      printQueue,
		"flow":       func(arg any) (string, bool) { return "flow " + words(arg, "op") + " " + words(arg, "flowtable"), true },
	}
	exprPrinters = map[string]printer{
		"payload": printPayload,
		"meta":    printMeta,
		"ct": func(arg any) (string, bool) {
			return joined("ct", words(arg, "dir"), words(arg, "key")), words(arg, "key") != ""
		},
		"fib":     printFib,
		"numgen":  printNumgen,
		"jhash":   printHash("jhash"),
		"symhash": printHash("symhash"),
		"map":     printMap("map"),
		"concat":  func(arg any) (string, bool) { return printList(arg, " . ") },
		"set":     func(arg any) (string, bool) { s, ok := printList(arg, ", "); return "{ " + s + " }", ok },
		"range":   func(arg any) (string, bool) { return printList(arg, "-") },
		"prefix":  printPrefix,
		"elem":    printElem,
		"&":       printCalc("&"),
		"|":       printCalc("|"),
		"^":       printCalc("^"),
		"<<":      printCalc("<<"),
		">>":      printCalc(">>"),
		"exthdr":  func(arg any) (string, bool) { return joined("exthdr", words(arg, "name"), words(arg, "field")), true },
		"tcp option": func(arg any) (string, bool) {
			return joined("tcp option", words(arg, "name"), words(arg, "field")), true
		},
		"socket": words2("socket", "key"),
		"rt":     func(arg any) (string, bool) { return joined("rt", words(arg, "family"), words(arg, "key")), true },
		"accept": bare("accept"), "drop": bare("drop"), "return": bare("return"), "continue": bare("continue"),
		"jump": words1("jump"), "goto": words1("goto"),
	}
}

func statementText(v any) string {
	key, arg, ok := one(v)
	if !ok {
		return asJSON(v)
	}
	if p := statementPrinters[key]; p != nil {
		if s, ok := p(arg); ok {
			return s
		}
		return asJSON(v)
	}
	if arg == nil {
		return key
	}
	if s, isName := arg.(string); isName { // an object: ct helper set "x", and the like
		return key + " set " + strconv.Quote(s)
	}
	return asJSON(v)
}

// exprText writes an expression or a constant.
func exprText(v any) string { return textIn(v, false) }

// textIn writes an expression or a constant, numbers as those of marks where hex asks for it.
func textIn(v any, hex bool) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		if hex {
			return fmt.Sprintf("0x%08x", uint64(v))
		}
		if n := int64(v); float64(n) == v && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(n, 10)
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		if v {
			return "exists"
		}
		return "missing"
	case []any:
		s, _ := printList(v, ",") // flags
		return s
	}
	key, arg, ok := one(v)
	if p := exprPrinters[key]; ok && p != nil {
		if hex && (key == "set" || key == "range") {
			return hexList(key, arg)
		}
		if s, ok := p(arg); ok {
			return s
		}
	}
	return asJSON(v)
}

func hexList(key string, arg any) string {
	list, _ := arg.([]any)
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = textIn(x, true)
	}
	if key == "range" {
		return strings.Join(parts, "-")
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

func isScalar(v any) bool {
	switch v.(type) {
	case string, float64, bool:
		return true
	}
	return false
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil { // it came from JSON
		return fmt.Sprint(v)
	}
	return string(data)
}

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func bare(s string) printer { return func(any) (string, bool) { return s, true } }

func words1(s string) printer {
	return func(arg any) (string, bool) { return s + " " + words(arg, "target"), words(arg, "target") != "" }
}

func words2(s, key string) printer {
	return func(arg any) (string, bool) { return s + " " + words(arg, key), words(arg, key) != "" }
}

// named writes a statement with an object of a name.
func named(what string, arg any) string {
	if s, ok := arg.(string); ok {
		return what + " name " + strconv.Quote(s)
	}
	return what
}

func printList(arg any, between string) (string, bool) {
	list, ok := arg.([]any)
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = exprText(x)
	}
	return strings.Join(parts, between), ok
}

// isMark tells whether an expression is a mark, of which nft prints numbers in hex.
func isMark(v any) bool {
	key, arg, ok := one(v)
	switch {
	case !ok:
		return false
	case key == "meta" || key == "ct":
		return words(arg, "key") == "mark"
	case key == "&" || key == "|" || key == "^":
		list, _ := arg.([]any)
		return len(list) > 0 && isMark(list[0])
	}
	return false
}

// quotes are the keys of meta and ct, and the results of fib, of which nft quotes the values.
var quotes = []string{"iif", "oif", "iifname", "oifname", "ibrname", "obrname", "helper", "time", "hour", "day"}

func isName(v any) bool {
	_, arg, ok := one(v)
	return ok && (slices.Contains(quotes, words(arg, "key")) || words(arg, "result") == "oifname")
}

func quoted(v any) string {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, "@") {
			return v
		}
		return strconv.Quote(v)
	case members, map[string]any:
		if list, ok := member(v, "set").([]any); ok {
			parts := make([]string, len(list))
			for i, x := range list {
				parts[i] = quoted(x)
			}
			return "{ " + strings.Join(parts, ", ") + " }"
		}
	}
	return exprText(v)
}

func printMatch(arg any) (string, bool) {
	left, right, sign := member(arg, "left"), member(arg, "right"), words(arg, "op")
	l := exprText(left)
	var r string
	switch {
	case isMark(left):
		r = textIn(right, true)
	case isName(left):
		r = quoted(right)
	default:
		r = exprText(right)
	}
	key, parts, _ := one(left)
	switch n, isNumber := right.(float64); {
	case isNumber && words(parts, "base") != "":
		r = fmt.Sprintf("%#x", uint64(n))
	case isNumber && key == "ct" && words(parts, "key") == "expiration":
		r += "s"
	}
	if list, ok := parts.([]any); ok && key == "&" && len(list) == 2 && sign == "==" {
		if _, isFlags := list[1].([]any); isFlags { // tcp flags syn / fin,syn,rst,ack
			return exprText(list[0]) + " " + r + " / " + exprText(list[1]), true
		}
	}
	if sign == "==" && key != "&" && key != "|" && key != "^" || sign == "in" {
		sign = ""
	}
	return joined(l, sign, r), left != nil && right != nil
}

func printPayload(arg any) (string, bool) {
	if base := words(arg, "base"); base != "" {
		return "@" + base + "," + exprText(member(arg, "offset")) + "," + exprText(member(arg, "len")), true
	}
	p, f := words(arg, "protocol"), words(arg, "field")
	return p + " " + f, p != "" && f != ""
}

// unqualified are the keys of meta that nft prints without that word.
var unqualified = []string{"iif", "oif", "iifname", "oifname"}

func printMeta(arg any) (string, bool) {
	key := words(arg, "key")
	if slices.Contains(unqualified, key) {
		return key, true
	}
	return "meta " + key, key != ""
}

func printFib(arg any) (string, bool) {
	var flags []string
	switch f := member(arg, "flags").(type) {
	case string:
		flags = []string{f}
	case []any:
		flags = make([]string, len(f))
		for i, x := range f {
			flags[i] = exprText(x)
		}
	}
	return "fib " + strings.Join(flags, " . ") + " " + words(arg, "result"), len(flags) > 0
}

func printNumgen(arg any) (string, bool) {
	s := "numgen " + words(arg, "mode") + " mod " + exprText(member(arg, "mod"))
	if n, ok := member(arg, "offset").(float64); ok && n != 0 {
		s += " offset " + exprText(n)
	}
	return s, true
}

func printHash(what string) printer {
	return func(arg any) (string, bool) {
		s := joined(what, exprText(member(arg, "expr")), "mod", exprText(member(arg, "mod")))
		if n, ok := member(arg, "seed").(float64); ok {
			s += fmt.Sprintf(" seed 0x%x", uint64(n))
		}
		if n, ok := member(arg, "offset").(float64); ok && n != 0 {
			s += " offset " + exprText(n)
		}
		return s, true
	}
}

func printMap(word string) printer {
	return func(arg any) (string, bool) { return mapText(word, arg, false), member(arg, "key") != nil }
}

// mapText writes a look-up in a map; hex is for what the map gives.
func mapText(word string, arg any, hex bool) string {
	key, data := member(arg, "key"), member(arg, "data")
	var text string
	if list, ok := member(data, "set").([]any); !ok {
		text = exprText(data)
	} else {
		parts := make([]string, len(list))
		for i, x := range list {
			k, v, _ := two(x)
			parts[i] = textIn(k, isMark(key)) + " : " + textIn(v, hex)
		}
		text = "{ " + strings.Join(parts, ", ") + " }"
	}
	return exprText(key) + " " + word + " " + text
}

func printPrefix(arg any) (string, bool) {
	return exprText(member(arg, "addr")) + "/" + exprText(member(arg, "len")), member(arg, "addr") != nil
}

func printElem(arg any) (string, bool) {
	s := exprText(member(arg, "val"))
	if n, ok := member(arg, "timeout").(float64); ok {
		s += " timeout " + exprText(n) + "s"
	}
	if c := words(arg, "comment"); c != "" {
		s += " comment " + strconv.Quote(c)
	}
	return s, member(arg, "val") != nil
}

func printCalc(sign string) printer {
	return func(arg any) (string, bool) {
		list, ok := arg.([]any)
		if !ok || len(list) < 2 {
			return "", false
		}
		parts := make([]string, len(list))
		for i, x := range list {
			parts[i] = textIn(x, isMark(list[0]) && sign != "<<" && sign != ">>")
		}
		return strings.Join(parts, " "+sign+" "), true
	}
}

func printMangle(arg any) (string, bool) {
	key, v := member(arg, "key"), member(arg, "value")
	if kind, in, ok := one(v); ok && kind == "map" {
		return exprText(key) + " set " + mapText("map", in, isMark(key)), key != nil
	}
	return exprText(key) + " set " + textIn(v, isMark(key)), key != nil && v != nil
}

// defaultBurst is what nft does not print.
const defaultBurst = 5

func printLimit(arg any) (string, bool) {
	if _, isName := arg.(string); isName {
		return named("limit", arg), true
	}
	over := ""
	if inv, _ := member(arg, "inv").(bool); inv {
		over = "over"
	}
	unit := words(arg, "rate_unit")
	if unit == "packets" {
		unit = ""
	}
	rate := joined(exprText(member(arg, "rate")), unit) + "/" + words(arg, "per")
	burst := ""
	if n, ok := member(arg, "burst").(float64); ok && n > 0 && n != defaultBurst {
		of := words(arg, "burst_unit")
		if of == "" {
			of = "packets"
		}
		burst = "burst " + exprText(n) + " " + of
	}
	return joined("limit rate", over, rate, burst), member(arg, "rate") != nil
}

func printQuota(arg any) (string, bool) {
	if _, isName := arg.(string); isName {
		return named("quota", arg), true
	}
	over := ""
	if inv, _ := member(arg, "inv").(bool); inv {
		over = "over"
	}
	return joined("quota", over, exprText(member(arg, "val")), words(arg, "val_unit")), member(arg, "val") != nil
}

func printLog(arg any) (string, bool) {
	s := "log"
	if p := words(arg, "prefix"); p != "" {
		s += " prefix " + strconv.Quote(p)
	}
	if n, ok := member(arg, "group").(float64); ok {
		s += " group " + exprText(n)
	}
	if l := words(arg, "level"); l != "" {
		s += " level " + l
	}
	return s, true
}

func printReject(arg any) (string, bool) {
	typ, code := words(arg, "type"), words(arg, "expr")
	switch {
	case code == "port-unreachable" || typ == "":
		return "reject", true
	case typ == "tcp reset":
		return "reject with tcp reset", true
	}
	return "reject with " + typ + " " + code, true
}

func printNAT(what string) printer {
	return func(arg any) (string, bool) {
		addr, port := member(arg, "addr"), member(arg, "port")
		to := exprText(addr)
		if strings.Contains(to, ":") && isScalar(addr) && port != nil {
			to = "[" + to + "]"
		}
		if port != nil {
			to += ":" + exprText(port)
		}
		family := words(arg, "family")
		if key, in, ok := one(addr); ok && key == "map" {
			if data, ok := member(member(in, "data"), "set").([]any); ok && len(data) > 0 {
				if _, second, isPair := two(data[0]); isPair && member(second, "concat") != nil {
					family = joined(family, "addr . port")
				}
			}
		}
		if to != "" {
			to = "to " + to
		}
		flags := exprText(member(arg, "flags"))
		return joined(what, family, to, flags), true
	}
}

// two returns the members of a pair.
func two(v any) (first, second any, ok bool) {
	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, nil, false
	}
	return list[0], list[1], true
}

func printUpdate(kind string) printer {
	return func(arg any) (string, bool) {
		parts := []string{exprText(member(arg, "elem"))}
		if list, ok := member(arg, "stmt").([]any); ok {
			for _, v := range list {
				parts = append(parts, statementText(v))
			}
		}
		elem := strings.Join(parts, " ")
		if data := member(arg, "data"); data != nil {
			elem += " : " + exprText(data)
		}
		name := words(arg, kind)
		return words(arg, "op") + " " + name + " { " + elem + " }", name != ""
	}
}

func printCount(arg any) (string, bool) {
	over := ""
	if inv, _ := member(arg, "inv").(bool); inv {
		over = "over"
	}
	return joined("ct count", over, exprText(member(arg, "val"))), member(arg, "val") != nil
}

func printQueue(arg any) (string, bool) {
	s := "queue"
	if n := member(arg, "num"); n != nil {
		s += " num " + exprText(n)
	}
	if f := exprText(member(arg, "flags")); f != "" {
		s += " flags " + f
	}
	return s, true
}
