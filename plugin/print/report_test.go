// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it again); got:\n%s\nwant:\n%s", file, got, want)
	}
}

func render(t *testing.T, format string, r *report.Report, v View) string {
	t.Helper()
	p, err := NewPrinter(format, "", true)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Report(streamTo(&b), r, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// streamTo is a stream that is no terminal.
func streamTo(w io.Writer) *terminal.Stream {
	return terminal.NewStream(w, func(string) string { return "" })
}

func view(width int) View {
	return View{
		Style:     terminal.Style{Width: width},
		Namespace: "shop",
		Services:  60,
		Next:      report.Remedy{Text: "every rule that the packets meet: the same command with -o wide"},
	}
}

func TestGolden(t *testing.T) {
	for name, r := range reports() {
		for _, width := range []int{80, 160} {
			t.Run(fmt.Sprintf("%s at %d columns", name, width), func(t *testing.T) {
				golden(t, fmt.Sprintf("%s.%d", name, width), render(t, "table", r, view(width)))
			})
		}
	}
	for _, name := range []string{"good", "crowd-gone", "verify", "modes"} {
		golden(t, name+".wide", render(t, "wide", reports()[name], view(80)))
	}
	golden(t, "missing.pipe", render(t, "table", reports()["missing"], view(0)))
	colour := view(80)
	colour.Color = true
	golden(t, "missing.colour", render(t, "table", reports()["missing"], colour))
	golden(t, "missing.json", render(t, "json", reports()["missing"], view(0)))
	golden(t, "missing.yaml", render(t, "yaml", reports()["missing"], view(0)))
}

// What must hold of every table.
func TestTables(t *testing.T) {
	for name, r := range reports() {
		for _, width := range []int{0, 60, 80, 120, 160} {
			for _, format := range []string{"table", "wide"} {
				out := render(t, format, r, view(width))
				lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
				last := lines[len(lines)-1]
				for i := len(lines) - 1; strings.HasPrefix(last, "  "); i-- {
					last = lines[i-1] // which the lines above continue
				}
				verdict := strings.ToUpper(verdictText(r.Verdict))
				if !strings.HasPrefix(last, verdict+": ") {
					t.Errorf("%s %s: the last line is %q, want the verdict %s", name, format, last, verdict)
				}
				if strings.Contains(out, "\n\n\n") {
					t.Errorf("%s %s: two blank lines after one another", name, format)
				}
				for _, line := range lines {
					if strings.TrimRight(line, " ") != line {
						t.Errorf("%s %s at %d: trailing spaces in %q", name, format, width, line)
					}
					if strings.ContainsAny(line, "\x1b\a") {
						t.Errorf("%s %s: control characters in %q", name, format, line)
					}
					if (width == 0 || format == "wide") && strings.Contains(line, "…") && !strings.Contains(line, "… and") {
						t.Errorf("%s %s at %d: something is cut: %q", name, format, width, line)
					}
				}
				if format == "wide" && strings.Contains(out, "… and") {
					t.Errorf("%s: wide leaves something out", name)
				}
			}
		}
	}
}

// Nothing but commands and links may run over the edge, and no name or address is cut.
func TestWidth(t *testing.T) {
	cut := regexp.MustCompile(`[[:alnum:]]…|…[[:alnum:]]`)
	for name, r := range reports() {
		for _, width := range []int{60, 80, 100, 160} {
			for _, format := range []string{"table", "wide"} {
				for line := range strings.Lines(render(t, format, r, view(width))) {
					line = strings.TrimSuffix(line, "\n")
					if plaintext.Width(line) > width && !strings.Contains(line, "kubectl ") && !strings.Contains(line, "https://") {
						t.Errorf("%s: %d columns of %d: %q", name, plaintext.Width(line), width, line)
					}
					if cut.MatchString(line) {
						t.Errorf("%s at %d: a name is cut: %q", name, width, line)
					}
				}
			}
		}
	}
}

// The report printed as an object is the report, number for number.
func TestObject(t *testing.T) {
	for name, r := range reports() {
		var fromJSON, fromYAML report.Report
		out := render(t, "json", r, View{})
		if err := json.Unmarshal([]byte(out), &fromJSON); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(out, "{\n    \"apiVersion\": \"svcproxy.dev/v1alpha1\",\n    \"kind\": ") {
			t.Errorf("%s: begins with %.80q", name, out)
		}
		if err := yaml.Unmarshal([]byte(render(t, "yaml", r, View{})), &fromYAML); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, got := range []*report.Report{&fromJSON, &fromYAML} {
			if !reflect.DeepEqual(got, r) {
				t.Errorf("%s: the report read again is another one", name)
			}
		}
		o := &reportObject{r}
		if c := o.DeepCopyObject().(*reportObject); !reflect.DeepEqual(c.Report, r) || c.Report == r {
			t.Errorf("%s: the deep copy is not a copy", name)
		}
	}
}

func TestTemplates(t *testing.T) {
	r := reports()["missing"]
	for format, want := range map[string]string{
		"jsonpath={.verdict}":                                                     "Mismatch",
		"jsonpath={.nodes[*].paths[*].origin.kind}":                               "pod node",
		"jsonpath={.nodes[0].paths[0].expected.endpoints[0].share}":               "0.3333333333333333",
		"jsonpath={.summary.paths}{\"\\n\"}":                                      "2\n",
		"jsonpath={.nope}":                                                        "",
		"go-template={{.verdict}} {{(index .nodes 0).node}}":                      "Mismatch worker-2",
		"go-template={{range .nodes}}{{range .paths}}{{.verdict}};{{end}}{{end}}": "Mismatch;Mismatch;",
		"name": "node/worker-2\n",
	} {
		if got := render(t, format, r, View{}); got != want {
			t.Errorf("-o %s: got %q, want %q", format, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "template")
	if err := os.WriteFile(file, []byte("{.kind}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := render(t, "jsonpath-file="+file, r, View{}); got != "TraceReport" {
		t.Errorf("got %q", got)
	}
	p, err := NewPrinter("jsonpath", "{.kind}", true)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Report(streamTo(&b), r, View{}); err != nil || b.String() != "TraceReport" {
		t.Errorf("--template: got %q, %v", b.String(), err)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"good":         "",
		"bydesign":     "",
		"nodes":        "node/worker-1\nnode/worker-2\nnode/worker-3\n",
		"verify":       "service/shop/web\nnode/worker-2\nservice/shop/checkout\nnode/worker-3\n",
		"verify-right": "",
	} {
		if got := render(t, "name", reports()[name], View{}); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestNewPrinterErrors(t *testing.T) {
	for _, tt := range []struct{ format, template, want string }{
		{"jsn", "", `-o "jsn" is not an output format: it may be table, wide, json,`},
		{"custom-columns=A:.b", "", "is not an output format"},
		{"jsonpath", "", "-o jsonpath needs a template"},
		{"jsonpath=", "", "-o jsonpath needs a template"},
		{"go-template", "", "-o go-template needs a template"},
		{"jsonpath={.a", "", "-o jsonpath: parsing jsonpath"},
		{"go-template={{.a", "", "-o go-template: parsing template"},
		{"jsonpath-file=/does/not/exist", "", "no such file"},
		{"json=x", "", "-o json takes no template"},
		{"json", "{.a}", "--template goes with -o jsonpath"},
		{"jsonpath={.a}", "{.b}", "give one"},
	} {
		if _, err := NewPrinter(tt.format, tt.template, true); err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("-o %s: got %v, want one line with %q", tt.format, err, tt.want)
		}
	}
}

// A template that does not fit the report prints nothing, and one line of error.
func TestTemplateFails(t *testing.T) {
	for _, format := range []string{"jsonpath={.nope}", "go-template={{.nope.x}}"} {
		p, err := NewPrinter(format, "", false)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		err = p.Report(streamTo(&b), reports()["good"], View{})
		if err == nil || strings.Contains(err.Error(), "\n") || b.Len() > 0 {
			t.Errorf("-o %s: got %v and %q", format, err, b.String())
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteFails(t *testing.T) {
	for _, format := range []string{"table", "name", "json", "jsonpath={.kind}"} {
		p, err := NewPrinter(format, "", true)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Report(streamTo(failing{}), reports()["nodes"], View{}); err == nil {
			t.Errorf("-o %s: the error of the writer was lost", format)
		}
	}
}

func TestResolve(t *testing.T) {
	r := &Resolve{
		APIVersion: report.APIVersion, Kind: KindResolve, Service: *web,
		DNS: DNS{Name: "web.shop.svc.cluster.local", Records: []string{"A 10.96.21.191"}},
		Policy: Policy{
			Internal:                 "Cluster",
			External:                 "Local",
			AffinitySeconds:          10800,
			LoadBalancerSourceRanges: []string{"192.0.2.0/24"},
		},
		Node: "worker-2", Zone: "zone-b",
		Frontends: []report.Frontend{clusterIP, {Kind: "NodePort", Port: 30080, Protocol: "UDP"}},
	}
	for i, e := range pods(4) {
		r.Endpoints = append(r.Endpoints, ResolvedEndpoint{
			PortName: "http", Protocol: "TCP", Address: e.Address, Port: e.Port, Pod: e.Pod, Node: e.Node,
			Zone: "zone-a", Slices: []string{
				"web-a",
			},
			Ready: i < 2, Serving: i < 3, Terminating: i == 2, Used: i == 0,
			Why: []string{
				"ready",
				"ready, but meant for zone zone-b, and zone zone-a has its own",
				"terminating; others are ready",
				"not ready",
			}[i],
		})
	}
	for _, width := range []int{80, 160, 0} {
		p, err := NewPrinter("table", "", true)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := p.Resolve(streamTo(&b), r, view(width)); err != nil {
			t.Fatal(err)
		}
		golden(t, fmt.Sprintf("resolve.%d", width), b.String())
	}
	for format, want := range map[string]string{
		"name": "service/shop/web\n", "jsonpath={.endpoints[?(@.used==true)].address}": "10.244.1.4",
		"go-template={{.dns.name}}": "web.shop.svc.cluster.local",
	} {
		p, err := NewPrinter(format, "", true)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := p.Resolve(streamTo(&b), r, view(0)); err != nil || b.String() != want {
			t.Errorf("-o %s: got %q, %v; want %q", format, b.String(), err, want)
		}
	}
	if c := r.DeepCopyObject().(*Resolve); !reflect.DeepEqual(c, r) {
		t.Error("the deep copy is not a copy")
	}
}

// The evidence is kept before anything is changed: once, before the first remedy.
func TestEvidenceIsKeptFirst(t *testing.T) {
	v := view(100)
	const dump = "kubectl svcproxy dump --node worker-2 -o evidence.tar.gz"
	v.Keep = report.Remedy{Commands: []report.Command{{Line: dump}}}
	for _, name := range []string{"missing", "verify", "dropped"} {
		out := render(t, "table", reports()[name], v)
		keep, fix := strings.Index(out, "  keep   "+dump+"\n"), strings.Index(out, "  fix ")
		if keep < 0 || fix < keep || strings.Count(out, dump) != 1 {
			t.Errorf("%s:\n%s", name, out)
		}
	}
	if out := render(t, "table", reports()["good"], v); strings.Contains(out, dump) {
		t.Errorf("nothing is changed, and the evidence is kept:\n%s", out)
	}
}
