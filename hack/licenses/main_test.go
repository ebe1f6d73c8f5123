// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const isc = `Copyright (c) 2026 Someone

Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby
granted, provided that the above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL
IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN
AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR
PERFORMANCE OF THIS SOFTWARE.
`

const gpl = `This program is free software; you can redistribute it and/or modify it under the terms of the GNU
General Public License as published by the Free Software Foundation; either version 2 of the License, or
(at your option) any later version.
`

func TestLicences(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		texts []string // that go along
		err   string
	}{
		"accepted": {
			files: map[string]string{
				"LICENSE": isc, "NOTICE.txt": "by Someone", "main.go": "package x", "license.go": "package x",
			},
			texts: []string{"LICENSE", "NOTICE.txt"},
		},
		"British": {files: map[string]string{"LICENCE.md": isc}, texts: []string{"LICENCE.md"}},
		"not accepted": {
			files: map[string]string{"COPYING": gpl}, err: "COPYING: GPL-2.0-or-later is not among the licences that we accept",
		},
		"one of two": {files: map[string]string{"LICENSE": isc, "LICENSE.other": gpl}, err: "LICENSE.other: GPL"},
		"unknown": {
			files: map[string]string{"LICENSE": "You may use this on Sundays, if it rains, and nobody looks."},
			err:   "0 % of it are licences that are known",
		},
		"more than it says": {
			files: map[string]string{
				"LICENSE": isc + strings.Repeat("And on Sundays you may not use it at all, wherever you are. ", 40),
			},
			err: "are licences that are known",
		},
		"a notice is none":   {files: map[string]string{"NOTICE": "by Someone"}, err: "there is no licence"},
		"nothing is nothing": {err: "there is no licence"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			texts, names, err := licencesOf(dir)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			got := slices.Sorted(maps.Keys(texts))
			if !slices.Equal(got, tt.texts) || err == nil && !slices.Equal(names, []string{"ISC"}) {
				t.Errorf("%v of %v, want %v", names, got, tt.texts)
			}
		})
	}
}

// What a program imports on one system only counts, and so does Go's own library.
func TestModules(t *testing.T) {
	modules, err := modulesOf([]string{"."})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range modules {
		got = append(got, m.Path)
	}
	if !slices.Equal(got, []string{"github.com/google/licensecheck", "std"}) {
		t.Errorf("it is made of %v", got)
	}
	if _, err := modulesOf([]string{"./nowhere"}); err == nil {
		t.Error("there is no such package, and no error")
	}
}
