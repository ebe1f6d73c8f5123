// SPDX-License-Identifier: Apache-2.0

package judge

// The law of what cannot be read, over every rule of the captured nodes: a path may be right only if it is so whatever
// stands there, and wrong only if it is wrong whatever does; else it is Unknown, and says for what.

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// invented is in the text of all that is made unreadable, and in what the report quotes of it.
const invented = "INVENTED"

// lawObject is something of a capture's that can be another, or not be there. For rules: its file without it, with DROP
// and with ACCEPT in place of its target. Objects of another kind have others.
type lawObject struct {
	what, file string
	others     []func() []byte
	unreadable []unreadableForm
}

// unreadableForm is a file in which the object cannot be read. Without more being said, it may be each of the first so
// many of the object's others, or what it is.
type unreadableForm struct {
	form string
	may  int
	data func() []byte
}

// ruleObjects are the rules of a save file.
func ruleObjects(file string, data []byte) []lawObject {
	lines := strings.SplitAfter(string(data), "\n")
	var out []lawObject
	table := ""
	for i, l := range lines {
		l = strings.TrimSuffix(l, "\n")
		if t, ok := strings.CutPrefix(l, "*"); ok {
			table = t
		}
		spec := counters.ReplaceAllString(l, "")
		if !strings.HasPrefix(spec, "-A ") {
			continue
		}
		matches, target := spec, ""
		if at := max(strings.LastIndex(spec, " -j "), strings.LastIndex(spec, " -g ")); at >= 0 {
			matches, target = spec[:at], spec[at:]
		}
		with := func(line string) func() []byte {
			return func() []byte { return []byte(strings.Join(slices.Replace(slices.Clone(lines), i, i+1, line), "")) }
		}
		out = append(out, lawObject{
			what: table + " " + spec, file: file,
			others: []func() []byte{with(""), with(matches + " -j DROP\n"), with(matches + " -j ACCEPT\n")},
			unreadable: []unreadableForm{
				{"condition", 1, with(matches + " -m " + invented + target + "\n")},
				{"target", 3, with(matches + " -j " + invented + "\n")},
			},
		})
	}
	return out
}

// nftRuleObjects are the rules of all tables that nft lists, but for those of iptables-nft, which have files of their
// own.
func nftRuleObjects(t *testing.T, file string, data []byte, of map[string]bool) []lawObject {
	t.Helper()
	var listing struct {
		NFTables []json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(data, &listing); err != nil {
		t.Fatal(err)
	}
	var out []lawObject
	for i, raw := range listing.NFTables {
		var entry struct {
			Rule map[string]any `json:"rule"`
		}
		if err := json.Unmarshal(raw, &entry); err != nil {
			t.Fatal(err)
		}
		expr, ok := entry.Rule["expr"].([]any)
		if !ok || len(expr) == 0 || !of[fmt.Sprint(entry.Rule["family"], " ", entry.Rule["table"])] {
			continue
		}
		last := len(expr) - 1
		with := func(statements ...any) func() []byte {
			return func() []byte {
				var list []json.RawMessage
				if statements != nil {
					rule := maps.Clone(entry.Rule)
					rule["expr"] = slices.Concat(expr[:last], statements)
					text, err := json.Marshal(map[string]any{"rule": rule})
					if err != nil {
						t.Fatal(err)
					}
					list = []json.RawMessage{text}
				}
				text, err := json.Marshal(map[string]any{
					"nftables": slices.Replace(slices.Clone(listing.NFTables), i, i+1, list...),
				})
				if err != nil {
					t.Fatal(err)
				}
				return text
			}
		}
		text, _ := json.Marshal(expr)
		out = append(out, lawObject{
			what: fmt.Sprint(entry.Rule["family"], " ", entry.Rule["table"], " ", entry.Rule["chain"], " ", string(text)),
			file: file,
			others: []func() []byte{
				with(), with(map[string]any{"drop": nil}), with(map[string]any{"accept": nil}),
			},
			unreadable: []unreadableForm{
				{"condition", 3, with(map[string]any{"xt": map[string]any{"type": "match", "name": invented}}, expr[last])},
				{"target", 3, with(map[string]any{strings.ToLower(invented): map[string]any{"name": invented}})},
			},
		})
	}
	return out
}

// capture is a captured node, judged again and again with other files.
type capture struct {
	t       *testing.T
	name    string
	cluster *Cluster
	node    string
	files   map[string][]byte
}

// lawCaptures are those of testdata/snapshots.
func lawCaptures(t *testing.T) []*capture {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("..", "..", "testdata", "snapshots", "*", "nodes", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(err, dirs)
	}
	var out []*capture
	for _, dir := range dirs {
		if strings.Contains(dir, "scale-iptables") {
			continue // 11,000 paths, over rules of the same kinds as those of iptables
		}
		root, node := filepath.Dir(filepath.Dir(dir)), filepath.Base(dir)
		objects, files := snap.Node(t, root, node)
		c := &capture{
			t: t, name: filepath.Base(root), cluster: NewCluster(objects), node: node, files: snap.FilesAndUnread(t, files),
		}
		for _, v := range []string{"iptables", "ip6tables"} { // one file a family, so that a rule stands in one place
			if c.files[v+"-save.txt"] != nil {
				delete(c.files, v+"-nft-save.txt")
				delete(c.files, v+"-legacy-save.txt")
			}
		}
		out = append(out, c)
	}
	return out
}

func (c *capture) objects() []lawObject {
	var out []lawObject
	native := map[string]bool{"ip kube-proxy": true, "ip6 kube-proxy": true}
	for _, file := range slices.Sorted(maps.Keys(c.files)) {
		switch {
		case strings.HasSuffix(file, "-save.txt") && file != snapshot.IPSetFile:
			out = append(out, ruleObjects(file, c.files[file])...)
		case file == snapshot.NFTFile:
			out = append(out, nftRuleObjects(c.t, file, c.files[file], native)...)
		}
	}
	return out
}

// lawVerdict is what is said of the paths from an origin to a frontend: the worst of them.
type lawVerdict struct {
	wrong, unknown, named bool
}

func (v lawVerdict) String() string {
	switch {
	case v.wrong:
		return "MISMATCH"
	case v.unknown:
		return "UNKNOWN"
	}
	return "MATCH"
}

// verdicts judges the node with another file. Paths that are not shown are right.
func (c *capture) verdicts(file string, data []byte) map[string]lawVerdict {
	c.t.Helper()
	files := c.files
	if file != "" {
		files = maps.Clone(c.files)
		files[file] = data
	}
	out := map[string]lawVerdict{}
	s, err := nodestate.Load(snapshot.NewNode(c.node, files))
	if err != nil {
		out["the node"] = lawVerdict{unknown: true, named: true}
		return out
	}
	r := Node(c.cluster, s, Request{Matching: true, PerPathService: true})
	if r.Error != "" {
		out["the node"] = lawVerdict{unknown: true, named: true}
	}
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Service == nil {
			continue
		}
		key := fmt.Sprintf("%s/%s %s %s:%d/%s from %s", p.Service.Namespace, p.Service.Name, p.Frontend.Kind,
			p.Frontend.Address, p.Frontend.Port, p.Frontend.Protocol, p.Origin.Kind)
		v := out[key]
		switch p.Verdict {
		case report.Mismatch:
			v.wrong = true
		case report.Unknown:
			text, _ := json.Marshal(p.Findings)
			v.named = (v.named || !v.unknown) && strings.Contains(strings.ToUpper(string(text)), invented)
			v.unknown = true
		case report.Match, report.ByDesign, report.Warning:
		}
		out[key] = v
	}
	return out
}

// breaks says which verdicts of an object's breaks the law; needless counts those that are Unknown although whatever
// stands there is right.
func (c *capture) breaks(
	base map[string]lawVerdict, o *lawObject,
) (broken map[string][]string, needless map[string]int) {
	allowed := []map[string]lawVerdict{base}
	for _, data := range o.others {
		allowed = append(allowed, c.verdicts(o.file, data()))
	}
	broken, needless = map[string][]string{}, map[string]int{}
	for _, form := range o.unreadable {
		got := c.verdicts(o.file, form.data())
		paths := map[string]bool{}
		for _, list := range append(slices.Clone(allowed), got) {
			for key := range list {
				paths[key] = true
			}
		}
		for _, key := range slices.Sorted(maps.Keys(paths)) {
			right, wrong := 0, 0
			var are []string
			for _, list := range allowed[:form.may+1] {
				v := list[key]
				if are = append(are, v.String()); v.wrong {
					wrong++
				} else if !v.unknown {
					right++
				}
			}
			v, all := got[key], form.may+1
			if _, shown := got[key]; !shown && otherDoubted(got, key) {
				continue // nothing is claimed of it
			}
			line := fmt.Sprintf("%s: %s (%s)", key, v, strings.Join(are, " "))
			switch {
			case v.wrong && wrong < all, !v.wrong && !v.unknown && right < all:
				broken[form.form] = append(broken[form.form], line)
			case v.unknown && right == all && slices.ContainsFunc(allowed[:all], func(list map[string]lawVerdict) bool {
				return otherWrong(list, key)
			}): // what is wrong with the path itself may be left out as a consequence
			case v.unknown && right == all:
				needless[form.form]++
				if os.Getenv("SVCPROXY_LAW_NEEDLESS") != "" {
					c.t.Logf("needless: %s %s: %s", form.form, o.what, line)
				}
			case v.unknown && !v.named && !base[key].unknown:
				broken[form.form] = append(broken[form.form], line+", and the rule is not named")
			}
		}
	}
	return broken, needless
}

// otherDoubted reports whether a path from another origin to the same frontend is not right, or not known to be.
func otherDoubted(list map[string]lawVerdict, key string) bool {
	frontend, _, _ := strings.Cut(key, " from ")
	for other, v := range list {
		if (v.wrong || v.unknown) && other != key && strings.HasPrefix(other, frontend+" from ") {
			return true
		}
	}
	return false
}

// otherWrong reports whether another path of a path's Service is wrong.
func otherWrong(list map[string]lawVerdict, key string) bool {
	service, _, _ := strings.Cut(key, " ")
	for other, v := range list {
		if v.wrong && other != key && strings.HasPrefix(other, service+" ") {
			return true
		}
	}
	return false
}

// lawBreakers are the objects known to break the law. What is taken out of the list must not break it again.
const lawBreakers = "testdata/law-breakers.txt"

// forNightly are captures that are left out where not all rules are judged: they are much like others.
var forNightly = []string{"iptables-legacy", "v1.30-iptables"}

// TestWhatCannotBeReadIsUnknown is the law over rules of every kind; over all rules with SVCPROXY_LAW=all.
func TestWhatCannotBeReadIsUnknown(t *testing.T) {
	testutil.Long(t)
	all := os.Getenv("SVCPROXY_LAW") == "all"
	text, err := os.ReadFile(lawBreakers)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			known[line] = true
		}
	}
	tried, total := map[string]bool{}, 0
	var found []string
	for _, c := range lawCaptures(t) {
		if only := os.Getenv("SVCPROXY_LAW_ONLY"); only != "" && only != c.name {
			continue
		}
		if !all && slices.Contains(forNightly, c.name) {
			continue
		}
		base := c.verdicts("", nil)
		seen, judged, spare := map[string]bool{}, 0, 0
		for _, o := range c.objects() {
			kind := particular.ReplaceAllString(o.what, "x")
			if seen[kind] && !all {
				continue
			}
			seen[kind] = true
			judged++
			broken, needless := c.breaks(base, &o)
			for _, form := range o.unreadable {
				name := c.name + " " + o.file + " " + form.form + " " + o.what
				tried[name] = true
				spare += needless[form.form]
				if broken[form.form] == nil {
					continue
				}
				total++
				found = append(found, name)
				if !known[name] {
					t.Errorf("%s\n\t%s", name, strings.Join(broken[form.form], "\n\t"))
				}
			}
		}
		t.Logf("%s: %d rules, %d paths, %d Unknown although whatever stands there is right", c.name, judged, len(base), spare)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if tried[name] && !slices.Contains(found, name) {
			t.Errorf("no longer breaks the law: take it out of %s\n\t%s", lawBreakers, name)
		}
	}
	if file := os.Getenv("SVCPROXY_LAW_WRITE"); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(found, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d break the law of %d", total, len(tried))
}
