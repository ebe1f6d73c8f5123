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
	printer     *report.Printer
}

func (o *printOptions) addFlags(cmd *cobra.Command, names string) {
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "Output format: "+strings.Join(report.Formats, ", ")+". wide cuts nothing; name prints "+names)
	f.StringVar(&o.template, "template", "", "Template, or path to it, for -o jsonpath, jsonpath-file, go-template or go-template-file")
	_ = cmd.RegisterFlagCompletionFunc("template", completeFiles)
	f.BoolVar(&o.missingKeys, "allow-missing-template-keys", true, "Ignore fields that a template names and the report does not have")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{"table", "wide", "json", "yaml", "name", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file="},
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

func (o *printOptions) complete() (err error) {
	if o.printer, err = report.NewPrinter(o.output, o.template, o.missingKeys); err != nil {
		return usagef("%w", err)
	}
	return nil
}
