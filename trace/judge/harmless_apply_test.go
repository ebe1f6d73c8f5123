// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// apply does to a node's files what a command does to the node. A command that it does not know fails the test.
func (s *scene) apply(t *testing.T, words []string) {
	t.Helper()
	line := strings.Join(words, " ")
	tool, words := words[0], words[1:]
	v6 := slices.Contains(words, "-6")
	words = slices.DeleteFunc(words, func(w string) bool { return w == "-6" || w == "-4" })
	does := strings.Join(words[:min(2, len(words))], " ")
	ok := false
	switch {
	case tool == "ip" && does == "route del":
		file := "ip-route.json"
		if v6 {
			file = "ip6-route.json"
		}
		ok = s.remove(t, file, routeNamed(words[2:]))
	case tool == "ip" && does == "rule del":
		file := "ip-rule.json"
		if v6 {
			file = "ip6-rule.json"
		}
		priority, _ := strconv.ParseFloat(wordAfter(words, "priority"), 64)
		ok = s.remove(t, file, func(o map[string]any) bool { return o["priority"] == priority })
	case tool == "ip" && does == "neigh del":
		ok = s.remove(t, "ip-neigh.json", func(o map[string]any) bool {
			return o["dst"] == words[2] && o["dev"] == wordAfter(words, "dev")
		})
	case tool == "ip" && (does == "addr del" || does == "addr add"):
		ok = s.address(t, words[1] == "add", words[2], wordAfter(words, "dev"))
	case tool == "ip" && does == "link set":
		ok = s.link(t, words[2:])
	case tool == "sysctl" && words[0] == "-w":
		for _, set := range words[1:] {
			key, value, _ := strings.Cut(set, "=")
			key = strings.ReplaceAll(key, ".", "/")
			var out []string
			for l := range strings.Lines(string(s.files["sysctl.txt"])) {
				if !strings.HasPrefix(l, key+"=") {
					out = append(out, l)
				}
			}
			s.files["sysctl.txt"] = []byte(strings.Join(append(out, key+"="+value+"\n"), ""))
			ok = true
		}
	case tool == "nft" && len(words) == 1 && strings.HasPrefix(words[0], "flush chain "):
		ok = s.nft(t, strings.Split(words[0], "; "))
	}
	if !ok {
		t.Errorf("%s: %s is printed, and it is not known here what that does", s.name, line)
	}
}

// objects are those of a list of a file; rest is what follows the list.
func (s *scene) objects(t *testing.T, file string) (list []map[string]any, rest []byte) {
	t.Helper()
	if len(s.files[file]) == 0 { // not collected
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(string(s.files[file])))
	if err := d.Decode(&list); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return list, s.files[file][d.InputOffset():]
}

func (s *scene) write(t *testing.T, file string, list []map[string]any, rest []byte) {
	t.Helper()
	if list == nil {
		return
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	s.files[file] = append(data, rest...)
}

// remove removes objects of a list, and reports whether there were any.
func (s *scene) remove(t *testing.T, file string, which func(o map[string]any) bool) bool {
	t.Helper()
	list, rest := s.objects(t, file)
	left := slices.DeleteFunc(slices.Clone(list), which)
	s.write(t, file, left, rest)
	return len(left) < len(list)
}

// routeNamed finds a route by the words of ip route del.
func routeNamed(words []string) func(o map[string]any) bool {
	typ := ""
	if slices.Contains([]string{"blackhole", "unreachable", "prohibit", "throw", "local", "broadcast"}, words[0]) {
		typ, words = words[0], words[1:]
	}
	table := wordAfter(words, "table")
	return func(o map[string]any) bool {
		is := func(key, want string) bool { x, _ := o[key].(string); return x == want || want == "" }
		where, _ := o["table"].(string)
		if where == "" {
			where = "main"
		}
		metric, _ := strconv.ParseFloat(wordAfter(words, "metric"), 64)
		dst, _ := o["dst"].(string)
		dst = strings.TrimSuffix(strings.TrimSuffix(dst, "/32"), "/128")
		return dst == words[0] && is("type", typ) && is("dev", wordAfter(words, "dev")) &&
			is("gateway", wordAfter(words, "via")) && where == table && (metric == 0 || o["metric"] == metric)
	}
}

// address gives an interface an address or takes it away, with the routes that the kernel has for it.
func (s *scene) address(t *testing.T, add bool, text, dev string) bool {
	t.Helper()
	p, err := netip.ParsePrefix(text)
	if a, alone := netip.ParseAddr(text); alone == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	a := p.Addr().String()
	family := map[bool]string{true: "inet", false: "inet6"}[p.Addr().Is4()]
	list, rest := s.objects(t, "ip-addr.json")
	done := false
	for _, o := range list {
		if o["ifname"] != dev {
			continue
		}
		infos, _ := o["addr_info"].([]any)
		left := slices.DeleteFunc(slices.Clone(infos), func(x any) bool {
			info, _ := x.(map[string]any)
			return info["local"] == a && info["prefixlen"] == float64(p.Bits())
		})
		done = add || len(left) < len(infos)
		if add {
			left = append(left, map[string]any{"family": family, "local": a, "prefixlen": p.Bits(), "scope": "global"})
		}
		o["addr_info"] = left
	}
	s.write(t, "ip-addr.json", list, rest)
	file := map[bool]string{true: "ip-route.json", false: "ip6-route.json"}[p.Addr().Is4()]
	own := func(o map[string]any) bool {
		return o["dev"] == dev && o["protocol"] == "kernel" && (o["dst"] == a || o["prefsrc"] == a)
	}
	s.remove(t, file, own)
	inTable := func(o map[string]any) bool { return o["table"] != nil }
	if routes, rest := s.objects(t, file); add && slices.ContainsFunc(routes, inTable) {
		routes = append(routes, map[string]any{
			"type": "local", "dst": a, "dev": dev, "table": "local", "protocol": "kernel", "scope": "host", "prefsrc": a,
		})
		if !p.IsSingleIP() {
			routes = append(routes, map[string]any{
				"dst": p.Masked().String(), "dev": dev, "protocol": "kernel", "scope": "link", "prefsrc": a,
			})
		}
		s.write(t, file, routes, rest)
	}
	return done
}

// link sets an interface up, or makes it a port of a bridge.
func (s *scene) link(t *testing.T, words []string) bool {
	t.Helper()
	dev, done := wordAfter(words, "dev"), false
	for _, file := range []string{"ip-link.json", "ip-addr.json"} {
		list, rest := s.objects(t, file)
		for _, o := range list {
			if o["ifname"] != dev {
				continue
			}
			switch what := words[2]; what {
			case "up":
				o["operstate"] = "UP"
				flags, _ := o["flags"].([]any)
				o["flags"] = append(slices.Clone(flags), "UP", "LOWER_UP")
				done = true
			case "master":
				o["master"] = words[3]
				if info, _ := o["linkinfo"].(map[string]any); info != nil {
					info["info_slave_kind"] = "bridge"
				}
				done = true
			}
		}
		s.write(t, file, list, rest)
	}
	return done
}

// nft runs the statements of a script on nft's listing.
func (s *scene) nft(t *testing.T, statements []string) bool {
	t.Helper()
	var listing map[string][]map[string]any
	if err := json.Unmarshal(s.files[snapshot.NFTFile], &listing); err != nil {
		t.Fatal(err)
	}
	objects := listing["nftables"]
	type expr = map[string]any
	field := func(protocol, name string) expr { return expr{"payload": expr{"protocol": protocol, "field": name}} }
	equal := func(left expr, right string) expr {
		return expr{"match": expr{"op": "==", "left": left, "right": right}}
	}
	for _, statement := range statements {
		w := strings.Fields(statement)
		family, table, chain := w[2], w[3], w[4]
		in := expr{"family": family, "table": table, "chain": chain, "handle": 99999}
		what := strings.Join(w[5:], " ")
		switch verb := strings.Join(w[:2], " "); {
		case verb == "flush chain" && len(w) == 5:
			objects = slices.DeleteFunc(objects, func(o map[string]any) bool {
				r, _ := o["rule"].(map[string]any)
				return r != nil && r["family"] == family && r["table"] == table && r["chain"] == chain
			})
			continue
		case verb == "add rule" && w[6] == "saddr" && w[8] == "jump":
			in["expr"] = []expr{equal(field(w[5], "saddr"), w[7]), {"jump": expr{"target": w[9]}}}
		case verb == "add rule" && w[5] == "update":
			in["expr"] = []expr{{"set": expr{"op": "update", "elem": field(family, "saddr"), "set": w[6]}}}
		case verb == "add rule" && strings.HasPrefix(what, "meta l4proto ") && w[8] == "dnat":
			to := netip.MustParseAddrPort(w[10])
			in["expr"] = []expr{equal(expr{"meta": expr{"key": "l4proto"}}, w[7]), {"dnat": expr{
				"addr": to.Addr().String(), "port": to.Port(),
			}}}
		default:
			return false
		}
		objects = append(objects, map[string]any{"rule": maps.Clone(in)})
	}
	listing["nftables"] = objects
	data, err := json.Marshal(listing)
	if err != nil {
		t.Fatal(err)
	}
	s.files[snapshot.NFTFile] = data
	return true
}
