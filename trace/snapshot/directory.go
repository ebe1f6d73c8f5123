// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// openDirectory finds the files of a directory. They are read when they are needed, and only if they are regular
// files in it: reading a named pipe or a device does not end, and a link may lead to any file of the machine.
func openDirectory(name string) (*Snapshot, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	d := &directory{Root: root, index: newIndex(name), files: map[string]opener{}}
	if err := d.walk(".", 0); err != nil {
		if bounds.Is(err) {
			return nil, err
		}
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return &Snapshot{path: name, files: d.files}, nil
}

// directory is a directory that is being listed.
type directory struct {
	*os.Root
	*index

	files map[string]opener
}

// walk lists a directory and what is below it. Entries are read in parts: there may be any number.
func (d *directory) walk(dir string, depth int) error {
	if depth > bounds.Depth {
		return bounds.Errorf("%s has directories below %s: at most %d levels were expected", d.path, dir, bounds.Depth)
	}
	f, err := d.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	const part = 1000
	for {
		entries, err := f.ReadDir(part)
		for _, e := range entries {
			if err := d.entry(path.Join(dir, e.Name()), e, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (d *directory) entry(name string, e fs.DirEntry, depth int) error {
	if err := d.count(); err != nil {
		return err
	}
	mode := e.Type()
	if mode.IsDir() {
		if err := d.refuse(name, "a directory", false); err != nil {
			return err
		}
		return d.walk(name, depth+1)
	}
	if mode&fs.ModeSymlink != 0 {
		_, file := rootOf(name)
		if !file && !structural(name) {
			return nil
		}
		info, err := d.Stat(name)
		switch {
		case err != nil && file:
			return bounds.Errorf("%s in %s is a symbolic link that cannot be followed within the snapshot: a regular file "+
				"was expected (%v)", name, d.path, err)
		case err != nil || info.IsDir():
			return d.refuse(name, "a symbolic link, which is not followed to a directory", true)
		}
		mode = info.Mode().Type()
	}
	if mode != 0 {
		return d.refuse(name, irregular(mode), false)
	}
	file, err := d.add(name)
	if err == nil && file != "" {
		d.files[file] = func(limit int64) (content, error) { return readFile(d.Root, name, limit) }
	}
	return err
}

// irregular names the type of a file for people.
func irregular(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode.IsDir():
		return "a directory"
	}
	return "not a regular file"
}

// readFile reads a file of a directory, as it is there.
func readFile(root *os.Root, name string, limit int64) (content, error) {
	full := path.Join(root.Name(), name)
	// Before it is opened: opening a named pipe waits for a writer.
	info, err := root.Stat(name)
	if err != nil {
		return content{}, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	if mode := info.Mode().Type(); mode != 0 {
		return content{}, bounds.Errorf("%s is %s: a regular file was expected", full, irregular(mode))
	}
	f, err := root.Open(name)
	if err != nil {
		return content{}, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	defer f.Close()
	data, err := readUpTo(full, f, limit, info.Size())
	switch {
	case bounds.Is(err):
		return content{}, err
	case err != nil:
		return content{}, fmt.Errorf("cannot read %s: %w", full, err)
	}
	return content{full, data, bytes.HasPrefix(data, gzipMagic)}, nil
}
