// SPDX-License-Identifier: Apache-2.0

// Command licenses checks that every module that is compiled into a program of ours, on any system, has a licence that
// we accept, and writes the texts that have to go with the programs.
//
//	licenses [-o FILE] PACKAGE...
//
// It is a module of its own, so that the licence scanner is no dependency of the product.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// accepted are the licences (by SPDX identifier) that ask for no more than that their text goes along. Whoever adds one
// has read it.
var accepted = map[string]bool{"Apache-2.0": true, "MIT": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "ISC": true}

// enough is how much of a file has to be text of licences that are known, in per cent. What remains are names, years
// and remarks.
const enough = 75

// systems are those that the programs are built for.
var systems = []string{"linux", "darwin", "windows"}

// module is one that is compiled in.
type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

func main() {
	output := flag.String("o", "", "write the licences' texts to this file")
	flag.Parse()
	if err := run(flag.Args(), *output, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(packages []string, output string, out io.Writer) error {
	if len(packages) == 0 {
		return errors.New("name the packages of the programs")
	}
	modules, err := modulesOf(packages)
	if err != nil {
		return err
	}
	var texts bytes.Buffer
	count := map[string]int{}
	var faults []error
	for _, m := range modules {
		files, names, err := licencesOf(m.Dir)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
			continue
		}
		count[strings.Join(names, " and ")]++
		for _, f := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(&texts, "=== %s %s: %s\n\n%s\n\n", m.Path, m.Version, f, bytes.TrimSpace(files[f]))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	for _, names := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(out, "%3d modules: %s\n", count[names], names)
	}
	if output == "" {
		return nil
	}
	return os.WriteFile(output, texts.Bytes(), 0o644)
}

// modulesOf returns the modules of what the packages import on any system, by path; Go itself, whose library is
// compiled in, is one.
func modulesOf(packages []string) ([]module, error) {
	all := map[string]module{}
	for _, goos := range systems {
		cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Module"}, packages...)...)
		cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list for %s: %w", goos, err)
		}
		for d := json.NewDecoder(bytes.NewReader(text)); ; {
			var pkg struct{ Module *module } // none: of Go itself
			if err := d.Decode(&pkg); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			m := pkg.Module
			if m == nil || m.Main {
				continue
			}
			if m.Replace != nil {
				m.Version, m.Dir = m.Replace.Version, m.Replace.Dir
			}
			all[m.Path] = *m
		}
	}
	text, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	words := strings.Fields(string(text))
	if len(words) != 2 {
		return nil, fmt.Errorf("go env printed %q", text)
	}
	all["std"] = module{Path: "std", Version: words[1], Dir: words[0]}
	var out []module
	for _, path := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[path])
	}
	return out, nil
}

// The files that hold a licence, and those that a licence (Apache-2.0, 4d) has go along with it.
var (
	licenceFile = regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying`)
	noticeFile  = regexp.MustCompile(`(?i)^notice|^patents`)
)

// licencesOf returns the texts that have to go with a module, by the names of their files, and the licences in them.
func licencesOf(dir string) (files map[string][]byte, names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	files = map[string][]byte{}
	for _, e := range entries {
		licence := licenceFile.MatchString(e.Name())
		if e.IsDir() || !licence && !noticeFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		files[e.Name()] = text
		if !licence {
			continue
		}
		found := licensecheck.Scan(text)
		if found.Percent < enough {
			return nil, nil, fmt.Errorf("%s: only %.0f %% of it are licences that are known: read it", e.Name(), found.Percent)
		}
		for _, m := range found.Match {
			if !accepted[m.ID] {
				return nil, nil, fmt.Errorf("%s: %s is not among the licences that we accept", e.Name(), m.ID)
			}
			if !slices.Contains(names, m.ID) {
				names = append(names, m.ID)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil, errors.New("there is no licence")
	}
	slices.Sort(names)
	return files, names, nil
}
