// SPDX-License-Identifier: Apache-2.0

package snippet

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestBlocks(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []Block
		err        string
	}{
		{
			"a block, with what it prints", "# A\n\n<!-- run: docs, exit 1 -->\n```sh\none\n\ntwo\n```\n\n```\nout\n```\n",
			[]Block{{Line: 5, Run: "docs", Exit: 1, Text: "one\n\ntwo\n", Output: "out\n"}},
			"",
		},
		{
			"words between a block and another", "<!-- run: e2e -->\n```sh\none\n```\n\nIt prints\n\n```\nout\n```\n",
			[]Block{{Line: 3, Run: "e2e", Text: "one\n"}},
			"",
		},
		{
			"two blocks", "<!-- run: e2e -->\n```bash\none\n```\n<!-- run: elsewhere -->\n```sh\ntwo\n```\n",
			[]Block{{Line: 3, Run: "e2e", Text: "one\n"}, {Line: 7, Run: "elsewhere", Text: "two\n"}},
			"",
		},
		{
			"a block that shows one", "<!-- run: docs -->\n~~~sh\n```sh\n~~~\n",
			[]Block{{Line: 3, Run: "docs", Text: "```sh\n"}},
			"",
		},
		{"another language", "```yaml\na: b\n```\n", nil, ""},
		{"nobody runs it", "# A\n\n```sh\none\n```\n", nil, ":3: nobody runs this block"},
		{"nobody runs it, in a list", "- so\n\n  ```console\n  $ one\n  ```\n", nil, ":3: nobody runs this block"},
		{"nobody of that name", "<!-- run: me -->\n```sh\none\n```\n", nil, ":2: nobody runs this block"},
		{"a note for another language", "<!-- run: docs -->\n```yaml\na: b\n```\n", nil, ":2: this is not a block of shell"},
		{"a note without a block", "<!-- run: docs -->\nWords.\n", nil, ":1: a note without a block"},
		{"no end", "<!-- run: docs -->\n```sh\none\n", nil, "a block does not end"},
	} {
		file := filepath.Join(t.TempDir(), "x.md")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		blocks, err := Blocks(file)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		var got []Block
		for _, b := range blocks {
			b.File = ""
			got = append(got, *b)
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if _, err := Blocks("none.md"); err == nil {
		t.Error("a file that is not there was read")
	}
}
