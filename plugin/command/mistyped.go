// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// flagError is the error of a flag that cannot be parsed. Where the command itself is mistyped, that is what is said:
// the main command does not have the flags of the others.
func flagError(c *cobra.Command, args []string, err error) error {
	if word := firstWord(c.Root(), args); c == c.Root() && word != "" {
		if wrong := noSuchCommand(c, []string{word}); wrong != nil {
			return wrong
		}
	}
	see := fmt.Sprintf(" (see %s --help)", c.CommandPath())
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		flag := missing.GetSpecifiedName()
		if why := withoutSnapshot[c.Name()]; flag == "snapshot" && why != "" {
			return run.Usagef("%w: %s%s", err, why, see)
		}
		return run.Usagef("%w%s%s", err, meantFlag(c, flag), see)
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if expected := values[invalid.GetFlag().Value.Type()]; expected != "" {
			return run.Usagef("--%s %q: %s was expected%s", invalid.GetFlag().Name, invalid.GetValue(), expected, see)
		}
	}
	return run.Usagef("%w%s", err, see)
}

// withoutSnapshot says of commands without --snapshot, of which one would expect it, why they have none.
var withoutSnapshot = map[string]string{
	"diff":    "its two snapshots are arguments: " + name + " diff BEFORE AFTER",
	"program": "program changes the rules of a node of a cluster",
	"status":  "status reads a cluster, where agents publish what they find",
}

// values says what flags of a type take.
var values = map[string]string{
	"int": "a whole number", "Level": "a whole number", "duration": "a duration, such as 30s, 5m or 1h,",
	"bool": "true or false",
}

// firstWord is the first argument that is not a flag, nor the value of one as far as the main command knows it.
func firstWord(root *cobra.Command, args []string) string {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return ""
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			return arg
		}
		if strings.Contains(arg, "=") {
			continue
		}
		flag := root.PersistentFlags().Lookup(strings.TrimLeft(arg, "-"))
		if flag == nil && len(arg) == 2 {
			flag = root.PersistentFlags().ShorthandLookup(arg[1:])
		}
		if flag != nil && flag.NoOptDefVal == "" {
			i++
		}
	}
	return ""
}

// oneDash returns an error for -node in place of --node, which would be taken for -n with the value "ode".
func oneDash(root *cobra.Command, args []string) error {
	c, _, err := root.Find(args)
	if err != nil {
		return nil //nolint:nilerr // the command will say so
	}
	c.InheritedFlags() // adds them to Flags
	c.InitDefaultHelpFlag()
	for i, arg := range args {
		if arg == "--" {
			return nil
		}
		word, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "--") || !strings.HasPrefix(arg, "-") || len(word) < 3 || i > 0 && takesNext(c, args[i-1]) {
			continue
		}
		if f := c.Flags().Lookup(word); f != nil && !f.Hidden {
			return run.Usagef("-%s is not a flag: did you mean --%s?", word, word)
		}
	}
	return nil
}

// flagForValue returns an error for a flag whose value was left out: the next flag would be taken for it, and the word
// behind that one for an argument.
func flagForValue(root *cobra.Command, args []string) error {
	c, _, err := root.Find(args)
	if err != nil {
		return nil //nolint:nilerr // the command will say so
	}
	c.InheritedFlags() // adds them to Flags
	for i := 0; i+1 < len(args); i++ {
		if args[i] == "--" {
			return nil
		}
		if !takesNext(c, args[i]) {
			continue
		}
		i++
		word, _, _ := strings.Cut(args[i], "=")
		known := strings.HasPrefix(word, "--") && c.Flags().Lookup(word[2:]) != nil
		if len(word) == 2 && word[0] == '-' {
			known = c.Flags().ShorthandLookup(word[1:]) != nil
		}
		if known {
			return run.Usagef("%s needs a value, and %s behind it is a flag (see %s --help)", args[i-1], word, c.CommandPath())
		}
	}
	return nil
}

// takesNext tells whether a word is a flag whose value is the next one.
func takesNext(c *cobra.Command, word string) bool {
	var f *pflag.Flag
	switch {
	case strings.HasPrefix(word, "--"):
		f = c.Flags().Lookup(word[2:])
	case len(word) == 2 && word[0] == '-':
		f = c.Flags().ShorthandLookup(word[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}

// oneService checks that a command got one Service, and returns it. several says what takes more than one.
func oneService(command string, args []string, several string) (string, error) {
	switch args = joinKind(args); {
	case len(args) == 0:
		return "", run.Usagef("%s needs a Service: %s %s SERVICE[:PORT] (see %s %s --help)", command, name, command, name,
			command)
	case len(args) == 1:
		return args[0], nil
	case slices.Contains(args, "help"):
		return "", run.Usagef("%s takes one Service: for help give %s %s --help", command, name, command)
	}
	return "", run.Usagef("%s takes one Service, and %d were given (%s)%s%s", command, len(args), run.Shorten(args),
		several, meantPair(args))
}

// verifySeveral says which command takes several Services.
const verifySeveral = ": for several use " + name + " verify"

// meantPair says what two arguments may have meant: a Service and a port, a namespace and a Service.
func meantPair(args []string) string {
	if len(args) != 2 {
		return ""
	}
	if n, err := strconv.Atoi(args[1]); err == nil && n > 0 {
		return fmt.Sprintf("; port %d of it is %s:%d", n, args[0], n)
	}
	if !isLabel(args[0]) || !isLabel(args[1]) {
		return ""
	}
	return "; Service " + args[1] + " in namespace " + args[0] + " is " + args[0] + "/" + args[1]
}
