// SPDX-License-Identifier: Apache-2.0

package print

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// drawnReports are those of the golden files, and what pictures find hard besides.
func drawnReports() map[string]*report.Report {
	out := reports()
	crowd := pods(250)
	gone := paths(clusterIP, report.Mismatch, dnat(crowd), report.Actual{
		Outcomes: sent(crowd[:249]),
	}, missing(endpointText(&crowd[249]), "worker-1"))
	for i := range gone {
		gone[i].Steps = stepsTo(crowd[:249])
	}
	out["crowd-250"] = trace(web, node("worker-1", report.Mismatch, gone...))

	hostile := trace(&report.ServiceInfo{
		Namespace: `<script>alert(1)</script>`, Name: `"><img src=http://192.0.2.1/x onerror=alert(1)>`, Type: "ClusterIP", ClusterIPs: []string{
			"10.96.21.191",
		},
	}, node(`</title><svg onload=alert(2)>`, report.Mismatch, nasty()...))
	out["hostile"] = hostile

	six := make([]report.Endpoint, 3)
	for i := range six {
		six[i] = report.Endpoint{
			Address: fmt.Sprintf("2001:db8:1234:5678:9abc:def0:1234:567%d", i), Port: 65535, Share: 1.0 / 3,
			Pod: "shop/" + strings.Repeat("a-long-name-", 5) +
				fmt.Sprint(i), Node: "ip-10-20-30-40.eu-central-1.compute.internal.example.org",
		}
	}
	long := report.Frontend{
		Kind:     "LoadBalancerIP",
		Address:  "2001:db8:ffff:eeee:dddd:cccc:bbbb:aaaa",
		Port:     65535,
		Protocol: "SCTP",
	}
	wide := paths(long, report.Mismatch, dnat(six), report.Actual{
		Outcomes: sent(six[:2]),
	}, missing(endpointText(&six[2]), "worker-2"))
	wide[0].Steps = []report.Step{
		{
			Hook:    "PREROUTING",
			RuleRef: rule("ip6 kube-proxy", "service-ULMVA6XW-"+strings.Repeat("n", 63)+"/svc1/tcp/p80", 1),
			Text:    strings.Repeat("long ", 90) + strings.Repeat("x", 300),
			Verdict: "goto",
			Share:   1,
		},
	}
	out["long"] = trace(web, node("worker-2", report.Mismatch, wide...))
	maps.Copy(out, followedReports())
	return out
}

// stepsTo are those of a packet that rules of a Service's chain send to endpoints.
func stepsTo(e []report.Endpoint) []report.Step {
	out := []report.Step{
		{
			Hook:    "PREROUTING",
			RuleRef: rule("nat", "PREROUTING", 1),
			Text:    "-A PREROUTING -j KUBE-SERVICES",
			Verdict: "jump KUBE-SERVICES",
			Share:   1,
		},
	}
	for i := range e {
		sep := fmt.Sprintf("KUBE-SEP-%016d", i)
		out = append(out,
			report.Step{
				Hook:    "PREROUTING",
				RuleRef: rule("nat", "KUBE-SVC-XPGD46QRK7WJZT7O", i+1),
				Text:    "-A KUBE-SVC-XPGD46QRK7WJZT7O -j " + sep,
				Verdict: "jump " + sep,
				Share:   e[i].Share,
			},
			report.Step{
				Hook:    "PREROUTING",
				RuleRef: rule("nat", sep, 2),
				Text:    "-A " + sep + " -j DNAT",
				Verdict: "DNAT",
				Share:   e[i].Share,
			})
	}
	return append(out, report.Step{
		Hook:    "FORWARD",
		RuleRef: rule("filter", "FORWARD", 0),
		Text:    "policy",
		Verdict: "accept",
		Share:   1,
	})
}

// nasty are paths whose every text tries to be something else.
func nasty() []report.Path {
	const bad = "<script>alert(3)</script>\"'`%%{init: {}}%% --> ]]> \\N &lt; #quot; \x1b[31m"
	e := []report.Endpoint{{Address: "10.244.1.4", Port: 8080, Share: 1, Pod: "shop/" + bad, Node: bad}}
	p := paths(clusterIP, report.Mismatch, dnat(e), report.Actual{
		Outcomes:  sent(e),
		Uncertain: []report.Uncertain{{Where: rule(bad, bad, 1), Match: bad, Why: bad}},
	}, report.Finding{
		Code: "Shadowed", Severity: report.Error, Subject: bad, Message: bad, Remedy: "kubectl " + bad + "   # " +
			bad, Evidence: []report.Evidence{
			{Where: rule(bad, bad, 1), Text: bad},
			{Text: bad},
		},
		Links: []string{"javascript:alert(4)", "https://example.org/?a=\"><script>"},
	})
	for i := range p {
		p[i].Origin.Pod = bad
		p[i].Steps = []report.Step{{Hook: bad, RuleRef: rule("nat", bad, 1), Text: bad, Verdict: bad, Share: 1}}
	}
	return p
}

// allowed are the elements that a page may hold: none that loads or sends anything, and of those that run only the
// page's own script.
var allowed = strings.Fields(`html head meta title style body header main footer section article div p span strong h1 h2 h3 h4 dl dt dd ul li br a code pre time
	table caption thead tbody tr th td details summary svg desc g rect text path script`)

// What must hold of every page: it is well-formed, holds no element but those that are known, loads nothing, and leaves
// out no finding.
func TestHTML(t *testing.T) {
	for name, r := range drawnReports() {
		t.Run(name, func(t *testing.T) {
			out := render(t, "html", r, view(80))
			ids := map[string]bool{}
			for _, tag := range tagsOf(t, out) {
				if !slices.Contains(allowed, tag.name) {
					t.Errorf("there is an element %s", tag.name)
				}
				for key, value := range tag.attrs {
					switch {
					case strings.HasPrefix(key, "on"), key == "src", key == "srcset",
						key == "xlink:href", key == "action", key == "background":
						t.Errorf("<%s> has %s=%q", tag.name, key, value)
					case key == "href" && tag.name != "a":
						t.Errorf("<%s> loads %q", tag.name, value)
					case key == "href" && !strings.HasPrefix(value, "#") && !strings.HasPrefix(value, "https://"):
						t.Errorf("a link leads to %q", value)
					case key == "style": // no policy would let it be
						t.Errorf("<%s> has style=%q", tag.name, value)
					case key == "id":
						if ids[value] {
							t.Errorf("two elements have the id %q", value)
						}
						ids[value] = true
					}
				}
			}
			for _, tag := range tagsOf(t, out) {
				for id := range strings.FieldsSeq(tag.attrs["aria-labelledby"]) {
					if !ids[id] {
						t.Errorf("aria-labelledby names %q, which is not there", id)
					}
				}
				if id, ok := strings.CutPrefix(tag.attrs["href"], "#"); ok && !ids[id] {
					t.Errorf("a link leads to #%s, which is not there", id)
				}
			}
			checkPolicy(t, out)
			words := textOf(t, out)
			for code := range codesOf(r) {
				if !strings.Contains(words, code) {
					t.Errorf("the finding %s is not in the page", code)
				}
			}
			verdict := strings.ToUpper(verdictText(r.Verdict))
			if !strings.Contains(words, verdict) {
				t.Errorf("the verdict %s is not in the page", verdict)
			}
			for i := range r.Nodes {
				if r.Nodes[i].Error != "" && len(r.Nodes) == 1 && !strings.Contains(words, plaintext.Clean(r.Nodes[i].Error)) {
					t.Error("why the node was not inspected is not in the page")
				}
			}
			if strings.ContainsAny(out, "\x1b\a") {
				t.Error("there are control characters in the page")
			}
		})
	}
}

// checkPolicy holds a page to its policy: one style sheet and one script, which are those whose hashes it names, and
// which load nothing.
func checkPolicy(t *testing.T, page string) {
	t.Helper()
	var policy string
	for _, tag := range tagsOf(t, page) {
		if tag.attrs["http-equiv"] == "Content-Security-Policy" {
			policy = tag.attrs["content"]
		}
	}
	for _, element := range []struct{ name, text string }{{"style", htmlStyle}, {"script", htmlScript}} {
		found := regexp.MustCompile(`(?s)<`+element.name+`[^>]*>(.*?)</`+element.name+`>`).FindAllStringSubmatch(page, -1)
		if len(found) != 1 || found[0][1] != element.text {
			t.Errorf("there are %d elements %s, and they should be the page's own", len(found), element.name)
			continue
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		hash := "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
		if !strings.Contains(policy, "; "+element.name+"-src '"+hash+"';") {
			t.Errorf("the policy %q does not name %s of the %s", policy, hash, element.name)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	for _, loads := range []string{"url(", "@import", "import(", "fetch(", "XMLHttpRequest", "innerHTML", "eval("} {
		if strings.Contains(htmlStyle+htmlScript, loads) {
			t.Errorf("style sheet or script has %q", loads)
		}
	}
}

// tag is an element's start, with its attributes.
type tag struct {
	name  string
	attrs map[string]string
}

// void are the elements that have no end.
var void = map[string]bool{"meta": true, "br": true}

// tagsOf reads a page and holds it to be well-formed: every element that begins ends, in the right order.
func tagsOf(t *testing.T, page string) []tag {
	t.Helper()
	var out []tag
	var open []string
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		kind := z.Next()
		tok := z.Token()
		switch kind {
		case html.ErrorToken:
			if !errors.Is(z.Err(), io.EOF) {
				t.Fatal(z.Err())
			}
			if len(open) > 0 {
				t.Errorf("never closed: %v", open)
			}
			return out
		case html.StartTagToken, html.SelfClosingTagToken:
			x := tag{tok.Data, map[string]string{}}
			for _, a := range tok.Attr {
				if _, twice := x.attrs[a.Key]; twice {
					t.Errorf("<%s> has %s twice", tok.Data, a.Key)
				}
				x.attrs[a.Key] = a.Val
			}
			out = append(out, x)
			if kind == html.StartTagToken && !void[tok.Data] {
				open = append(open, tok.Data)
			}
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != tok.Data {
				t.Fatalf("</%s> ends %v", tok.Data, open)
			}
			open = open[:len(open)-1]
		case html.TextToken, html.CommentToken, html.DoctypeToken:
		}
	}
}

// textOf is what a reader of the page sees.
func textOf(t *testing.T, page string) string {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "style" && n.Parent.Data != "script" {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

func codesOf(r *report.Report) map[string]bool {
	codes := map[string]bool{}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for k := range n.Findings {
			codes[n.Findings[k].Code] = true
		}
		for k := range n.Paths {
			for j := range n.Paths[k].Findings {
				codes[n.Paths[k].Findings[j].Code] = true
			}
		}
	}
	return codes
}

// Names and rule texts come from anybody; none becomes markup, and all are readable as they are.
func TestHTMLEscapes(t *testing.T) {
	out := render(t, "html", drawnReports()["hostile"], view(80))
	checkPolicy(t, out)
	if words := textOf(t, out); !strings.Contains(
		words, `<script>alert(1)</script>/"><img src=http://192.0.2.1/x onerror=alert(1)>`,
	) {
		t.Error("the Service's name cannot be read")
	}
	for _, tag := range tagsOf(t, out) {
		if tag.name == "img" || strings.Contains(tag.attrs["href"], "javascript") {
			t.Errorf("<%s %v>", tag.name, tag.attrs)
		}
	}
}

// 250 endpoints are folded, in the picture and in the table, and the page says how many there are; the one that differs
// is not folded away.
func TestHTMLFolds(t *testing.T) {
	r := drawnReports()["crowd-250"]
	out := render(t, "html", r, view(80))
	words := textOf(t, out)
	lost := endpointText(&r.Nodes[0].Paths[0].Expected.Endpoints[249])
	for _, want := range []string{"All 250 rows", "… and 249 more, all ok", lost, "more chains"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	for _, pic := range regexp.MustCompile(`(?s)<svg class="(?:wide|tall).*?</svg>`).FindAllString(out, -1) {
		if n := strings.Count(pic, "<rect"); n > 40 {
			t.Errorf("a picture has %d boxes", n)
		}
		if !strings.Contains(pic, lost) {
			t.Error("the endpoint that is missing is not in the picture")
		}
	}
	if len(out) > 1<<20 {
		t.Errorf("the page has %d bytes", len(out))
	}
}

// The chain at which a finding points is marked, in words beside the colour; nothing else in the picture is red.
func TestHTMLMarksTheBrokenStep(t *testing.T) {
	r := drawnReports()["crowd-250"]
	pic := regexp.MustCompile(`(?s)<svg class="wide.*?</svg>`).FindString(render(t, "html", r, view(80)))
	for _, want := range []string{
		`class="mono mark broken">  ✗ KUBE-SVC-XPGD46QRK7WJZT7O #2,3`, // the rules of the evidence alone
		"none, 0.4% expected",
		`class="mono mark off">✗ MISSING`,
	} {
		if !strings.Contains(pic, want) {
			t.Errorf("%q is not in the picture:\n%s", want, pic)
		}
	}
	red := 0
	for _, tag := range tagsOf(t, pic) {
		classes := strings.Fields(tag.attrs["class"])
		if !slices.Contains(classes, "broken") {
			continue
		}
		red++
		if !slices.Contains(classes, "ground") && !slices.Contains(classes, "mark") {
			t.Errorf("<%s %v> is red", tag.name, tag.attrs)
		}
	}
	if red == 0 {
		t.Error("nothing is red")
	}
}

// Where shares depend on load, no bar claims one.
func TestHTMLSharesByLoad(t *testing.T) {
	three := pods(3)
	r := trace(web, node("worker-2", report.Match, paths(clusterIP, report.Match, dnat(three), report.Actual{
		Outcomes: sent(three),
		Sharing:  "load",
	})...))
	out := render(t, "html", r, view(80))
	if !strings.Contains(textOf(t, out), "by load") || strings.Contains(out, `<svg class="bar"`) {
		t.Error("the shares are not shown as by load, or there are bars for them")
	}
}

// Bars are as long as the shares that they stand beside, of what the table's caption says.
func TestHTMLBars(t *testing.T) {
	for name, want := range map[string]struct {
		full string
		bars []string
	}{
		"observed":  {"100%", []string{"33.3", "35.0", "30.0"}}, // 1 of 3; 7 and 6 of 20 probes
		"crowd-250": {"0.5%", []string{"80.0", "80.3", "0.0"}},  // 1 of 250, 1 of 249, none
	} {
		out := render(t, "html", drawnReports()[name], view(80))
		if !strings.Contains(out, "A full bar is "+want.full+" of them") {
			t.Errorf("%s: no table says that a full bar is %s", name, want.full)
		}
		lengths := map[string]int{}
		for _, m := range regexp.MustCompile(`class="value" width="([0-9.]+)"`).FindAllStringSubmatch(out, -1) {
			lengths[m[1]]++
		}
		for _, bar := range want.bars {
			if lengths[bar] == 0 {
				t.Errorf("%s: no bar has %s: there are %v", name, bar, slices.Sorted(maps.Keys(lengths)))
			}
		}
	}
}

// The verdict, then findings with remedies, then tables and pictures: in that order a page is read aloud and printed.
func TestHTMLOrder(t *testing.T) {
	out := render(t, "html", drawnReports()["crowd-250"], view(80))
	at := -1
	for _, next := range []string{
		`<h1>`, `<p class="verdict`, `<p class="impact">`, `<h2>Findings</h2>`, `<dt>Why</dt>`, `<dt>Where</dt>`, `<dt>Fix</dt>`,
		`<h2>Node worker-1`, `<svg class="wide"`, `<table class="cards endpoints`, `<h2>Rule by rule</h2>`,
	} {
		k := strings.Index(out, next)
		if k <= at {
			t.Errorf("%s is at %d, and what stands before it at %d", next, k, at)
		}
		at = k
	}
}

// Of nodes read just now the page says when that was; of a snapshot it does not, so that the same input gives the same
// page.
func TestHTMLTime(t *testing.T) {
	v := view(80)
	if out := render(t, "html", reports()["good"], v); strings.Contains(out, "<time") ||
		out != render(t, "html", reports()["good"], v) {
		t.Error("a snapshot's page is not the same each time")
	}
	v.Now = time.Date(2026, 11, 20, 19, 40, 0, 0, time.UTC)
	if out := render(t, "html", reports()["good"], v); !strings.Contains(out, `<time datetime="2026-11-20T19:40:00Z">`) {
		t.Error("the page does not say when the nodes were read")
	}
}

// A drawing's boxes lie inside it and do not overlap.
func TestSVGLayout(t *testing.T) {
	for name, r := range drawnReports() {
		tx := &text{view: view(0), report: r}
		pics, _ := tx.pictures()
		for i := range pics {
			if p, ok := pics[i].(*picture.Picture); ok && p.Failure != "" {
				continue
			}
			for _, s := range []*picture.SVG{pics[i].Wide("a"), pics[i].Tall("b")} {
				for k, b := range s.Boxes {
					if b.X < 0 || b.Y < 0 || b.X+b.W > s.W || b.Y+b.H > s.H {
						t.Errorf("%s %s: %+v is outside of %d×%d", name, s.Class, b, s.W, s.H)
					}
					for _, c := range s.Boxes[:k] {
						if b.X < c.X+c.W && c.X < b.X+b.W && b.Y < c.Y+c.H && c.Y < b.Y+b.H {
							t.Errorf("%s %s: %q and %q overlap", name, s.Class, b.Full, c.Full)
						}
					}
				}
			}
		}
	}
}

// writePages writes every page into a directory, for a browser.
func writePages(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	for name, r := range drawnReports() {
		if err := os.WriteFile(dir+"/"+name+".html", []byte(render(t, "html", r, view(80))), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
