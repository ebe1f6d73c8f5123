// SPDX-License-Identifier: Apache-2.0

//go:build guard

package guard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// variant is a capture with one of its files changed; as it is where there is no file.
type variant struct {
	dir, file string // the capture, and the file below it
	object    string // what was changed: a line, a text of JSON, or nothing where it is the whole file
	how       string // "removed", "unreadable"
	content   []byte // nil where the file is removed
}

func (v *variant) name() string {
	if v.file == "" {
		return filepath.Base(v.dir)
	}
	return fmt.Sprintf("%s/%s, %s: %.200s", filepath.Base(v.dir), v.file, v.how, v.object)
}

// parts of objects that differ from one to the next: addresses, hashes, numbers, names.
var (
	chainNames = regexp.MustCompile(`\b(KUBE-(?:SVC|SEP|SVL|EXT|FW|XLB|MARK)|service|endpoint|external|firewall)-[A-Z0-9]{8,}[^ "]*`)
	counters   = regexp.MustCompile(`^\[\d+:\d+\] `)
	quoted     = regexp.MustCompile(`"[^"]*"`)
	digits     = regexp.MustCompile(`[0-9a-f]*[0-9:.]+[0-9a-f:./]*`)
)

// kind is what is the same of variants that show the same: the file, how, and what kind of object it is.
func (v *variant) kind() string {
	if v.file == "" {
		return "as it is"
	}
	what := v.object
	switch {
	case strings.HasPrefix(what, "{"):
		var o map[string]json.RawMessage
		what = "object"
		if json.Unmarshal([]byte(v.object), &o) == nil && len(o) == 1 {
			for k := range o {
				what = k
			}
		}
	case what != "":
		what = counters.ReplaceAllString(what, "")
		what = chainNames.ReplaceAllString(what, "$1")
		what = quoted.ReplaceAllString(what, `""`)
		what = strings.TrimSpace(digits.ReplaceAllString(what, "N"))
		if f := strings.Fields(what); len(f) > 4 {
			target := ""
			for i, w := range f[:len(f)-1] {
				if w == "-j" {
					target = " -j " + f[i+1]
				}
			}
			what = strings.Join(f[:2], " ") + target
		}
	default:
		what = "file"
	}
	return fmt.Sprintf("%s %s, %s", filepath.Base(v.file), what, v.how)
}

// write makes the variant in an empty folder.
func (v *variant) write(dir string) error {
	return filepath.WalkDir(v.dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(v.dir, p)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		case rel == v.file && v.content == nil:
			return nil
		case rel == v.file:
			return os.WriteFile(filepath.Join(dir, rel), v.content, 0o644)
		}
		return os.Link(p, filepath.Join(dir, rel))
	})
}

// variants are those of a capture, the capture as it is first.
func variants(t *testing.T, dir string) []variant {
	t.Helper()
	out := []variant{{dir: dir}}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		add := func(object, how string, content []byte) {
			out = append(out, variant{dir, rel, object, how, content})
		}
		add("", "removed", nil)
		add("", "unreadable", []byte("{ neither text nor JSON\n"))
		if filepath.Ext(p) == ".json" {
			ofJSON(data, add)
		} else if filepath.Ext(p) == ".txt" {
			ofLines(string(data), add)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ofLines removes each line of a text, and adds a word to it that no reader knows.
func ofLines(text string, add func(object, how string, content []byte)) {
	lines := strings.SplitAfter(text, "\n")
	for i, l := range lines {
		if l = strings.TrimSpace(l); l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		before, after := strings.Join(lines[:i], ""), strings.Join(lines[i+1:], "")
		add(l, "removed", []byte(before+after))
		odd := l + " nosuch"
		if strings.Contains(l, "-A ") {
			odd = strings.Replace(l, " -j ", " -m nosuch --nosuch 1 -j ", 1)
		}
		add(l, "unreadable", []byte(before+odd+"\n"+after))
	}
}

// ofJSON removes each element of a list, and adds a member to it that no reader knows: of a list of objects, of those of
// a list of the API, and of nft's.
func ofJSON(data []byte, add func(object, how string, content []byte)) {
	var list []json.RawMessage
	whole := func(l []json.RawMessage) ([]byte, error) { return json.Marshal(l) }
	if json.Unmarshal(data, &list) != nil {
		var o map[string]json.RawMessage
		if json.Unmarshal(data, &o) != nil {
			return
		}
		key := ""
		for _, k := range []string{"items", "nftables"} {
			if json.Unmarshal(o[k], &list) == nil && len(list) > 0 {
				key = k
			}
		}
		if key == "" {
			return
		}
		whole = func(l []json.RawMessage) ([]byte, error) {
			part, err := json.Marshal(l)
			if err != nil {
				return nil, err
			}
			o[key] = part
			return json.Marshal(o)
		}
	}
	for i, e := range list {
		one := string(e)
		rest := append(append([]json.RawMessage{}, list[:i]...), list[i+1:]...)
		if content, err := whole(rest); err == nil {
			add(compact(one), "removed", content)
		}
		odd := strings.Replace(one, "{", `{"nosuch":1,`, 1)
		if inner := strings.Index(one[1:], "{"); inner >= 0 && !strings.Contains(one[:inner+1], ",") { // {"chain": {…}}
			odd = one[:inner+1] + strings.Replace(one[inner+1:], "{", `{"nosuch":1,`, 1)
		}
		if strings.Contains(one, `"expr"`) {
			odd = regexp.MustCompile(`("expr":\s*\[)`).ReplaceAllString(one, `$1{"nosuch":1},`)
		}
		changed := append([]json.RawMessage{}, list...)
		changed[i] = json.RawMessage(odd)
		if content, err := whole(changed); err == nil {
			add(compact(one), "unreadable", content)
		}
	}
}

func compact(s string) string { return strings.Join(strings.Fields(s), " ") }
