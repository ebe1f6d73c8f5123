// SPDX-License-Identifier: Apache-2.0

//go:build axe

package print

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// axePage has axe-core look at pages in frames, at each width, and with all that is folded unfolded or as it is. The
// policy of a page lets no other script run: the pages are copies without it.
const axePage = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><pre id="result"></pre><script>
(async () => {
  const out = [];
  for (const [name, width, unfold] of %s) {
    const f = document.createElement("iframe");
    f.width = width; f.height = 900;
    await new Promise(done => { f.onload = done; f.src = name + ".axe.html"; document.body.append(f); });
    for (const d of f.contentDocument.querySelectorAll("details")) { d.open ||= unfold; }
    const found = await f.contentWindow.axe.run(f.contentDocument, {resultTypes: ["violations"]});
    out.push({name, width, passed: found.passes.length,
      faults: found.violations.map(v => [v.id, v.help, v.nodes.length + " times", v.nodes[0].html].join(": "))});
    f.remove();
  }
  document.getElementById("result").textContent = JSON.stringify(out);
})();
</script>`

// TestAxe looks at every page with axe-core, whose script is the file $SVCPROXY_AXE (hack/test.sh nightly axe installs
// it): it finds no violation of its rules, on phones and a desktop, light and dark. Contrasts in pictures it cannot
// tell; their colours are those of texts outside of them.
func TestAxe(t *testing.T) {
	script := os.Getenv("SVCPROXY_AXE")
	if script == "" {
		t.Skip("SVCPROXY_AXE does not name the script of axe-core")
	}
	axe, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	names := writePages(t, dir)
	var list [][3]any
	for _, name := range names {
		if strings.HasSuffix(name, "-250") {
			// All unfolded, axe-core takes minutes, and there is nothing that a page of few has not.
			list = append(list, [3]any{name, phone, false}, [3]any{name, desktop, false})
		} else {
			list = append(list, [3]any{name, phone, true}, [3]any{name, largePhone, true}, [3]any{name, desktop, true})
		}
		page, err := os.ReadFile(filepath.Join(dir, name+".html"))
		if err != nil {
			t.Fatal(err)
		}
		text := string(page)
		before, rest, ok := strings.Cut(text, `<meta http-equiv="Content-Security-Policy"`)
		if !ok {
			t.Fatalf("%s has no policy", name)
		}
		_, rest, _ = strings.Cut(rest, "\n")
		text = strings.Replace(before+rest, "</body>", `<script src="axe.js"></script></body>`, 1)
		if err := os.WriteFile(filepath.Join(dir, name+".axe.html"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"axe.js": axe, "probe.html": fmt.Appendf(nil, axePage, data)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, scheme := range []string{"dark", "light"} {
		out := browser(
			t, fmt.Sprintf("--blink-settings=preferredColorScheme=%d", i), "--allow-file-access-from-files",
			"--virtual-time-budget=600000", "--dump-dom", "file://"+filepath.Join(dir, "probe.html"),
		)
		var got []struct {
			Name          string
			Width, Passed int
			Faults        []string
		}
		if err := json.Unmarshal([]byte(textByID(t, out, "result")), &got); err != nil {
			t.Fatalf("%v in %.2000s", err, out)
		}
		if len(got) != len(list) {
			t.Fatalf("%d of %d pages were looked at", len(got), len(list))
		}
		for _, p := range got {
			if p.Passed == 0 {
				t.Errorf("%s at %d px, %s: no rule was tried", p.Name, p.Width, scheme)
			}
			for _, fault := range slices.Compact(p.Faults) {
				t.Errorf("%s at %d px, %s: %s", p.Name, p.Width, scheme, fault)
			}
		}
	}
}
