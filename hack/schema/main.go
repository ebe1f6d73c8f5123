// SPDX-License-Identifier: Apache-2.0

// Command schema writes the JSON Schemas of reports, of diffs and of what status prints from their types in
// trace/report, with the comments there as descriptions:
//
//	schema PACKAGEDIR REPORTFILE DIFFFILE STATUSFILE
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1+len(documents) {
		return errors.New("usage: schema PACKAGEDIR REPORTFILE DIFFFILE STATUSFILE")
	}
	for i, of := range documents {
		out, err := schema(args[0], of)
		if err != nil {
			return err
		}
		if err := os.WriteFile(args[1+i], out, 0o644); err != nil { //nolint:gosec // it is read by everybody
			return err
		}
	}
	return nil
}

// document is what a schema is of.
type document struct {
	title string
	of    reflect.Type
	kinds []any
}

var documents = []document{
	{
		"Reports", reflect.TypeFor[report.Report](),
		[]any{report.KindTrace, report.KindVerify, report.KindMode},
	},
	{"Diffs", reflect.TypeFor[report.Diff](), []any{report.KindDiff}},
	{"Status reports", reflect.TypeFor[report.StatusReport](), []any{report.KindStatus}},
}

// values are those that a type of strings may have.
var values = map[reflect.Type][]any{
	reflect.TypeFor[report.Verdict]():  {report.Match, report.Mismatch, report.ByDesign, report.Warning, report.Unknown},
	reflect.TypeFor[report.Severity](): {report.Error, report.Warn, report.Info},
	reflect.TypeFor[report.Status](): {
		report.StatusOK, report.StatusByDesign, report.StatusUnknown, report.StatusUneven, report.StatusMissing,
		report.StatusStale, report.StatusDropped, report.StatusRejected, report.StatusNoRoute, report.StatusNotTranslated,
		report.StatusWrong, report.StatusSuspect,
	},
	reflect.TypeFor[report.Result](): {
		report.ResultNotAnswered, report.ResultRefused, report.ResultTimedOut, report.ResultNoRoute, report.ResultFailed,
		report.ResultSilent, report.ResultUnacknowledged, report.ResultClosed, report.ResultOtherServer,
	},
}

// object is an object of a schema: JSON writes its keys in order of the alphabet.
type object = map[string]any

// schema returns the schema; dir has the source of the types.
func schema(dir string, d document) ([]byte, error) {
	comments, err := commentsOf(dir)
	if err != nil {
		return nil, err
	}
	w := &writer{comments: comments, definitions: object{}}
	w.of(d.of)
	root := w.definitions[d.of.Name()].(object)
	properties := root["properties"].(object)
	properties["apiVersion"] = object{"const": report.APIVersion}
	properties["kind"] = object{"enum": d.kinds}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   d.title + " of kubectl svcproxy, " + report.APIVersion,
		"$ref":    "#/$defs/" + d.of.Name(),
		"$defs":   w.definitions,
	})
	return b.Bytes(), err
}

// writer makes a definition of each struct.
type writer struct {
	comments    map[string]string // by TYPE and TYPE.FIELD
	definitions object
}

// of returns the schema of a type.
func (w *writer) of(t reflect.Type) object {
	if v, ok := values[t]; ok {
		return object{"enum": v}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.of(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": w.of(t.Elem())}
	case reflect.Struct:
		if w.definitions[t.Name()] == nil {
			d := object{"type": "object", "additionalProperties": false}
			w.definitions[t.Name()] = d
			properties, required := object{}, []string{}
			w.fields(t, properties, &required)
			d["properties"], d["required"] = properties, required
			if text := w.comments[t.Name()]; text != "" {
				d["description"] = text
			}
		}
		return object{"$ref": "#/$defs/" + t.Name()}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	panic("the report has a type without a schema: " + t.String())
}

// fields adds the fields of a struct, and of those that it embeds.
func (w *writer) fields(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		if f.Anonymous {
			w.fields(f.Type, properties, required)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		p := w.of(f.Type)
		if text := w.comments[t.Name()+"."+f.Name]; text != "" {
			p["description"] = text
		}
		properties[name] = p
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}

// commentsOf reads the comments of the types of a package, and of their fields.
func commentsOf(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s has no source of Go", dir)
	}
	out := map[string]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				s, ok := t.Type.(*ast.StructType)
				if !ok {
					continue
				}
				out[t.Name.Name] = text(g.Doc)
				for _, field := range s.Fields.List {
					for _, id := range field.Names {
						out[t.Name.Name+"."+id.Name] = strings.TrimSpace(text(field.Doc) + " " + text(field.Comment))
					}
				}
			}
		}
	}
	return out, nil
}

// text is a comment in one line.
func text(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
