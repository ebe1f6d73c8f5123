// SPDX-License-Identifier: Apache-2.0

// Package print prints reports: as tables, pages and pictures for people, and as json, yaml, name, jsonpath and
// go-template for programs. Everything printed comes from the one object that the commands make; the printers decide
// nothing.
package print

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Formats are the values that -o takes.
var Formats = []string{
	"table", "wide", "json", "yaml", "name", "jsonpath=…", "jsonpath-file=…",
	"go-template=…", "go-template-file=…",
}

// drawn are the formats that not every kind of report has, with those that have it.
var drawn = []drawnFormat{
	{"html", []string{report.KindTrace, report.KindVerify, report.KindMode}},
	{"markdown", []string{report.KindTrace, report.KindVerify, report.KindMode}},
	{"mermaid", []string{report.KindTrace, report.KindVerify}},
}

type drawnFormat struct {
	format string
	kinds  []string
}

// FormatsOf are the values that -o takes for a kind of report.
func FormatsOf(kind string) []string {
	out := slices.Clone(Formats)
	for _, d := range drawn {
		if slices.Contains(d.kinds, kind) {
			out = append(out, d.format)
		}
	}
	return out
}

// Printer prints in one format.
type Printer struct {
	format string
	object printers.ResourcePrinter // for the formats that print the object as it is
	// encoding is of the formats of object json or yaml, which have escapes; "" for text.
	encoding string

	// Color says whether a terminal gets colours: auto, always or never.
	Color string
	// NoHeaders prints only the rows of tables, the same at every width: for programs.
	NoHeaders bool
}

// Colors are the values of Printer.Color.
var Colors = []string{"auto", ColorAlways, "never"}

// ColorAlways prints colours wherever the output goes.
const ColorAlways = "always"

// For says, as an error, that a kind of report cannot be printed in the printer's format.
func (p *Printer) For(kind string) error {
	for _, d := range drawn {
		if p.format == d.format && !slices.Contains(d.kinds, kind) {
			return fmt.Errorf(
				"-o %s is not an output format of this command: it may be %s",
				p.format,
				strings.Join(FormatsOf(kind), ", "),
			)
		}
	}
	return nil
}

// View is what the printing depends on besides the report.
type View struct {
	terminal.Style
	// Next says what to do next; with a command its text is a few words.
	Next report.Remedy
	// Keep is how to keep the evidence before something is changed; zero where it is kept.
	Keep report.Remedy
	// Explain is the command that explains the worst finding; "" where there is none.
	Explain string
	// Age is how old a snapshot is, in a few words; "" where that is not known.
	Age string
	// Services is how many Services were looked at (verify).
	Services int
	// Scope says which Services those were, in words ("in namespace shop").
	Scope string
	// Elsewhere is how many Services of other namespaces were not looked at (verify).
	Elsewhere int
	// All also lists what is right (verify --show-all).
	All bool
	// Now is when the nodes were read, if that was just now; zero for a snapshot.
	Now time.Time
	// Namespace is the one that names may be printed without.
	Namespace string
}

// NewPrinter makes the printer for -o. template is that of --template, where a template is not part of the format.
func NewPrinter(format, template string, allowMissingKeys bool) (*Printer, error) {
	p := &Printer{format: format}
	kind, inline, _ := strings.Cut(format, "=")
	switch kind {
	case "", "table":
		p.format = "table"
	case "wide", "name", "html", "markdown", "mermaid":
	case "json":
		p.object, p.encoding = &printers.JSONPrinter{}, kind
	case "yaml":
		p.object, p.encoding = &printers.JSONPrinter{}, kind // plugin/terminal makes YAML of it
	case "jsonpath", "jsonpath-file", "jsonpath-as-json", "go-template", "go-template-file", "template", "templatefile":
		if inline == "" && template == "" {
			return nil, fmt.Errorf("-o %s needs a template: -o %s=TEMPLATE", kind, kind)
		}
		if inline != "" && template != "" {
			return nil, fmt.Errorf("-o %s=… and --template both give a template: give one", kind)
		}
		var err error
		if strings.HasSuffix(kind, "file") { // the error of what reads it names a flag that may not have been given
			given := "-o " + format
			if inline == "" {
				given = "--template " + template
			}
			if _, err := os.ReadFile(cmp.Or(inline, template)); err != nil {
				return nil, fmt.Errorf("%s: the template cannot be read: %w", given, err)
			}
		}
		if p.object, err = templatePrinter(kind, format, template, allowMissingKeys); err != nil {
			return nil, fmt.Errorf("-o %s: %w", kind, oneLine(err))
		}
		if kind == "jsonpath-as-json" {
			p.encoding = "json"
		}
		return p, nil
	default:
		return nil, fmt.Errorf(
			"-o %q is not an output format: it may be %s%s",
			format,
			strings.Join(FormatsOf(report.KindTrace), ", "),
			meantFormat(format),
		)
	}
	if inline != "" || strings.HasSuffix(format, "=") {
		return nil, fmt.Errorf("-o %s takes no template", kind)
	}
	if template != "" {
		return nil, fmt.Errorf("--template goes with -o jsonpath or -o go-template")
	}
	return p, nil
}

// otherFormats are words that people have for formats.
var otherFormats = map[string]string{
	"yml": "yaml", "md": "markdown", "text": "table", "txt": "table", "htm": "html", "svg": "html", "png": "html",
	"pdf": "html", "graphviz": "mermaid", "custom-columns": "jsonpath=…", "template": "go-template=…", "long": "wide",
	"names": "name", "picture": "html", "mmd": "mermaid", "graph": "mermaid", "diagram": "mermaid",
	"chart": "mermaid", "flowchart": "mermaid", "gv": "mermaid", "dot": "mermaid", "image": "html",
	"page": "html", "browser": "html", "web": "html", "full": "wide", "all": "wide", "verbose": "wide",
	"plain": "table", "human": "table",
	"default": "table", "console": "table", "tsv": "jsonpath=…", "csv": "jsonpath=…", "jq": "jsonpath=…",
	"custom-columns-file": "jsonpath-file=…", "object": "json", "jsonl": "json", "ndjson": "json",
	"gotemplate": "go-template=…", "ticket": "markdown",
}

// meantFormat says which format may have been meant; "" where that cannot be said.
func meantFormat(format string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(strings.ToLower(format)), "=")
	if strings.ContainsAny(word, ", ") {
		return "; it is one of them: run the command once for each"
	}
	if meant := otherFormats[word]; meant != "" {
		return "; did you mean " + meant + "?"
	}
	if slices.Contains(FormatsOf(report.KindTrace), word) {
		return "; did you mean " + word + "?"
	}
	if i := strings.LastIndexByte(word, '.'); i >= 0 {
		end := word[i+1:]
		if meant := cmp.Or(otherFormats[end], end); slices.Contains(FormatsOf(report.KindTrace), meant) {
			return "; the report goes to standard output: -o " + meant + " > " + format
		}
	}
	for _, f := range FormatsOf(report.KindTrace) {
		if near(word, strings.TrimSuffix(f, "=…")) {
			return "; did you mean " + f + "?"
		}
	}
	return ""
}

// near tells whether a word may be a slip for a format: one letter too many, too few or another one, the beginning of
// the one in the other, or the same letters in another order.
func near(word, format string) bool {
	short := min(len(word), len(format))
	switch {
	case short < 3:
		return false
	case strings.HasPrefix(word, format) || strings.HasPrefix(format, word):
		return true
	case len(word) == len(format) && sameLetters(word, format):
		return true
	}
	same := 0 // letters at the beginning and at the end
	for same < short && word[same] == format[same] {
		same++
	}
	for end := 1; same < short && word[len(word)-end] == format[len(format)-end]; end++ {
		same++
	}
	return max(len(word), len(format))-same <= 1
}

// sameLetters tells whether two words have the same letters, in whatever order.
func sameLetters(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return bytes.Equal(x, y)
}

func templatePrinter(kind, format, template string, allowMissingKeys bool) (printers.ResourcePrinter, error) {
	if template != "" {
		format = kind
	}
	if strings.HasPrefix(kind, "jsonpath") {
		f := genericclioptions.NewJSONPathPrintFlags(template, allowMissingKeys)
		return f.ToPrinter(format)
	}
	f := genericclioptions.NewGoTemplatePrintFlags()
	f.TemplateArgument, f.AllowMissingKeys = &template, &allowMissingKeys
	return f.ToPrinter(format)
}

// ForPeople tells whether a table is printed.
func (p *Printer) ForPeople() bool { return p.format == "table" || p.format == "wide" }

// Wide tells whether everything is shown, and nothing is cut.
func (p *Printer) Wide() bool { return p.format == "wide" }

// Steps tells whether the rules that the packets meet are printed.
func (p *Printer) Steps() bool { return p.Wide() || p.Whole() || p.Draws() }

// Draws tells whether paths are printed as pictures.
func (p *Printer) Draws() bool {
	if p.format == "markdown" {
		return false
	}
	return slices.ContainsFunc(drawn, func(d drawnFormat) bool { return d.format == p.format })
}

// Whole tells whether the report is printed as an object, with all its fields.
func (p *Printer) Whole() bool { return p.object != nil }

// Report prints a TraceReport or VerifyReport.
func (p *Printer) Report(out *terminal.Stream, r *report.Report, v View) error {
	if p.format == "json" {
		return writeJSON(r, out.JSON)
	}
	if p.object != nil {
		return p.Object(out, &reportObject{Report: r})
	}
	t := p.newText(v, r)
	var b bytes.Buffer
	switch p.format {
	case "name":
		t.names()
		return out.Text(t.Text)
	case "html":
		if err := t.html(&b); err != nil {
			return err
		}
	case "markdown":
		t.markdown(&b)
	case "mermaid":
		pictures, more := t.pictures()
		picture.Mermaid(&b, pictures, more)
	default:
		t.print()
		return out.Text(t.Text)
	}
	return out.Document(b.Bytes())
}

// Object prints an object that has a kind of its own. Nothing is printed when the template does not fit it.
func (p *Printer) Object(out *terminal.Stream, o runtime.Object) error {
	var b bytes.Buffer
	if p.encoding == "" {
		clean, err := cleanObject(o)
		if err != nil {
			return err
		}
		o = clean
	}
	if err := p.object.PrintObj(o, &b); err != nil {
		return oneLine(err)
	}
	switch p.encoding {
	case "json":
		return out.JSON(b.Bytes())
	case "yaml":
		return out.YAML(b.Bytes())
	}
	return out.Document(b.Bytes())
}

// oneLine keeps the first line of an error: cli-runtime's template errors go on with a dump of the object.
func oneLine(err error) error {
	line, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "error "), "\n")
	line = strings.Replace(line, "Error executing template: ", "", 1)
	return errors.New(strings.TrimSuffix(line, ". Printing more information for debugging the template:"))
}

// names lists what is not right, as kubectl's -o name does: nodes for trace and mode, Services for verify. What
// is wrong with a node as a whole, or keeps it from being inspected, is listed as the node.
func (t *text) names() {
	r := t.report
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if r.Kind != report.KindVerify || n.Error != "" {
			if n.Verdict.NeedsAttention() {
				add("node/" + n.Node)
			}
			continue
		}
		for _, f := range n.Findings {
			if f.Severity != report.Info {
				add("node/" + n.Node)
			}
		}
		for k := range n.Paths {
			if p := &n.Paths[k]; p.Verdict.NeedsAttention() && p.Service != nil {
				add("service/" + p.Service.Namespace + "/" + p.Service.Name)
			}
		}
	}
	for _, name := range names {
		t.Linef("%s", name)
	}
}
