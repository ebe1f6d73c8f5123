// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// Set at release by -ldflags "-X github.com/svcproxy/kubectl-svcproxy/plugin/command.version=v1.2.3 -X ….commit=…".
var version, commit string

// buildInfo is what the binary knows of itself.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with changes that are not in Commit
	Go       string `json:"goVersion"`
	Platform string `json:"platform"`
	Image    string `json:"helperImage"` // that is launched on nodes, unless --image says otherwise
}

func newVersionCommand(env *environment) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:                   "version",
		Short:                 "Print the version",
		Example:               "  kubectl svcproxy version -o json",
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return run.Usagef("version takes no argument, and got %s", run.Shorten(args))
			}
			return printVersion(env, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: json, yaml; a line of text without it")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, noFiles))
	return cmd
}

func printVersion(env *environment, output string) error {
	b := readBuildInfo()
	b.Image = launch.DefaultImage(b.Version)
	switch output {
	case "":
		text := "kubectl-svcproxy " + b.Version
		if b.Commit != "" {
			text += " (" + b.Commit
			if b.Modified {
				text += ", modified"
			}
			text += ")"
		}
		return env.out.Document([]byte(text + ", " + b.Go + ", " + b.Platform + "\n"))
	case "json", "yaml":
		data, err := json.MarshalIndent(b, "", "    ")
		if err != nil {
			return err
		}
		if output == "yaml" {
			return env.out.YAML(data)
		}
		return env.out.JSON(append(data, '\n'))
	}
	return run.Usagef("-o %q is not an output format of version: it may be json or yaml", output)
}

// readBuildInfo takes what the release set, else what the Go toolchain wrote into the binary.
func readBuildInfo() buildInfo {
	b := buildInfo{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	if !ok || b.Commit != "" {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
