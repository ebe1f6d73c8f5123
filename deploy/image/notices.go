// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	docs     = "usr/share/doc/"
	licences = "usr/share/common-licenses/"
	// sources is the file that says where the sources of Debian's programs are.
	sources = docs + "SOURCES"
)

// licence is how a package's copyright file names a text that base-files has. A full stop behind it ends a sentence.
var licence = regexp.MustCompile("/" + licences + `([A-Za-z0-9][A-Za-z0-9.+-]*[A-Za-z0-9])`)

// addNotices adds what the licences of Debian's programs ask for to the files that are kept: of each package that one
// of them comes from the copyright file, the texts of the licences that this names, and where the sources are.
func addNotices(kept, all tree) error {
	packages := map[string]*deb{}
	for _, e := range kept {
		if e.from != nil {
			packages[e.from.name] = e.from
		}
	}
	var list strings.Builder
	fmt.Fprintf(&list, "The programs and libraries of Debian in this image, as Debian built them, and their sources.\n"+
		"The licences are in /%s*/copyright and /%s.\n\n", docs, licences)
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		text, err := copyright(kept, all, name)
		if err != nil {
			return err
		}
		for _, m := range licence.FindAllSubmatch(text, -1) {
			if err := keepText(kept, all, licences+string(m[1])); err != nil {
				return fmt.Errorf("the licence of %s: %w", name, err)
			}
		}
		p := packages[name]
		fmt.Fprintf(&list, "%s %s\n    source: %s %s\n    https://snapshot.debian.org/package/%s/%s/\n",
			p.name, p.version, p.source, p.sourceVersion, url.PathEscape(p.source), url.PathEscape(p.sourceVersion))
	}
	kept[sources] = &entry{data: []byte(list.String()), mode: 0o644}
	return nil
}

// copyright keeps the copyright file of a package, whose folder may be a link to that of another package, and returns
// it.
func copyright(kept, all tree, name string) ([]byte, error) {
	dir := docs + name
	if e := all[dir]; e != nil && e.link != "" {
		kept[dir] = e
		dir = path.Join(docs, e.link)
	}
	file := dir + "/copyright"
	e := all[file]
	if e == nil || len(bytes.TrimSpace(e.data)) == 0 {
		return nil, fmt.Errorf("%s has no copyright file", name)
	}
	kept[file] = e
	return e.data, nil
}

// keepText keeps a text, and what it is a link to.
func keepText(kept, all tree, name string) error {
	e := all[name]
	if e == nil {
		return fmt.Errorf("%s is in no package", name)
	}
	if kept[name] = e; e.link == "" {
		return nil
	}
	to := e.link
	if !path.IsAbs(to) {
		to = path.Join(path.Dir(name), to)
	}
	return keepText(kept, all, strings.TrimPrefix(to, "/"))
}
