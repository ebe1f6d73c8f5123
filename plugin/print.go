// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
)

// printOptions are the flags of the output.
type printOptions struct {
	output      string
	template    string
	missingKeys bool
	kind        string // of the report; set before addFlags
	printer     *print.Printer
}

func (o *printOptions) addFlags(cmd *cobra.Command, names string) {
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "Output format: "+strings.Join(print.FormatsOf(o.kind), ", ")+". wide cuts nothing; name prints "+names+o.drawn())
	f.StringVar(&o.template, "template", "", "Template, or path to it, for -o jsonpath, jsonpath-file, go-template or go-template-file")
	_ = cmd.RegisterFlagCompletionFunc("template", completeFiles)
	f.BoolVar(&o.missingKeys, "allow-missing-template-keys", true, "Ignore fields that a template names and the report does not have")
	values := print.FormatsOf(o.kind)
	for i, format := range values {
		values[i] = strings.TrimSuffix(format, "…")
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values,
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// drawn explains the formats that not every command has.
func (o *printOptions) drawn() string {
	all := print.FormatsOf(o.kind)
	switch {
	case slices.Contains(all, "dot"):
		return "; html is one page with pictures, which mermaid and dot print as text"
	case slices.Contains(all, "html"):
		return "; html is one page"
	}
	return ""
}

func (o *printOptions) complete() (err error) {
	if o.printer, err = print.NewPrinter(o.output, o.template, o.missingKeys); err != nil {
		return usagef("%w", err)
	}
	if err := o.printer.For(o.kind); err != nil {
		return usagef("%w", err)
	}
	return nil
}
