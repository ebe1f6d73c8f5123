// SPDX-License-Identifier: Apache-2.0

// Command reference writes the pages of docs/commands from the commands themselves, and removes what is no page any
// more:
//
//	reference DIR
package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/command"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: reference DIR")
	}
	dir := args[0]
	all, err := pages()
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if all[filepath.Base(name)] == "" {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		//nolint:gosec // they are read by everybody
		if err := os.WriteFile(filepath.Join(dir, name), []byte(all[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const seeAlso = "### SEE ALSO\n" // cobra's

const head = "<!-- Written by make docs from the commands themselves: change those. -->\n\n"

// pages returns the reference by file name: a page for each command. The kubectl flags that all take are on that of
// kubectl svcproxy alone.
func pages() (map[string]string, error) {
	root := command.New(genericiooptions.NewTestIOStreamsDiscard(), command.System{})
	cache := root.PersistentFlags().Lookup("cache-dir")
	if cache == nil {
		return nil, errors.New("there is no flag cache-dir")
	}
	cache.DefValue = "$HOME/.kube/cache" // not that of whoever asks
	root.DisableAutoGenTag = true        // it has the date
	all := map[string]string{}
	add := func(cmd *cobra.Command, change func(string) (string, error)) error {
		var b bytes.Buffer
		if err := doc.GenMarkdown(cmd, &b); err != nil {
			return err
		}
		text, err := change(b.String())
		if err != nil {
			return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
		}
		text = strings.ReplaceAll("\n"+strings.TrimSpace(text), "\n##", "\n#")
		all[file(cmd)] = head + strings.TrimSpace(text) + "\n"
		return nil
	}
	var commands []*cobra.Command
	for _, cmd := range root.Commands() {
		switch {
		case cmd.Name() == "options", cmd.Name() == "completion":
			cmd.Hidden = true // the one lists what is on the first page; the other has cobra's own help
		case cmd.IsAvailableCommand():
			commands = append(commands, cmd)
		}
	}
	if err := add(root, func(text string) (string, error) {
		return replace(text, "### Options\n", "### kubectl flags\n\nEvery command takes them.\n")
	}); err != nil {
		return nil, err
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	for _, cmd := range commands {
		if f := cmd.Flags().Lookup("image"); f != nil {
			// It names the version that was built.
			f.Usage, _, _ = strings.Cut(f.Usage, " (default ")
			f.Usage += " (default: that of the plugin's version)"
		}
		if err := add(cmd, func(text string) (string, error) {
			return replace(text, seeAlso, "The flags that every command takes are [on the page of "+root.CommandPath()+
				"]("+file(root)+"#kubectl-flags).\n\n"+seeAlso)
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// file is the name of a command's page, as cobra links to it.
func file(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "_") + ".md" }

// replace replaces what has to be there once.
func replace(text, from, to string) (string, error) {
	if n := strings.Count(text, from); n != 1 {
		return "", fmt.Errorf("%q is there %d times", from, n)
	}
	return strings.Replace(text, from, to, 1), nil
}
