// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

type nftObject struct{ kind, text string }

func (w *capturedNode) edits(f func(o nftObject) []string) {
	w.t.Helper()
	var all struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(w.files[snapshot.NFTFile], &all); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	changed := false
	for _, o := range all.Objects {
		for kind, raw := range o {
			text := `{"` + kind + `":` + string(raw) + `}`
			got := f(nftObject{kind, text})
			changed = changed || len(got) != 1 || got[0] != text
			out = append(out, got...)
		}
	}
	if !changed {
		w.t.Fatal("the fault changes nothing in " + snapshot.NFTFile)
	}
	w.files[snapshot.NFTFile] = []byte(`{"nftables":[` + strings.Join(out, ",\n") + `]}`)
	if !json.Valid(w.files[snapshot.NFTFile]) {
		w.t.Fatal("the fault makes no JSON")
	}
}

func (w *capturedNode) dropRules(chain string, parts ...string) {
	w.t.Helper()
	w.edits(func(o nftObject) []string {
		if o.kind == "rule" && has(o.text, append(parts, `"chain": "`+chain)...) {
			return nil
		}
		return []string{o.text}
	})
}

func (w *capturedNode) change(kind, old, repl string, parts ...string) {
	w.t.Helper()
	w.edits(func(o nftObject) []string {
		if o.kind == kind && has(o.text, parts...) {
			return []string{strings.Replace(o.text, old, repl, 1)}
		}
		return []string{o.text}
	})
}

func (w *capturedNode) elementsOf(set string, f func(list []string) []string) {
	w.t.Helper()
	w.edits(func(o nftObject) []string {
		var all map[string]map[string]json.RawMessage
		if o.kind != "set" && o.kind != "map" || !has(o.text, `"family": "ip"`, `"name": "`+set+`"`) {
			return []string{o.text}
		}
		if err := json.Unmarshal([]byte(o.text), &all); err != nil {
			w.t.Fatal(err)
		}
		var raw []json.RawMessage
		if err := json.Unmarshal(all[o.kind]["elem"], &raw); err != nil {
			w.t.Fatal(err)
		}
		list := make([]string, len(raw))
		for i := range raw {
			list[i] = string(raw[i])
		}
		all[o.kind]["elem"] = json.RawMessage("[" + strings.Join(f(list), ",") + "]")
		text, err := json.Marshal(all)
		if err != nil {
			w.t.Fatal(err)
		}
		return []string{string(text)}
	})
}

func (w *capturedNode) dropElement(set string, parts ...string) {
	w.t.Helper()
	w.elementsOf(set, func(list []string) []string {
		return slices.DeleteFunc(list, func(e string) bool { return has(e, parts...) })
	})
}

func (w *capturedNode) changeElement(set, old, repl string, parts ...string) {
	w.t.Helper()
	w.elementsOf(set, func(list []string) []string {
		for i, e := range list {
			if has(e, parts...) {
				list[i] = strings.Replace(e, old, repl, 1)
			}
		}
		return list
	})
}

func (w *capturedNode) addElement(set, element string) {
	w.t.Helper()
	w.elementsOf(set, func(list []string) []string { return append(list, element) })
}

func (w *capturedNode) addObjects(objects ...string) {
	text := strings.TrimSuffix(strings.TrimSpace(string(w.files[snapshot.NFTFile])), "]}")
	w.files[snapshot.NFTFile] = []byte(text + ", " + strings.Join(objects, ",") + "]}")
	if !json.Valid(w.files[snapshot.NFTFile]) {
		w.t.Fatal("the fault makes no JSON")
	}
}

func (w *capturedNode) foreign(family, typ, hook, prio string, rules ...string) {
	objects := []string{
		`{"table":{"family":"` + family + `","name":"mine"}}`,
		`{"chain":{"family":"` + family + `","table":"mine","name":"c","type":"` + typ + `","hook":"` + hook + `","prio":` +
			prio + `,"policy":"accept"}}`,
	}
	for _, r := range rules {
		objects = append(objects, `{"rule":{"family":"`+family+`","table":"mine","chain":"c","expr":[`+r+`]}}`)
	}
	w.addObjects(objects...)
}
