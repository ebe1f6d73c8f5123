// SPDX-License-Identifier: Apache-2.0

//go:build rendered

package print

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// markdownPage is a text in Markdown, and what GitHub makes of it.
type markdownPage struct {
	Name     string   `json:"name"`
	Text     string   `json:"text"`
	HTML     string   `json:"html"`
	Headings []string `json:"headings"`
	doc      *html.Node
}

// renderMarkdown has packages of npm, which are in the directory $SVCPROXY_RENDERED (hack/test.sh nightly rendered
// installs them), make HTML of pages as GitHub does.
func renderMarkdown(t *testing.T, pages []markdownPage) []markdownPage {
	t.Helper()
	dir := os.Getenv("SVCPROXY_RENDERED")
	if dir == "" {
		t.Skip("SVCPROXY_RENDERED does not name the directory with the packages")
	}
	in, err := json.Marshal(pages)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.FromSlash("../../test/rendered/render.mjs"), dir)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	var rendered []markdownPage
	if err := json.Unmarshal(out, &rendered); err != nil {
		t.Fatal(err)
	}
	if len(rendered) != len(pages) || len(pages) == 0 {
		t.Fatalf("%d of %d pages were rendered", len(rendered), len(pages))
	}
	for i := range rendered {
		p := &rendered[i]
		p.Text = pages[i].Text
		if p.doc, err = html.Parse(strings.NewReader(p.HTML)); err != nil {
			t.Fatal(err)
		}
	}
	return rendered
}

// documents are all pages of the repository, by their path.
func documents(t *testing.T) (pages []markdownPage) {
	t.Helper()
	root := filepath.FromSlash("../..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path != root && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		data, err := os.ReadFile(path)
		pages = append(pages, markdownPage{Name: strings.TrimPrefix(filepath.ToSlash(path), "../../"), Text: string(data)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// elements are what GitHub's Markdown makes, without what only raw HTML or a text of someone else's would bring about.
var elements = strings.Fields(
	"html head body h1 h2 h3 h4 p a ul ol li table thead tbody tr th td code pre em strong br")

// leftover is what remains of Markdown that was not understood as such.
var leftover = regexp.MustCompile(`\*\*|^\s*\||\|\s*:?-{3,}|\]\(|^#{1,6} |^\s*` + "```" + `|<!--`)

// faultsOfMarkdown lists what GitHub shows otherwise than it is meant.
func faultsOfMarkdown(p *markdownPage, extra ...string) (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	tables, level := 0, 0
	for n := range p.doc.Descendants() {
		if n.Type == html.TextNode && !inside(n, "code") && leftover.MatchString(n.Data) {
			fault("there is still %q of Markdown in %q", leftover.FindString(n.Data), n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(elements, n.Data) && !slices.Contains(extra, n.Data) {
			fault("there is an element %s", n.Data)
		}
		switch n.Data {
		case "table":
			tables++
		case "h1", "h2", "h3", "h4":
			if at := int(n.Data[1] - '0'); level > 0 && at > level+1 {
				fault("%q is a heading %d below one of %d", textOfNode(n), at, level)
			}
			level = int(n.Data[1] - '0')
		case "img":
			if attribute(n, "alt") == "" {
				fault("the picture %s has no text in its place", attribute(n, "src"))
			}
		}
	}
	want, wrong := tablesOf(p.Text)
	if tables != want {
		fault("%d tables are shown of %d", tables, want)
	}
	return append(out, wrong...)
}

var (
	delimiterRow = regexp.MustCompile(`^\|?(\s*:?-{3,}:?\s*\|)+(\s*:?-{3,}:?\s*)?$`)
	escapedBar   = regexp.MustCompile(`\\\|`)
)

// tablesOf counts the tables of a text, and lists rows with more or fewer cells than the head: GitHub cuts or fills
// them without a word.
func tablesOf(text string) (tables int, wrong []string) {
	cells := func(row string) int {
		row = strings.TrimSpace(escapedBar.ReplaceAllString(row, ""))
		return strings.Count(strings.TrimSuffix(strings.TrimPrefix(row, "|"), "|"), "|") + 1
	}
	fence, columns, before := "", 0, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if mark := regexp.MustCompile("^```+").FindString(trimmed); mark != "" && (fence == "" || fence == trimmed) {
			if fence == "" {
				fence = mark
			} else {
				fence = ""
			}
			continue
		}
		switch {
		case fence != "":
		case columns > 0 && trimmed == "":
			columns = 0
		case columns > 0:
			if got := cells(line); got != columns {
				wrong = append(wrong, fmt.Sprintf("a row has %d cells, its head %d: %.80s", got, columns, line))
			}
		case delimiterRow.MatchString(trimmed) && cells(before) == cells(trimmed):
			tables, columns = tables+1, cells(trimmed)
		}
		before = line
	}
	return tables, wrong
}

// GitHub shows the repository's pages as they are meant: tables as tables, headings in their order, pictures with a
// text in their place, and every link to a section where GitHub puts it.
func TestRenderedDocuments(t *testing.T) {
	pages := renderMarkdown(t, documents(t))
	headings := map[string][]string{}
	for i := range pages {
		headings[pages[i].Name] = pages[i].Headings
	}
	links := 0
	for i := range pages {
		p := &pages[i]
		for _, fault := range faultsOfMarkdown(p, "img", "hr") {
			t.Errorf("%s: %s", p.Name, fault)
		}
		titles := 0
		for n := range p.doc.Descendants() {
			if n.Type == html.ElementNode && n.Data == "h1" {
				titles++
			}
			to := attribute(n, "href")
			file, section, ok := strings.Cut(to, "#")
			if n.Data != "a" || !ok || strings.Contains(to, "://") {
				continue
			}
			links++
			name := p.Name
			if file != "" {
				name = filepath.ToSlash(filepath.Join(filepath.Dir(filepath.FromSlash(p.Name)), filepath.FromSlash(file)))
			}
			if !slices.Contains(headings[name], section) {
				t.Errorf("%s: GitHub has no section #%s in %s", p.Name, section, name)
			}
		}
		if titles != 1 {
			t.Errorf("%s: there are %d titles", p.Name, titles)
		}
	}
	if links < 100 {
		t.Errorf("only %d links to sections were found", links)
	}
}

// GitHub shows a report of -o markdown as it is meant, and what a cluster says is text there: it makes no element, no
// link, no picture, and nothing that calls a person.
func TestRenderedReports(t *testing.T) {
	var pages []markdownPage
	for name, r := range drawnReports() {
		pages = append(pages, markdownPage{Name: name, Text: render(t, "markdown", r, view(0))})
	}
	links := 0
	for _, p := range renderMarkdown(t, pages) {
		for _, fault := range faultsOfMarkdown(&p) {
			t.Errorf("%s: %s", p.Name, fault)
		}
		for n := range p.doc.Descendants() {
			if n.Type != html.ElementNode || n.Data != "a" {
				continue
			}
			links++
			to, text := attribute(n, "href"), textOfNode(n)
			if !strings.HasPrefix(to, "https://") || !strings.HasPrefix(text, "what ") && n.Parent.Data != "li" {
				t.Errorf("%s: a link leads to %s: %s", p.Name, to, text)
			}
		}
	}
	if links == 0 {
		t.Error("there is no link")
	}
}

// Whatever a text is, GitHub shows it as it is.
func TestRenderedText(t *testing.T) {
	texts := []string{
		"<script>alert(1)</script>", "a|b`c`[x](http://192.0.2.1/)", "![x](http://192.0.2.1/x.png)", "# h", "a_b_c *d* ~~e~~",
		"http://192.0.2.1/x", "https://example.org", "www.example.org", "mail@example.org", "ftp://example.org/x",
		"mailto:mail@example.org", "xmpp:mail@example.org/a", "&lt; &#60; &copy;", "[^1]", "[x]", "\\* \\\\", "1. one",
		"- [x] done", "a  b", "<https://example.org>", "<!-- x -->", "$x$", "=====", "a\\|b", "|", "WWW.example.org",
		"x.www.example.org", "(www.example.org)", "svc/web@10.96.0.1:80", "HTTPS://EXAMPLE.ORG",
	}
	var pages []markdownPage
	for _, s := range texts {
		pages = append(pages,
			markdownPage{Name: s, Text: "- On: " + escapeMarkdown(s) + "\n"},
			markdownPage{Name: s, Text: "| a | b |\n| --- | --- |\n| c " + escapeMarkdown(s) + " | d |\n"})
	}
	for _, p := range renderMarkdown(t, pages) {
		want := []string{"On: " + p.Name}
		if strings.HasPrefix(p.Text, "|") {
			want = []string{"a", "b", "c " + p.Name, "d"}
		}
		var got []string
		for n := range p.doc.Descendants() {
			if n.Type == html.ElementNode && slices.Contains([]string{"td", "th", "li"}, n.Data) {
				got = append(got, strings.TrimSpace(textOfNode(n)))
			}
			if n.Type == html.ElementNode && slices.Contains(strings.Fields("a em strong del img code input script"), n.Data) {
				t.Errorf("%q makes an element %s", p.Name, n.Data)
			}
		}
		if spaces := strings.Join(strings.Fields(strings.Join(got, "\n")), " "); spaces !=
			strings.Join(strings.Fields(strings.Join(want, "\n")), " ") {
			t.Errorf("%q: got %q", p.Name, got)
		}
	}
}

// mermaidPage draws diagrams as GitHub does, one after the other, and says what they show.
const mermaidPage = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><pre id="result"></pre>
<script src="mermaid.js"></script><script>
(async () => {
  mermaid.initialize({startOnLoad: false, securityLevel: "strict"});
  const out = [];
  for (const [name, text] of %s) {
    const one = {name, error: "", labels: [], scripts: 0, width: 0};
    try {
      const {svg} = await mermaid.render("d" + out.length, text);
      const box = document.createElement("div");
      box.innerHTML = svg;
      document.body.append(box);
      one.labels = [...box.querySelectorAll(".nodeLabel, .edgeLabel .label, .cluster-label")].map(l => l.textContent);
      one.scripts = box.querySelectorAll("script, img, a, iframe").length;
      one.width = box.querySelector("svg").getBoundingClientRect().width;
      box.remove();
    } catch (e) { one.error = String(e); }
    out.push(one);
  }
  document.getElementById("result").textContent = JSON.stringify(out);
})();
</script>`

// mermaidBlock is a diagram within a page.
var mermaidBlock = regexp.MustCompile("(?s)```mermaid\n(.*?)\n```")

// Every diagram, of the pages and of -o mermaid, is drawn by Mermaid with the texts that it has, and whatever these
// are.
func TestRenderedDiagrams(t *testing.T) {
	dir := os.Getenv("SVCPROXY_RENDERED")
	if dir == "" {
		t.Skip("SVCPROXY_RENDERED does not name the directory with the packages")
	}
	var list [][2]string
	for name, r := range drawnReports() {
		if text := render(t, "mermaid", r, view(80)); strings.Contains(text, "subgraph") {
			list = append(list, [2]string{name, text})
		}
	}
	for _, p := range documents(t) {
		for _, m := range mermaidBlock.FindAllStringSubmatch(p.Text, -1) {
			list = append(list, [2]string{p.Name, m[1]})
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	mermaid, err := os.ReadFile(filepath.Join(dir, "node_modules", "@mermaid-js", "tiny", "dist", "mermaid.tiny.js"))
	if err != nil {
		t.Fatal(err)
	}
	pages := t.TempDir()
	for name, data := range map[string][]byte{"mermaid.js": mermaid, "probe.html": fmt.Appendf(nil, mermaidPage, data)} {
		if err := os.WriteFile(filepath.Join(pages, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := browser(t, "--virtual-time-budget=600000", "--dump-dom", "file://"+filepath.Join(pages, "probe.html"))
	var got []struct {
		Name, Error string
		Labels      []string
		Scripts     int
		Width       float64
	}
	if err := json.Unmarshal([]byte(textByID(t, out, "result")), &got); err != nil {
		t.Fatalf("%v in %.2000s", err, out)
	}
	if len(got) != len(list) || len(list) < 20 {
		t.Fatalf("%d of %d diagrams were drawn", len(got), len(list))
	}
	for i, d := range got {
		if d.Error != "" || d.Scripts > 0 || d.Width < 100 {
			t.Errorf("%s: error %q, %d elements that are not text, %.0f px wide", d.Name, d.Error, d.Scripts, d.Width)
			continue
		}
		drawn := strings.Join(d.Labels, "\n")
		for _, label := range mermaidLabelText.FindAllStringSubmatch(list[i][1], -1) {
			if want := mermaidShown(label[1]); !strings.Contains(squeezed(drawn), squeezed(want)) {
				t.Errorf("%s: %q is not in the picture:\n%s", d.Name, want, drawn)
			}
		}
	}
}

var mermaidLabelText = regexp.MustCompile(`"([^"]*)"`)

// mermaidShown is the text of a label as it is written.
func mermaidShown(label string) string {
	return strings.NewReplacer("<br>", " ", "#35;", "#", "#quot;", `"`, "#lt;", "<", "#gt;", ">", "#amp;", "&", "#96;", "`",
		"#37;", "%", "#92;", `\`).Replace(label)
}

// squeezed is a text without white space: Mermaid breaks long lines.
func squeezed(s string) string { return strings.Join(strings.Fields(s), "") }

// TestRenderedScreenshots takes pictures of pages as GitHub shows them, to be looked at by a person: into
// $SVCPROXY_ARTIFACTS where it is set.
func TestRenderedScreenshots(t *testing.T) {
	packages := os.Getenv("SVCPROXY_RENDERED")
	if packages == "" {
		t.Skip("SVCPROXY_RENDERED does not name the directory with the packages")
	}
	names := []string{"README.md", "docs/symptoms.md", "docs/how-it-works.md", "report-missing.md", "report-end-to-end.md"}
	dir := os.Getenv("SVCPROXY_ARTIFACTS")
	if dir == "" {
		dir, names = t.TempDir(), names[:1]
	}
	style, err := os.ReadFile(filepath.Join(packages, "node_modules", "github-markdown-css", "github-markdown.css"))
	if err != nil {
		t.Fatal(err)
	}
	mermaid := filepath.Join(packages, filepath.FromSlash("node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"))
	root, err := filepath.Abs(filepath.FromSlash("../.."))
	if err != nil {
		t.Fatal(err)
	}
	pages := documents(t)
	for _, name := range []string{"missing", "end-to-end"} {
		r := drawnReports()[name]
		pages = append(pages, markdownPage{Name: "report-" + name + ".md", Text: render(t, "markdown", r, view(0)) +
			"\n```mermaid\n" + render(t, "mermaid", r, view(80)) + "```\n"})
	}
	for _, p := range renderMarkdown(t, pages) {
		if !slices.Contains(names, p.Name) {
			continue
		}
		page := fmt.Sprintf(`<!doctype html><meta charset="utf-8"><base href="file://%s/"><style>%s body{margin:32px;`+
			`max-width:980px}</style><body class="markdown-body">%s<script src="file://%s"></script><script>`+
			`mermaid.initialize({startOnLoad:false,securityLevel:"strict"});let n=0;(async()=>{for(const c of document.`+
			`querySelectorAll("code.language-mermaid")){c.innerHTML=(await mermaid.render("m"+n++,c.textContent)).svg}})()`+
			`</script>`, filepath.Dir(filepath.Join(root, filepath.FromSlash(p.Name))), style, p.HTML, mermaid)
		name := strings.NewReplacer("/", "-", ".md", "").Replace(p.Name)
		file := filepath.Join(t.TempDir(), name+".html")
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		picture := filepath.Join(dir, name+".png")
		browser(t, "--virtual-time-budget=20000", "--window-size=1044,3200", "--screenshot="+picture, "file://"+file)
		if info, err := os.Stat(picture); err != nil || info.Size() < 20_000 {
			t.Errorf("%s: there is nothing on its picture: %v", p.Name, err)
		}
	}
}

func inside(n *html.Node, element string) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == element {
			return true
		}
	}
	return false
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func textOfNode(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}
