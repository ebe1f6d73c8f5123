// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/report"
)

// printOptions are the flags of the output.
type printOptions struct {
	output      string
	template    string
	missingKeys bool
	kind        string // of the report; set before addFlags
	printer     *report.Printer
}

func (o *printOptions) addFlags(cmd *cobra.Command, names string) {
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "Output format: "+strings.Join(report.FormatsOf(o.kind), ", ")+". wide cuts nothing; name prints "+names)
	f.StringVar(&o.template, "template", "", "Template, or path to it, for -o jsonpath, jsonpath-file, go-template or go-template-file")
	f.BoolVar(&o.missingKeys, "allow-missing-template-keys", true, "Ignore fields that a template names and the report does not have")
	var values []string
	for _, format := range report.FormatsOf(o.kind) {
		values = append(values, strings.TrimSuffix(format, "…"))
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values,
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

func (o *printOptions) complete() (err error) {
	if o.printer, err = report.NewPrinter(o.output, o.template, o.missingKeys); err != nil {
		return usagef("%w", err)
	}
	if err := o.printer.For(o.kind); err != nil {
		return usagef("%w", err)
	}
	return nil
}
