// SPDX-License-Identifier: Apache-2.0

// Command image builds the images of kubectl svcproxy without a container engine: it takes Debian's packages for each
// architecture, keeps the programs asked for with what they load, adds static binaries, and writes an OCI archive that
// docker load, ctr images import, podman load and skopeo take. The same inputs make the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// options are the command line.
type options struct {
	output, tag   string
	archs         []string
	packages      []string // of Debian
	keep          []string // patterns of their files, beside which what these load is kept
	add           []string // FILE:PATH, where FILE may hold {arch}; a program, but below /usr/share/doc
	entrypoint    string
	cache, source string
	push          bool
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var o options
	var archs, packages, keep, add string
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.StringVar(&o.output, "o", "", "archive to write")
	f.StringVar(&o.tag, "t", "", "name of the image, with its tag")
	f.StringVar(&archs, "arch", "amd64,arm64", "architectures, as Go names them")
	f.StringVar(&packages, "packages", "", "Debian packages to take files from")
	f.StringVar(&keep, "keep", "",
		"files of the packages to keep; * stands for anything but /, {lib} for the architecture's library folder")
	f.StringVar(&add, "add", "",
		"static binaries to add, and below /usr/share/doc texts, as FILE:PATH; {arch} in FILE is the architecture")
	f.StringVar(&o.entrypoint, "entrypoint", "", "program to run")
	f.StringVar(&o.cache, "cache", "", "folder for Debian's packages (default: a folder of the user's cache)")
	f.StringVar(&o.source, "source", "", "page that says where the image comes from, for its label")
	f.BoolVar(&o.push, "push", false,
		"also push the image to the registry that its name begins with; docker login's credentials are used")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.archs, o.packages, o.keep, o.add = words(archs), words(packages), words(keep), words(add)
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("%q is one argument too many", f.Arg(0))
	case o.output == "" || o.tag == "" || len(o.archs) == 0:
		return fmt.Errorf("-o, -t and -arch are needed")
	}
	if o.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		o.cache = filepath.Join(dir, "kubectl-svcproxy", "debs")
	}
	return build(o)
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}
