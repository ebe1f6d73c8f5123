// SPDX-License-Identifier: Apache-2.0

// Command schema writes the JSON Schemas of reports, of diffs and of what status prints from their types in
// trace/report, with the comments there as descriptions. It is run in its own folder:
//
//	schema REPORTFILE DIFFFILE STATUSFILE
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != len(documents) {
		return errors.New("usage: schema REPORTFILE DIFFFILE STATUSFILE")
	}
	for i, of := range documents {
		out, err := schema(of)
		if err != nil {
			return err
		}
		if err := os.WriteFile(args[i], out, 0o644); err != nil { //nolint:gosec // it is read by everybody
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

// schema returns the schema of a document.
func schema(d document) ([]byte, error) {
	r := jsonschema.Reflector{
		Anonymous: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if v, ok := values[t]; ok {
				return &jsonschema.Schema{Enum: v}
			}
			return nil
		},
	}
	// The path from here to the package is also that from this module's path to the package's.
	err := r.AddGoComments("github.com/svcproxy/kubectl-svcproxy/hack/schema", "../../trace/report",
		jsonschema.WithFullComment())
	if err != nil {
		return nil, err
	}
	for of, text := range r.CommentMap {
		r.CommentMap[of] = strings.Join(strings.Fields(text), " ")
	}
	s := r.ReflectFromType(d.of)
	s.Title = d.title + " of kubectl svcproxy, " + report.APIVersion
	root := s.Definitions[d.of.Name()].Properties
	root.Set("apiVersion", &jsonschema.Schema{Const: report.APIVersion})
	root.Set("kind", &jsonschema.Schema{Enum: d.kinds})
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(s)
	return b.Bytes(), err
}
