// SPDX-License-Identifier: Apache-2.0

package print

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
)

// browserNames are what Chromium is called by Debian, Ubuntu and Google.
var browserNames = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// browser runs Chromium without a window, and returns what it prints.
func browser(t *testing.T, args ...string) string {
	t.Helper()
	program := ""
	for _, name := range browserNames {
		if p, err := exec.LookPath(name); err == nil {
			program = p
			break
		}
	}
	if program == "" {
		t.Skipf(
			"no browser is installed (one of %s; hack/install-test-deps.sh installs it)",
			strings.Join(browserNames, ", "),
		)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	// Root may not have Chromium's sandbox; the pages are the test's own.
	cmd := exec.CommandContext(ctx, program, append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * " +
			"~NOTFOUND , EXCLUDE 127.0.0.1",
		"--user-data-dir=" + t.TempDir(),
	}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, stderr.String())
	}
	return string(out)
}

// The widths in CSS pixels at which pages are looked at: phones, one of them with a large screen, and a desktop; a
// sheet of A4 without its margins, and its height.
const (
	phone       = 390
	largePhone  = 500
	desktop     = 1280
	paper       = 703
	paperHeight = 1032
)

// probePage measures pages in frames, one after the other: a headless browser's own window is never as narrow as a
// phone. On paper what is for print is made to hold for the screen.
const probePage = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><pre id="result"></pre><script>
(async () => {
  const out = [];
  for (const [name, width, print] of %s) {
    const f = document.createElement("iframe");
    f.width = width; f.height = 900; f.style.border = 0;
    await new Promise(done => { f.onload = done; f.src = name + ".html"; document.body.append(f); });
    const d = f.contentDocument, e = d.documentElement;
    if (print) {
      for (const rule of [...d.styleSheets[0].cssRules]) {
        if (rule.media) { rule.media.mediaText = rule.media.mediaText === "print" ? "all" : "not all"; }
      }
    }
    const shown = x => x.getBoundingClientRect().width > 0;
    const seen = [...d.querySelectorAll("svg.wide, svg.tall")].filter(shown);
    const dark = getComputedStyle(d.body).backgroundColor;
    let wrong = "";
    const table = d.querySelector("table.many"), input = d.querySelector(".filter input");
    if (table && !input) { wrong = "a long table has no filter"; }
    if (table && input) {
      const rows = [...table.tBodies[0].rows], last = rows[rows.length - 1].cells[0].textContent;
      input.value = " " + last.toUpperCase();
      input.dispatchEvent(new Event("input"));
      const left = rows.filter(r => getComputedStyle(r).display !== "none");
      if (!left.includes(rows[rows.length - 1]) || left.some(r => !r.textContent.includes(last))) {
        wrong = "a filter for " + last + " leaves " + left.length + " of " + rows.length + " rows";
      }
      input.value = ""; input.dispatchEvent(new Event("input"));
      if (rows.some(r => r.hidden)) { wrong = "an empty filter hides rows"; }
    }
    const buttons = d.querySelectorAll("button.copy").length, commands = d.querySelectorAll(".command").length;
    if (buttons !== commands) { wrong = buttons + " buttons for " + commands + " commands"; }
    const first = d.querySelector(".finding");
    out.push({name, width, print: !!print, wrong, scroll: e.scrollWidth, client: e.clientWidth, ground: dark,
      out: [...d.body.querySelectorAll("*")].filter(x => !x.closest(".scroll") && !x.closest(".unseen") &&
          !x.closest("details:not([open])") && x.getBoundingClientRect().right > e.clientWidth + 1)
        .map(x => x.tagName + "." + x.className).slice(0, 5),
      pictures: seen.length, classes: [...new Set(seen.map(s => s.classList[0]))],
      scrolled: seen.filter(s => s.parentNode.scrollWidth > s.parentNode.clientWidth + 1).length,
      finding: first ? Math.round(first.getBoundingClientRect().bottom + f.contentWindow.scrollY) : 0,
      buttons: [...d.querySelectorAll("button")].filter(shown).length,
      text: Math.min(99, ...seen.map(s => Math.min(...[...s.querySelectorAll("text")].map(t =>
          parseFloat(getComputedStyle(t).fontSize))) * s.getBoundingClientRect().width / s.viewBox.baseVal.width)),
      sticks: seen.flatMap(s => [...s.querySelectorAll("g")]).filter(g => {
          const box = g.querySelector("rect").getBoundingClientRect().right;
          return [...g.querySelectorAll("text")].some(t => t.getBoundingClientRect().right > box);
        }).map(g => g.textContent).slice(0, 3)});
    f.remove();
  }
  document.getElementById("result").textContent = JSON.stringify(out);
  document.title = "done";
})();
</script>`

// A page fits phones and a desktop, in light and dark, shows the picture that is meant for that width with text of a
// size that can be read, and loads nothing; its script runs under its policy. On paper the first finding, with its
// remedy, is on the first page, and no button is.
func TestBrowser(t *testing.T) {
	testutil.Long(t)
	dir := t.TempDir()
	names := writePages(t, dir)
	var list [][3]any
	for _, name := range names {
		list = append(
			list, [3]any{name, phone, false}, [3]any{name, largePhone, false}, [3]any{name, desktop, false},
			[3]any{name, paper, true},
		)
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "probe.html"), fmt.Appendf(nil, probePage, data), 0o644); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[string]int{}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	defer server.Close()

	for _, scheme := range []struct{ name, flag, ground string }{
		{"light", "--blink-settings=preferredColorScheme=1", "rgb(255, 255, 255)"},
		{"dark", "--blink-settings=preferredColorScheme=0", "rgb(18, 22, 27)"},
	} {
		out := browser(t, scheme.flag, "--virtual-time-budget=60000", "--dump-dom", server.URL+"/probe.html")
		var got []measured
		if err := json.Unmarshal([]byte(textByID(t, out, "result")), &got); err != nil {
			t.Fatalf("%v in %.2000s", err, out)
		}
		if len(got) != len(list) {
			t.Fatalf("%d of %d pages were measured", len(got), len(list))
		}
		for i := range got {
			p := &got[i]
			for _, fault := range p.faults() {
				t.Errorf("%s at %d px, %s: %s", p.Name, p.Width, scheme.name, fault)
			}
			if !p.Print && p.Ground != scheme.ground {
				t.Errorf("%s, %s: the ground is %s, want %s", p.Name, scheme.name, p.Ground, scheme.ground)
			}
		}
	}
	for path := range asked {
		if name, ok := strings.CutSuffix(strings.TrimPrefix(path, "/"), ".html"); !ok ||
			name != "probe" && !slices.Contains(names, name) {
			t.Errorf("a page asked for %s", path)
		}
	}
}

// measured is what probePage says of a page at a width.
type measured struct {
	Name                                 string
	Width, Scroll, Client                int
	Print                                bool
	Wrong, Ground                        string
	Out, Classes, Sticks                 []string
	Pictures, Scrolled, Finding, Buttons int
	Text                                 float64
}

// tooWide are pages with names and addresses so long that a picture of them does not fit a desktop: it is scrolled by
// itself.
var tooWide = []string{"long", "hostile"}

// faults lists what is wrong with a page at a width.
func (p *measured) faults() (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p.Wrong != "" {
		fault("%s", p.Wrong)
	}
	want := "wide"
	if p.Width < desktop && !p.Print {
		want = "tall"
	}
	if p.Pictures > 0 && !slices.Equal(p.Classes, []string{want}) {
		fault("the pictures shown are %v, want %s alone", p.Classes, want)
	}
	if p.Print {
		if p.Finding > paperHeight && !strings.HasSuffix(p.Name, "hostile") {
			fault("the first finding ends %d px below the top of the page", p.Finding)
		}
		if p.Buttons > 0 {
			fault("there are %d buttons on paper", p.Buttons)
		}
		return out
	}
	if p.Scroll > p.Client || len(p.Out) > 0 {
		fault("its content is %d px wide, of %d; what sticks out: %v", p.Scroll, p.Client, p.Out)
	}
	if p.Text < picture.FontSize {
		fault("the text of a picture is %.1f px high", p.Text)
	}
	if len(p.Sticks) > 0 {
		fault("text runs out of its boxes: %q", p.Sticks)
	}
	if p.Scrolled > 0 && !slices.Contains(tooWide, p.Name) {
		fault("%d pictures do not fit", p.Scrolled)
	}
	return out
}

// frame shows a page at a phone's width.
const frame = `<!doctype html><meta charset="utf-8"><body style="margin:0;background:#888"><iframe src="%s" width="%d" height="%d" style="border:0"></iframe>`

// TestScreenshots takes pictures of the pages that show most, to be looked at by a person: into $SVCPROXY_ARTIFACTS
// where it is set.
func TestScreenshots(t *testing.T) {
	testutil.Long(t)
	dir := os.Getenv("SVCPROXY_ARTIFACTS")
	names := []string{"missing", "crowd-250", "long", "verify", "modes"}
	if dir == "" {
		dir, names = t.TempDir(), names[:1]
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	pages := t.TempDir()
	writePages(t, pages)
	for _, name := range names {
		for _, width := range []int{phone, desktop} {
			for i, scheme := range []string{"dark", "light"} {
				page, window := filepath.Join(pages, name+".html"), fmt.Sprintf("%d,%d", desktop, 1800)
				if width == phone {
					const height = 3000
					inner := page
					page, window = filepath.Join(pages, name+".frame.html"), fmt.Sprintf("%d,%d", 500, height)
					if err := os.WriteFile(page, fmt.Appendf(nil, frame, filepath.Base(inner), phone, height), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				file := filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
				browser(
					t, fmt.Sprintf("--blink-settings=preferredColorScheme=%d", i), "--window-size="+window,
					"--screenshot="+file, "file://"+page,
				)
				info, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				if info.Size() < 20_000 {
					t.Errorf("%s has %d bytes: there is nothing on it", file, info.Size())
				}
			}
		}
	}
}

// textByID is the text of an element of a page.
func textByID(t *testing.T, page, id string) string {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		if slices.Contains(n.Attr, html.Attribute{Key: "id", Val: id}) && n.FirstChild != nil {
			return n.FirstChild.Data
		}
	}
	return ""
}
