// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// triplets are Debian's names of the folder of libraries, by Go's name of the architecture. Debian calls both as Go
// does.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// tree is a file system: entries by their clean path without a slash at the front.
type tree map[string]*entry

type entry struct {
	data []byte
	link string // target of a symbolic link
	mode int64
	from *deb // nil: of no package
}

// deb is a package.
type deb struct {
	file          string
	name, version string
	// package of the sources, and its version, which is another one where Debian built the same sources once more
	source        string
	sourceVersion string
}

// baseFiles is the package that has the texts of the licences that others only name.
const baseFiles = "base-files"

// fetch downloads packages and all that they depend on, verified by apt, and returns the files. Of others that were
// downloaded some other time, such as older versions, it returns none.
func fetch(cache, arch string, packages []string) ([]string, error) {
	dir := filepath.Join(cache, arch)
	archives := filepath.Join(dir, "archives")
	for _, d := range []string{filepath.Join(archives, "partial"), filepath.Join(dir, "lists", "partial")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	status := filepath.Join(dir, "status") // an empty system: nothing is installed, so everything is downloaded
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	options := []string{
		"-qq", "-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch, "-o", "Dir::State::status=" + status,
		"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"), "-o", "Dir::Cache=" + dir,
		"-o", "Dir::Cache::archives=" + archives,
		"-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User=root", "-o", "APT::Install-Recommends=false",
	}
	apt := func(args ...string) (string, error) {
		out, err := exec.Command("apt-get", append(slices.Clone(options), args...)...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("apt-get %s for %s: %w: %s", args[0], arch, err, bytes.TrimSpace(out))
		}
		return string(out), nil
	}
	// What was downloaded before is used again as long as it is complete; new lists are only fetched when it is not.
	install := append([]string{"install", "-y", "--download-only"}, packages...)
	if _, err := apt(install...); err != nil {
		if _, err := apt("update"); err != nil {
			return nil, err
		}
		if _, err := apt(install...); err != nil {
			return nil, err
		}
	}
	plan, err := apt(append([]string{"install", "--simulate"}, packages...)...)
	if err != nil {
		return nil, err
	}
	names := planned(plan)
	if len(names) == 0 {
		return nil, fmt.Errorf("apt-get for %s would install nothing: %s", arch, plan)
	}
	for i, name := range names {
		names[i] = filepath.Join(archives, name)
	}
	return names, nil
}

// planned returns the files of the packages that apt-get --simulate says it would install, in the order of their names.
// A line is
//
//	Inst libcap2 (1:2.66-4+deb12u3 Debian:12.11/stable [amd64])
func planned(plan string) []string {
	var files []string
	for _, m := range regexp.MustCompile(`(?m)^Inst (\S+) \((\S+) .*\[(\S+)\]\)`).FindAllStringSubmatch(plan, -1) {
		name, _, _ := strings.Cut(m[1], ":") // of another architecture than this machine's: iptables:arm64
		files = append(files, name+"_"+strings.ReplaceAll(m[2], ":", "%3a")+"_"+m[3]+".deb")
	}
	slices.Sort(files)
	return files
}

// control reads what a package says of itself.
func control(file string) (*deb, error) {
	out, err := exec.Command("dpkg-deb", "--show", "--showformat",
		"${Package}\n${Version}\n${source:Package}\n${source:Version}\n", file).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	words := strings.Split(string(out), "\n")
	if len(words) != 5 || slices.Contains(words[:4], "") {
		return nil, fmt.Errorf("%s does not say what it is: %q", file, out)
	}
	return &deb{file, words[0], words[1], words[2], words[3]}, nil
}

// unpack reads the files of packages. Folders that are symbolic links since /usr was merged are followed.
func unpack(debs []string) (tree, error) {
	t := tree{}
	for _, file := range debs {
		from, err := control(file)
		if err != nil {
			return nil, err
		}
		out, err := exec.Command("dpkg-deb", "--fsys-tarfile", file).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for r := tar.NewReader(bytes.NewReader(out)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			name := merged(path.Clean(strings.TrimPrefix(h.Name, "./")))
			switch h.Typeflag {
			case tar.TypeReg:
				data, err := io.ReadAll(r)
				if err != nil {
					return nil, err
				}
				t[name] = &entry{data: data, mode: h.Mode & 0o755, from: from}
			case tar.TypeSymlink:
				t[name] = &entry{link: h.Linkname, mode: 0o777, from: from}
			case tar.TypeLink:
				t[name] = t[merged(path.Clean(strings.TrimPrefix(h.Linkname, "./")))]
			}
		}
	}
	return t, nil
}

// merged is where a path of a package is found on a system whose /bin, /sbin and /lib are links into /usr.
func merged(name string) string {
	for _, dir := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
		if strings.HasPrefix(name, dir) {
			return "usr/" + name
		}
	}
	return name
}

// prune keeps the files of patterns, what links of them point at, and what programs and libraries among them load.
func prune(all tree, patterns []string, arch string) (tree, error) {
	lib := "usr/lib/" + triplets[arch]
	kept := tree{}
	var keep func(name, why string) error
	keep = func(name, why string) error {
		if kept[name] != nil {
			return nil
		}
		e := all[name]
		if e == nil {
			return fmt.Errorf("%s is in no package, and %s needs it", name, why)
		}
		kept[name] = e
		if e.link != "" {
			target := e.link
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(name), target)
			}
			target = merged(strings.TrimPrefix(path.Clean(target), "/"))
			if strings.HasPrefix(target, "etc/alternatives/") {
				return fmt.Errorf("%s is an alternative, which no package decides: name the program itself", name)
			}
			return keep(target, name)
		}
		needed, err := loads(e.data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, n := range needed {
			if !strings.Contains(n, "/") {
				n = lib + "/" + n
			}
			if err := keep(merged(strings.TrimPrefix(n, "/")), name); err != nil {
				return err
			}
		}
		return nil
	}
	for _, pattern := range patterns {
		pattern = strings.ReplaceAll(pattern, "{lib}", lib)
		found := false
		for name := range all {
			if ok, err := path.Match(strings.TrimPrefix(pattern, "/"), name); err != nil {
				return nil, err
			} else if ok {
				found = true
				if err := keep(name, "the recipe"); err != nil {
					return nil, err
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: no package has such a file", pattern)
		}
	}
	return kept, nil
}

// loads lists the interpreter and the libraries that an ELF file names; none for any other file.
func loads(data []byte) ([]string, error) {
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			interp, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			needed = append(needed, strings.TrimRight(string(interp), "\x00"))
		}
	}
	return needed, nil
}
